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
	if len(b) < 2 || b[0] != '{' || b[len(b)-1] != '}' {
		return nil, false
	}
	list := make([]member, 0, 16)
	for i := 1; i < len(b)-1; {
		end := stringEnd(b, i)
		if end < 0 || end+1 >= len(b) || b[end] != ':' {
			return nil, false
		}
		key := string(b[i+1 : end-1])
		if strings.IndexByte(key, '\\') >= 0 || len(list) > 0 && list[len(list)-1].key >= key {
			return nil, false
		}
		start := end + 1
		if i = valueEnd(b, start); i < 0 || i == start {
			return nil, false
		}
		list = append(list, member{key, b[start:i]})
		if i < len(b)-1 && b[i] != ',' {
			return nil, false
		}
		i++
	}
	return list, true
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
