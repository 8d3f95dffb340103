package reconcile

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// decodeBoard reads a board as encoding/json does. What a dispatcher writes has a line for each row, of plain words and numbers:
// those are read in one go, which takes a seventh of the time. All else is left to encoding/json, row by row.
func decodeBoard(body string) (*Board, error) {
	b := &Board{}
	before, rest, ok := strings.Cut(body, `"rows":[`)
	if !ok || !strings.HasPrefix(rest, "{") {
		return b, json.Unmarshal([]byte(body), b)
	}
	rows := make([]BoardRow, 0, strings.Count(rest, "\n"))
	for more := true; more; {
		line, after, ok := strings.Cut(rest, "\n")
		if !ok || !strings.HasPrefix(after, ",") && !strings.HasPrefix(after, "]") {
			return b, json.Unmarshal([]byte(body), b)
		}
		rows = append(rows, BoardRow{})
		row := &rows[len(rows)-1]
		if !plainRow(line, row) {
			*row = BoardRow{}
			if err := json.Unmarshal([]byte(line), row); err != nil {
				return nil, err
			}
		}
		more, rest = after[0] == ',', after[1:]
	}
	if err := json.Unmarshal([]byte(before+`"rows":[]`+rest), b); err != nil {
		return nil, err
	}
	b.Rows = rows
	return b, nil
}

// plainRow reads one row whose keys are known and whose values are strings without escapes and whole numbers; false: it has
// something else, or is no JSON.
func plainRow(s string, r *BoardRow) bool {
	if len(s) < 2 || s[0] != '{' || !utf8.ValidString(s) {
		return false
	}
	for s = s[1:]; ; {
		key, rest, ok := plainString(s)
		if !ok || !strings.HasPrefix(rest, ":") {
			return false
		}
		if text := r.text(key); text != nil {
			*text, rest, ok = plainString(rest[1:])
		} else if number := r.number(key); number != nil {
			*number, rest, ok = plainNumber(rest[1:])
		} else {
			return false
		}
		switch {
		case !ok:
			return false
		case rest == "}":
			return true
		case !strings.HasPrefix(rest, ","):
			return false
		}
		s = rest[1:]
	}
}

// text is the field of a key whose value is a string; nil: there is none.
func (r *BoardRow) text(key string) *string {
	switch key {
	case "work":
		return (*string)(&r.Work)
	case "state":
		return &r.State
	case "platform":
		return &r.Platform
	case "reason":
		return &r.Reason
	case "job":
		return &r.Job
	case "group":
		return &r.Group
	case "version":
		return (*string)(&r.Version)
	}
	return nil
}

// number is the field of a key whose value is a whole number; nil: there is none.
func (r *BoardRow) number(key string) *int64 {
	switch key {
	case "attempt":
		return &r.Attempt
	case "dispatch":
		return &r.Dispatch
	case "step":
		return &r.Step
	case "steps":
		return &r.Steps
	case "milestone":
		return &r.Milestone
	case "milestone_step":
		return &r.MilestoneStep
	case "changed":
		return &r.Changed
	}
	return nil
}

// plainString is the string that s begins with, without its quotes, and what follows.
func plainString(s string) (text, rest string, ok bool) {
	if s == "" || s[0] != '"' {
		return "", "", false
	}
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return s[1:i], s[i+1:], true
		case c == '\\' || c < ' ':
			return "", "", false
		}
	}
	return "", "", false
}

// plainNumber is the whole number that s begins with, and what follows.
func plainNumber(s string) (n int64, rest string, ok bool) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	if i == 0 || i > 1 && s[0] == '0' {
		return 0, "", false
	}
	n, err := strconv.ParseInt(s[:i], 10, 64)
	return n, s[i:], err == nil
}
