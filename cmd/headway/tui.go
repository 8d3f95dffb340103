package main

// What is printed, and how: results go to standard output, everything else to standard error, lower case, without a
// full stop at the end; an error is one sentence behind "error:", what to do next stands behind "hint:". Text from a
// machine that is not ours is escaped before it reaches a terminal. Colours only where env.color says so.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/headway-run/headway/reconcile/repo"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
)

// fail prints an error as one sentence, and its hint on a line of its own: the one that is given, else the one that an
// error of the store or of the repository carries within its sentence.
func fail(e env, err error, hint string) {
	text := err.Error()
	within := hintWithin(err)
	if within != "" {
		text = strings.TrimSuffix(strings.Replace(text, " ("+within+")", "", 1), ": "+within)
	}
	if hint == "" {
		hint = within
	}
	fmt.Fprintf(e.stderr, "error: %s\n", e.hidden.from(clean(text)))
	if hint != "" {
		fmt.Fprintf(e.stderr, "hint: %s\n", e.hidden.from(clean(hint)))
	}
}

func hintWithin(err error) string {
	if s, ok := errors.AsType[*bucket.Error](err); ok {
		return s.Hint
	}
	if r, ok := errors.AsType[*repo.Error](err); ok {
		return r.Hint
	}
	if f, ok := errors.AsType[*runners.Failure](err); ok {
		return cmp.Or(f.Hint, f.Class.Advice())
	}
	return ""
}

func warn(e env, format string, args ...any) {
	text := clean(fmt.Sprintf(format, args...))
	if e.events {
		e.log.Warn(text)
		return
	}
	fmt.Fprintf(e.stderr, "warning: %s\n", e.hidden.from(text))
}

// clean escapes control characters, keeping the line breaks of a message of our own.
func clean(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = runners.Sanitize([]byte(l))
	}
	return strings.Join(lines, "\n")
}

// table writes rows with aligned columns; the first row is the heading.
func table(w io.Writer, rows [][]string) error {
	var b bytes.Buffer
	tw := tabwriter.NewWriter(&b, 2, 0, 2, ' ', 0)
	for _, r := range rows {
		for _, cell := range r { // every cell ends with a tab: a row of empty ones would break the columns of its neighbours
			fmt.Fprint(tw, runners.Sanitize([]byte(cell)), "\t")
		}
		fmt.Fprintln(tw)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	out := make([]byte, 0, b.Len())
	for line := range bytes.Lines(b.Bytes()) {
		out = append(append(out, bytes.TrimRight(line, " \n")...), '\n')
	}
	_, err := w.Write(out) // at once: each line for itself is ten thousand calls of the system
	return err
}

// printJSON writes one indented JSON document.
func printJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(indented(b.Bytes()))
	return err
}

// indented is what json.Indent makes, two spaces a level, of JSON without white space: in a seventh of the time, since it
// has not to be checked. A line end behind it stays.
func indented(src []byte) []byte {
	out := make([]byte, 0, len(src)*3/2)
	depth := 0
	line := func() {
		out = append(out, '\n')
		for range depth {
			out = append(out, ' ', ' ')
		}
	}
	for i := 0; i < len(src); i++ {
		c := src[i]
		switch c {
		case '"':
			from := i
			for i++; i < len(src) && src[i] != '"'; i++ {
				if src[i] == '\\' {
					i++
				}
			}
			out = append(out, src[from:min(i+1, len(src))]...)
			continue
		case '{', '[':
			if out = append(out, c); i+1 < len(src) && (src[i+1] == '}' || src[i+1] == ']') {
				i++
				out = append(out, src[i])
				continue
			}
			depth++
			line()
			continue
		case '}', ']':
			depth--
			line()
		}
		out = append(out, c)
		switch c {
		case ',':
			line()
		case ':':
			out = append(out, ' ')
		}
	}
	return out
}

// ago prints a duration as people say it: 42s, 3m, 2h05m, 4d.
func ago(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

const (
	bold  = "\x1b[1m"
	dim   = "\x1b[2m"
	green = "\x1b[32m"
	red   = "\x1b[31m"
	plain = "\x1b[0m"
)

// paint wraps s in a colour when the terminal takes one.
func (e env) paint(color, s string) string {
	if !e.color() {
		return s
	}
	return color + s + plain
}
