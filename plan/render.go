package plan

import (
	"encoding/json"
	"fmt"
)

// JSON is the diff for programs: FormatVersion says the form; equal input gives equal bytes.
func (c *Changes) JSON() ([]byte, error) {
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode plan: %w", err)
	}
	return append(b, '\n'), nil
}
