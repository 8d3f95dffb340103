package plan

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// String is the one line that people see: file:line:col: what is wrong: expected …; how to mend it. It holds no
// control character, whatever the file held.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Pos.String())
	b.WriteString(": ")
	if p.Severity == Warning {
		b.WriteString("warning: ")
	}
	b.WriteString(printable(p.Text))
	if p.Expected != "" {
		b.WriteString(": expected ")
		b.WriteString(printable(p.Expected))
	}
	if p.Hint != "" {
		b.WriteString("; ")
		b.WriteString(printable(p.Hint))
	}
	return b.String()
}

// String is file:line:col, or less where less is known. An odd file name is quoted.
func (p Pos) String() string {
	s := quoteOdd(redact(p.File))
	if p.Line > 0 {
		s += ":" + strconv.Itoa(p.Line)
		if p.Col > 0 {
			s += ":" + strconv.Itoa(p.Col)
		}
	}
	return s
}

// quoteOdd leaves a harmless name as it is and quotes any other, so that a name cannot forge a line of output.
func quoteOdd(s string) string {
	for _, r := range s {
		if r == utf8.RuneError || !strconv.IsPrint(r) || r == '"' {
			return strconv.QuoteToASCII(s)
		}
	}
	return s
}

// printable replaces what a terminal might obey by its Go escape.
func printable(s string) string {
	bad := func(r rune) bool { return r == utf8.RuneError || !strconv.IsPrint(r) }
	if strings.IndexFunc(s, bad) < 0 {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError:
			b.WriteString(`\x`)
			b.WriteString(strconv.FormatUint(uint64(s[i]), 16))
		case bad(r):
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// sortProblems orders by position, then code, then text, and drops what was said twice. A file may be named like a secret.
func sortProblems(ps []Problem) []Problem {
	for i := range ps {
		ps[i].Pos.File = redact(ps[i].Pos.File)
	}
	slices.SortFunc(ps, func(a, b Problem) int {
		return cmp.Or(comparePos(a.Pos, b.Pos), cmp.Compare(a.Severity, b.Severity),
			cmp.Compare(a.Code, b.Code), cmp.Compare(a.Text, b.Text))
	})
	return slices.Compact(ps)
}

func comparePos(a, b Pos) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
}
