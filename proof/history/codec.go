package history

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headway-run/headway/runners/bucket"
)

// maxLine bounds one line of a saved history: a manifest of the largest size, in base64.
const maxLine = 32 << 20

// line is an entry as it is saved: JSON, one line each. Bodies are text where they are UTF-8, so that a saved history
// can be read and edited by people.
type line struct {
	At      int64  `json:"at"` // nanoseconds
	Actor   string `json:"actor,omitempty"`
	Op      Op     `json:"op"`
	Key     string `json:"key,omitempty"`
	Cond    string `json:"cond,omitempty"` // "": always; absent; is <version>
	Body    string `json:"body,omitempty"`
	Base64  string `json:"base64,omitempty"`
	Refused string `json:"refused,omitempty"` // the code's name
	Version string `json:"version,omitempty"`
	Text    string `json:"text,omitempty"`
}

// Write saves entries as JSON lines. Texts, keys and versions that are no UTF-8 come back with U+FFFD in them; bodies
// come back whole.
func Write(w io.Writer, entries []Entry) error {
	b := bufio.NewWriter(w)
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	for i := range entries {
		if err := enc.Encode(saved(&entries[i])); err != nil {
			return fmt.Errorf("save entry %d of a history: %w", i, err)
		}
	}
	return b.Flush()
}

func saved(e *Entry) line {
	l := line{At: int64(e.At), Actor: e.Actor, Op: e.Op, Key: e.Key, Version: string(e.Version), Text: e.Text}
	if e.Refused {
		l.Refused = e.Code.String()
	}
	if v, swap := e.Cond.Is(); swap {
		l.Cond = "is " + string(v)
	} else if e.Cond.Absent() {
		l.Cond = "absent"
	}
	if utf8.Valid(e.Body) {
		l.Body = string(e.Body)
	} else {
		l.Base64 = base64.StdEncoding.EncodeToString(e.Body)
	}
	return l
}

// Read reads what Write saved. Empty lines are passed over. An error names the line, what was found and what was
// expected; the entries before it come back with it.
func Read(r io.Reader) ([]Entry, error) {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 64<<10), maxLine)
	var out []Entry
	for n := 1; s.Scan(); n++ {
		if len(bytes.TrimSpace(s.Bytes())) == 0 {
			continue
		}
		e, err := parsed(s.Bytes())
		if err != nil {
			return out, fmt.Errorf("history, line %d: %w", n, err)
		}
		out = append(out, e)
	}
	if errors.Is(s.Err(), bufio.ErrTooLong) {
		return out, fmt.Errorf("history, behind entry %d: a line of more than %d bytes; is this a history?", len(out), maxLine)
	}
	return out, s.Err()
}

func parsed(raw []byte) (Entry, error) {
	var l line
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return Entry{}, fmt.Errorf("no entry (%w); expected one JSON object with at, actor, op, key, …", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Entry{}, errors.New("something behind the entry's JSON object; expected one object a line")
	}
	e := Entry{At: time.Duration(l.At), Actor: l.Actor, Op: l.Op, Key: l.Key, Version: bucket.Version(l.Version), Text: l.Text, Body: []byte(l.Body)}
	switch {
	case l.Op != Put && l.Op != Delete && l.Op != Note:
		return e, fmt.Errorf("op %.20q; expected put, delete or note", string(l.Op))
	case l.Op != Note && l.Key == "":
		return e, fmt.Errorf("a %s without a key", l.Op)
	case l.Body != "" && l.Base64 != "":
		return e, errors.New("both body and base64; expected one of them")
	case l.Base64 != "":
		b, err := base64.StdEncoding.DecodeString(l.Base64)
		if err != nil {
			return e, fmt.Errorf("base64 that is none: %w", err)
		}
		e.Body = b
	}
	return e, e.conditions(l)
}

func (e *Entry) conditions(l line) error {
	v, swap := strings.CutPrefix(l.Cond, "is ")
	switch {
	case swap:
		e.Cond = bucket.IfIs(bucket.Version(v))
	case l.Cond == "absent":
		e.Cond = bucket.IfAbsent()
	case l.Cond != "":
		return fmt.Errorf("cond %.20q; expected absent, or is and a version", l.Cond)
	}
	if l.Refused == "" {
		return nil
	}
	for c := bucket.Unknown; c <= bucket.Unsupported; c++ {
		if c.String() == l.Refused {
			e.Refused, e.Code = true, c
			return nil
		}
	}
	return fmt.Errorf("refused %.20q; expected the name of a store's answer, such as Condition", l.Refused)
}
