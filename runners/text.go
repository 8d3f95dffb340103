package runners

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxLine is how many bytes of one line Sanitize shows.
const maxLine = 4 << 10

// plain reports whether a text is printable ASCII and nothing else, as nearly all are.
func plain(line []byte) bool {
	for _, c := range line {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

// Sanitize makes a line of hostile bytes printable on a terminal: every character that is not visible text, a space
// or a tab is written as an escape (so no control sequence, no carriage return, no direction override and no
// invalid UTF-8 gets through), and what lies beyond 4 KiB is replaced by its length. It is for people and is not
// reversible. A final newline is dropped.
func Sanitize(line []byte) string {
	line = trimNewline(line)
	if len(line) <= maxLine && plain(line) {
		return string(line)
	}
	rest := 0
	if len(line) > maxLine {
		cut := maxLine
		for cut > 0 && !utf8.RuneStart(line[cut]) {
			cut--
		}
		if cut < maxLine-utf8.UTFMax {
			cut = maxLine
		}
		rest, line = len(line)-cut, line[:cut]
	}
	var s strings.Builder
	s.Grow(len(line))
	for len(line) > 0 {
		r, n := utf8.DecodeRune(line)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&s, `\x%02x`, line[0])
		case r == '\t' || unicode.IsGraphic(r):
			s.WriteRune(r)
		default:
			q := strconv.QuoteRuneToASCII(r)
			s.WriteString(q[1 : len(q)-1])
		}
		line = line[n:]
	}
	if rest > 0 {
		fmt.Fprintf(&s, "… (%d bytes more)", rest)
	}
	return s.String()
}

func trimNewline(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
	}
	return line
}

// Bound cuts s to at most n bytes, at a character, and marks the cut.
func Bound(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const mark = "…"
	if n <= len(mark) {
		return ""
	}
	cut := n - len(mark)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + mark
}
