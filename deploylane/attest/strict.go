package attest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// strict walks JSON and refuses what different readers understand differently: keys that are there twice (also where they
// differ in case alone: Go's decoder takes them for one), bytes behind the value, text that is no UTF-8, deep nesting.
func strict(b []byte) error {
	if !utf8.Valid(b) {
		return errUTF8
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := walk(d, 0); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errTrailing
	}
	return nil
}

func walk(d *json.Decoder, depth int) error {
	if depth > maxDepth {
		return errDepth
	}
	t, err := d.Token()
	if err != nil {
		return fmt.Errorf("it is no JSON: %w", err)
	}
	open, nested := t.(json.Delim)
	if !nested {
		return nil
	}
	seen := map[string]bool{}
	for d.More() {
		if open == '{' {
			k, err := d.Token()
			if err != nil {
				return fmt.Errorf("it is no JSON: %w", err)
			}
			name := fold(fmt.Sprint(k))
			if seen[name] {
				return fmt.Errorf("%w: %.80q", errDuplicate, k)
			}
			seen[name] = true
		}
		if err := walk(d, depth+1); err != nil {
			return err
		}
	}
	if _, err = d.Token(); err != nil { // the closing one
		return fmt.Errorf("it is no JSON: %w", err)
	}
	return nil
}

// fold makes keys equal that Go's decoder takes for one: it folds simple cases, where K and the Kelvin sign are one.
func fold(s string) string { return strings.ToLower(strings.ToUpper(s)) }
