package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// MaxChanges bounds a diff that is read back, bytes.
const MaxChanges = 256 << 20

// DecodeChanges reads what [Changes.JSON] wrote. It is a file of somebody's: bounded, of this major version, unknown fields
// ignored, and everything whose form is fixed held to it, so that the faces of a diff may print what they print.
func DecodeChanges(b []byte) (*Changes, error) {
	if len(b) > MaxChanges {
		return nil, fmt.Errorf("%d bytes, at most %d are read", len(b), MaxChanges)
	}
	var c Changes
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&c); err != nil {
		return nil, fmt.Errorf("decode plan: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("decode plan: bytes after the end of the JSON value")
	}
	if major, _, ok := strings.Cut(c.FormatVersion, "."); !ok || major != "1" {
		return nil, fmt.Errorf("format_version is %q, this program reads 1.x", c.FormatVersion)
	}
	if c.Changes == nil {
		return nil, errors.New("it has no changes[], not even an empty one")
	}
	for _, h := range []string{c.Commit, c.Base} {
		if h != "" && !hexed(h) {
			return nil, fmt.Errorf("%q is no commit", line(h))
		}
	}
	lists := [][]Change{c.Changes}
	if c.Pending != nil {
		lists = append(lists, c.Pending.Changes)
	}
	for _, l := range lists {
		for i := range l {
			if err := l[i].check(); err != nil {
				return nil, fmt.Errorf("changes[%d]: %w", i, err)
			}
		}
	}
	return &c, nil
}

// check holds a change that was read back to the forms that printing relies on.
func (c *Change) check() error {
	if _, ok := order[c.Op]; !ok {
		return fmt.Errorf("op %q is not known", line(string(c.Op)))
	}
	works := []Digest{c.OldWork, c.NewWork}
	for _, o := range []*Observed{c.Now, c.Leaving} {
		if o != nil {
			works = append(works, o.Work)
		}
	}
	for _, w := range works {
		if w != "" && !hexed(string(w)) {
			return fmt.Errorf("%q is no work", line(string(w)))
		}
	}
	return nil
}

func hexed(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }
