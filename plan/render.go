package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// JSON is the diff for programs: FormatVersion says the form; equal input gives equal bytes.
func (c *Changes) JSON() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(c); err != nil {
		return nil, fmt.Errorf("encode plan: %w", err)
	}
	return b.Bytes(), nil
}
