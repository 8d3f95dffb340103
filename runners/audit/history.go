package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// Versions is what a check of a saved history saw.
type Versions struct {
	Versions int      `json:"versions"`
	Works    int      `json:"works"`
	Line     int      `json:"line,omitempty"` // of the finding, from 1
	Finding  *Finding `json:"finding,omitempty"`
}

// maxLine bounds a line of a history: a witness, and room for white space.
const maxLine = 4 * witness.MaxRecord

// History replays witnesses, one JSON object a line, oldest first, works mixed as they like, and stops at the first that
// is no allowed move from the version of its work before it (witness.CheckMove): a bucket that keeps versions can give
// such a file. A work may begin at any version; one that begins with rev 1 must begin as a witness does. A line that is
// no object of at most 16 KiB is a finding as well. An error is one of the reader.
func History(r io.Reader) (Versions, error) {
	var v Versions
	last := map[string]*witness.Record{}
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine+2)
	line := 0
	for s.Scan() {
		line++
		b := bytes.TrimSpace(s.Bytes())
		if len(b) == 0 {
			continue
		}
		f, rec := version(last, line, b)
		if f != nil {
			v.Line, v.Finding = line, f
			v.Works = len(last)
			return v, nil
		}
		v.Versions++
		last[rec.Work] = rec
	}
	v.Works = len(last)
	switch err := s.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		v.Line, v.Finding = line+1, noObject(line+1, fmt.Sprintf("more than %d bytes", maxLine))
	case err != nil:
		return v, fmt.Errorf("read the history behind version %d: %w", v.Versions, err)
	}
	return v, nil
}

// noObject finds that a line is not what a history is made of: most likely it was not saved a version a line.
func noObject(line int, found string) *Finding {
	return &Finding{Key: fmt.Sprintf("line %d", line), Invariant: Format, Text: "expected one JSON object a line, found " + found,
		Do: "make the file with jq -c . and save it without a byte order mark; if the version itself is so, look who wrote it"}
}

// odd says what a line is instead of one JSON object; empty: it is one.
func odd(b []byte) string {
	if bytes.HasPrefix(b, []byte("\ufeff")) {
		return "a byte order mark"
	}
	if b[0] == '{' && json.Valid(b) {
		return ""
	}
	if most := 60; len(b) > most {
		b = append(b[:most:most], "..."...)
	}
	return strconv.QuoteToASCII(string(b))
}

// version holds one line against the version before it.
func version(last map[string]*witness.Record, line int, b []byte) (*Finding, *witness.Record) {
	const do = "the versions before it are sound: restore the newest of them, and look who wrote this one"
	if found := odd(b); found != "" {
		return noObject(line, found), nil
	}
	wrong := func(work string, i Invariant, err error) (*Finding, *witness.Record) {
		key := fmt.Sprintf("line %d", line)
		if hexDigits(work, 64) {
			key = record.WitnessKey(work)
		}
		return &Finding{Key: key, Invariant: i, Text: printable(err.Error()), Do: do}, nil
	}
	var named struct {
		Work string `json:"work"`
	}
	if err := record.Decode(b, maxLine, &named); err != nil {
		return wrong("", Format, err)
	}
	if !hexDigits(named.Work, 64) {
		return wrong("", Format, fmt.Errorf("is no lease: its work is %.80q, expected 64 hex digits", named.Work))
	}
	rec, err := witness.Decode(named.Work, b)
	if err != nil {
		return wrong(named.Work, Format, err)
	}
	old := last[rec.Work]
	if old == nil && rec.Rev > 1 {
		return nil, &rec
	}
	if _, err := witness.CheckMove(old, rec); err != nil {
		return wrong(rec.Work, broken(old, &rec), err)
	}
	return nil, &rec
}

// broken names the invariant that a forbidden move breaks.
func broken(old, next *witness.Record) Invariant {
	switch {
	case old == nil:
		return OneWriter
	case old.State == witness.Finished:
		return Terminal
	case next.Floor < old.Floor, next.State == witness.Held && next.Dispatch < old.Floor:
		return Claimed
	case next.Rev == old.Rev+1 && next.Attempt >= old.Attempt && next.State == witness.Held && old.State == witness.Held && next.Holder != old.Holder:
		return OneHolder
	case next.Attempt < old.Attempt:
		return OneWriter
	}
	return Forward
}
