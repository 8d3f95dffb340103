package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// member is one key of a JSON object with the bytes of its value.
type member struct {
	key string
	raw json.RawMessage
}

// pair is one key of two JSON objects with the bytes of its two values.
type pair struct {
	key      string
	old, now json.RawMessage
}

// splitObject gives the members of a JSON object, sorted by key. Canonical text is cut by hand; anything else goes
// through the standard library. Nothing at all is an empty object.
func splitObject(b []byte) ([]member, error) {
	if len(b) == 0 {
		return nil, nil
	}
	if list, ok := cutCanonical(b); ok {
		return list, nil
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("not a JSON object: %w", err)
	}
	list := make([]member, 0, len(m))
	for k, v := range m {
		list = append(list, member{k, v})
	}
	slices.SortFunc(list, func(a, b member) int { return strings.Compare(a.key, b.key) })
	return list, nil
}

// cutCanonical cuts an object without white space whose keys have no escapes and are sorted.
func cutCanonical(b []byte) ([]member, bool) {
	list := make([]member, 0, 16)
	c := cutter{b: b}
	for c.next() {
		list = append(list, member{string(c.key), c.raw})
	}
	return list, c.ended
}

// cutter goes over the members of a canonical object without copying them.
type cutter struct {
	b     []byte
	at    int
	key   []byte // of the member that next came to
	raw   []byte
	ended bool // the object was canonical to its end
}

// next goes on to the next member. It says false at the end, and before it at anything that is not canonical.
func (c *cutter) next() bool {
	b := c.b
	if c.at == 0 {
		if len(b) < 2 || b[0] != '{' || b[len(b)-1] != '}' {
			return false
		}
		c.at++
	}
	if c.at >= len(b)-1 {
		c.ended = true
		return false
	}
	end := stringEnd(b, c.at)
	if end < 0 || end+1 >= len(b) || b[end] != ':' {
		return false
	}
	key, first := b[c.at+1:end-1], c.at == 1
	if bytes.IndexByte(key, '\\') >= 0 || !first && bytes.Compare(c.key, key) >= 0 {
		return false
	}
	i := valueEnd(b, end+1)
	if i <= end+1 || i < len(b)-1 && b[i] != ',' {
		return false
	}
	c.key, c.raw, c.at = key, b[end+1:i], i+1
	return true
}

// differences gives the members of two objects that are not equal byte for byte, sorted by key. The error says which
// object is none.
func differences(out []pair, old, now []byte) (list []pair, oldErr, nowErr error) {
	if list, ok := canonicalDifferences(out, old, now); ok {
		return list, nil, nil
	}
	a, oldErr := splitObject(old)
	b, nowErr := splitObject(now)
	if oldErr != nil || nowErr != nil {
		return nil, oldErr, nowErr
	}
	return unequal(out, a, b), nil, nil
}

// canonicalDifferences is the way without copies, for canonical text on both sides.
func canonicalDifferences(out []pair, old, now []byte) ([]pair, bool) {
	a, b := cutter{b: old}, cutter{b: now}
	x, y := a.next(), b.next()
	for x || y {
		order := 0
		switch {
		case !y:
			order = -1
		case !x:
			order = 1
		default:
			order = bytes.Compare(a.key, b.key)
		}
		switch {
		case order < 0:
			out = append(out, pair{string(a.key), a.raw, nil})
		case order > 0:
			out = append(out, pair{string(b.key), nil, b.raw})
		case !bytes.Equal(a.raw, b.raw):
			out = append(out, pair{string(a.key), a.raw, b.raw})
		}
		if order <= 0 {
			x = a.next()
		}
		if order >= 0 {
			y = b.next()
		}
	}
	return out, a.ended && b.ended
}

// unequal gives the members of two objects that are not equal byte for byte, each with its counterpart; the one that
// is not there has no bytes.
func unequal(out []pair, a, b []member) []pair {
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].key < b[0].key:
			out, a = append(out, pair{a[0].key, a[0].raw, nil}), a[1:]
		case len(a) == 0 || b[0].key < a[0].key:
			out, b = append(out, pair{b[0].key, nil, b[0].raw}), b[1:]
		default:
			if !bytes.Equal(a[0].raw, b[0].raw) {
				out = append(out, pair{a[0].key, a[0].raw, b[0].raw})
			}
			a, b = a[1:], b[1:]
		}
	}
	return out
}

// flatten puts a value under its path: each key of a map under its own, everything else as its canonical text. No
// bytes are no value.
func flatten(key string, raw json.RawMessage) map[string]any {
	out := make(map[string]any)
	if len(raw) == 0 {
		return out
	}
	if raw[0] == '{' {
		if sub, err := splitObject(raw); err == nil {
			for _, s := range sub {
				out[key+"."+s.key] = string(s.raw)
			}
			return out
		}
	}
	out[key] = string(raw)
	return out
}

// stringEnd is the index after the string that starts at i, or -1.
func stringEnd(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

// valueEnd is the index after the value that starts at i: of the comma or bracket that ends it. -1 when it does not end.
func valueEnd(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			if i = stringEnd(b, i); i < 0 {
				return -1
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
		case ',':
			if depth == 0 {
				return i
			}
		case ' ', '\n', '\t', '\r':
			return -1
		}
		i++
	}
	return -1
}
