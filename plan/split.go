package plan

import (
	"encoding/json"
	"fmt"
)

// splitObject gives the members of a JSON object, each as its own bytes. Canonical text is cut by hand; anything else
// goes through the standard library. Nothing at all is an empty object.
func splitObject(b []byte) (map[string]json.RawMessage, error) {
	if len(b) == 0 {
		return nil, nil
	}
	if m := cutCanonical(b); m != nil {
		return m, nil
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("not a JSON object: %w", err)
	}
	return m, nil
}

// cutCanonical cuts an object without white space whose keys have no escapes, or answers nil.
func cutCanonical(b []byte) map[string]json.RawMessage {
	if len(b) < 2 || b[0] != '{' || b[len(b)-1] != '}' {
		return nil
	}
	m := make(map[string]json.RawMessage, 12)
	for i := 1; i < len(b)-1; {
		end := stringEnd(b, i)
		if end < 0 || end+1 >= len(b) || b[end] != ':' {
			return nil
		}
		key := b[i+1 : end-1]
		for _, c := range key {
			if c == '\\' {
				return nil
			}
		}
		start := end + 1
		if i = valueEnd(b, start); i < 0 || i == start {
			return nil
		}
		m[string(key)] = json.RawMessage(b[start:i])
		if i < len(b)-1 && b[i] != ',' {
			return nil
		}
		i++
	}
	return m
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
