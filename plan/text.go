package plan

import (
	"io"
)

// Text writes the diff for people.
func (c *Changes) Text(w io.Writer, color bool) error { return nil }

// Markdown is the diff as a comment of fewer than max bytes.
func (c *Changes) Markdown(max int) string { return "" }
