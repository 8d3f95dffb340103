package journal

import (
	"bytes"
	"io"
	"slices"
	"strings"
)

// shortest is the length from which a secret's value is looked for; shorter ones would mask ordinary words.
const shortest = 6

const mask = "[secret]"

// Redactor masks secrets' values on their way to w, also where a value comes in two writes. Only exact values are
// found: a program that encodes a secret before it prints it is not caught.
type Redactor struct {
	w       io.Writer
	secrets [][]byte
	keep    int // bytes that may be the start of a value
	held    []byte
	join    []byte // a buffer: what was held back and what follows it
}

// NewRedactor masks the given values. Of a value with line breaks each line is a value. Those of fewer than six bytes
// are not looked for.
func NewRedactor(w io.Writer, values []string) *Redactor {
	r := &Redactor{w: w}
	for _, whole := range values {
		for _, v := range strings.FieldsFunc(whole, func(c rune) bool { return c == '\r' || c == '\n' }) {
			if len(v) >= shortest {
				r.secrets = append(r.secrets, []byte(v))
				r.keep = max(r.keep, len(v)-1)
			}
		}
	}
	slices.SortFunc(r.secrets, func(a, b []byte) int { return len(b) - len(a) }) // the longest first
	return r
}

// Text masks one text.
func (r *Redactor) Text(s string) string { return string(r.clean([]byte(s))) }

// clean returns b itself where there is nothing to mask.
func (r *Redactor) clean(b []byte) []byte {
	for _, s := range r.secrets {
		if bytes.Contains(b, s) {
			b = bytes.ReplaceAll(b, s, []byte(mask))
		}
	}
	return b
}

// Write passes p on, but for an unfinished line's end that may be the beginning of a value. What need not be masked or held
// back is not copied.
func (r *Redactor) Write(p []byte) (int, error) {
	if len(r.secrets) == 0 {
		return r.w.Write(p)
	}
	n := len(p)
	if len(r.held) > 0 { // no value goes beyond the end of its line
		end := bytes.IndexByte(p, '\n') + 1
		if end == 0 {
			end = n
		}
		r.join = append(append(r.join[:0], r.held...), p[:end]...)
		r.pass(r.join)
		p = p[end:]
	}
	r.pass(p)
	return n, nil
}

// pass passes on what follows on nothing that is held back.
func (r *Redactor) pass(p []byte) {
	if len(p) == 0 {
		return
	}
	b := r.clean(p)
	cut := len(b)
	if line := bytes.LastIndexByte(b, '\n') + 1; cut-line > 0 {
		cut = max(line, cut-r.keep)
	}
	if cut > 0 {
		_, _ = r.w.Write(b[:cut]) // a stream never fails
	}
	r.held = append(r.held[:0], b[cut:]...)
}

// Flush passes on what was held back.
func (r *Redactor) Flush() {
	if len(r.held) > 0 {
		_, _ = r.w.Write(r.held) // a stream never fails
		r.held = r.held[:0]
	}
}
