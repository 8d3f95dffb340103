package bucket

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bounds on a key, bytes. MaxPart is what file systems hold for one name.
const (
	MaxKey  = 1024
	MaxPart = 255
)

// CheckKey refuses what no adapter may accept: an empty key, one of more than MaxKey bytes, a leading, trailing or
// doubled slash, a part that is "." or "..", one of more than MaxPart bytes, control characters, backslashes, bytes
// that are not UTF-8. Every adapter calls it before it does anything, so that a key means the same in all stores and
// a directory store cannot be left.
func CheckKey(op, key string) error {
	if err := keyProblem(key); err != nil {
		shown := key
		if len(shown) > 80 {
			shown = shown[:80] + "…"
		}
		return &Error{Op: op, Key: fmt.Sprintf("%q", shown), Code: BadKey, Err: err}
	}
	return nil
}

// CheckPrefix refuses a list prefix that no key could have. The empty prefix is every key.
func CheckPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	full := prefix
	if strings.HasSuffix(full, "/") {
		full += "x"
	}
	parts := strings.Split(full, "/")
	if last := parts[len(parts)-1]; last == "." || last == ".." {
		full += "x" // "a/.": the start of "a/.x"
	}
	return CheckKey("list", full)
}

func keyProblem(key string) error {
	switch {
	case key == "":
		return errors.New("the key is empty")
	case len(key) > MaxKey:
		return fmt.Errorf("the key has %d bytes, at most %d are allowed", len(key), MaxKey)
	case !utf8.ValidString(key):
		return errors.New("the key is not UTF-8")
	}
	for _, r := range key {
		if r < 0x20 || r == 0x7f || r == '\\' {
			return fmt.Errorf("the key holds %q", r)
		}
	}
	for part := range strings.SplitSeq(key, "/") {
		switch {
		case part == "":
			return errors.New("the key has an empty part (a leading, trailing or doubled slash)")
		case part == "." || part == "..":
			return fmt.Errorf("the key has a part %q", part)
		case len(part) > MaxPart:
			return fmt.Errorf("a part of the key has %d bytes, at most %d are allowed", len(part), MaxPart)
		}
	}
	return nil
}

// Bounds resolves a Range against an object of size bytes: the first byte and how many. A range that starts behind the
// end is refused (416 on S3).
func (r Range) Bounds(size int64) (off, n int64, ok bool) {
	if r.Offset < 0 || r.Length < 0 || r.Offset > size || (r.Offset == size && r.Offset > 0) {
		return 0, 0, false
	}
	n = size - r.Offset
	if r.Length > 0 && r.Length < n {
		n = r.Length
	}
	return r.Offset, n, true
}

// PageLimit resolves the limit of a List: 1..1,000, anything else means 1,000.
func PageLimit(limit int) int {
	if limit < 1 || limit > 1000 {
		return 1000
	}
	return limit
}
