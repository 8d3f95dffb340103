package plan

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// Bounds that are checked on the bytes, before the parser allocates anything for them. They are crude on purpose: a
// file that comes near them is no plan.
const (
	maxOpenBrackets = 8 * MaxDepth // opening brackets not closed yet, wherever they stand
	maxIndicators   = 2 * MaxDepth // "- - - -" in one line
	maxSeparators   = 50_000       // commas, colons, brackets and line ends: a bound on the number of nodes
)

// Bounds on what is reported.
const (
	maxProblems    = 1000   // of one file, on its own
	maxAllProblems = 20_000 // of what only all files together show
)

// problems collects what is wrong.
type problems struct {
	list   []Problem
	errors int
	most   int // errors that are kept; 0: maxProblems
}

func (ps *problems) bad() bool { return ps.errors > 0 }

func (ps *problems) refuse(pos Pos, code, text, expected, hint string) {
	ps.add(Problem{Pos: pos, Severity: Error, Code: code, Text: text, Expected: expected, Hint: hint})
}

func (ps *problems) warn(pos Pos, code, text, hint string) {
	ps.add(Problem{Pos: pos, Severity: Warning, Code: code, Text: text, Hint: hint})
}

func (ps *problems) add(p Problem) {
	if p.Severity == Error {
		ps.errors++
	}
	most := ps.most
	if most == 0 {
		most = maxProblems
	}
	if ps.errors > most {
		if ps.errors == most+1 {
			p.Code, p.Text, p.Expected, p.Hint = "TooManyProblems", "more problems than are shown", "", "mend the first ones and look again"
			ps.list = append(ps.list, p)
		}
		return
	}
	p.Text, p.Expected, p.Hint = redact(p.Text), redact(p.Expected), redact(p.Hint)
	ps.list = append(ps.list, p)
}

// checkBytes refuses what is not a small UTF-8 text of reasonable shape, and returns the text without its byte order
// mark.
func (ps *problems) checkBytes(file string, data []byte) []byte {
	pos := Pos{File: file, Line: 1, Col: 1}
	switch enc := encoding(data); {
	case enc == "UTF-8 with BOM":
		ps.warn(pos, "BOM", "the file starts with a byte order mark", "save it as UTF-8 without BOM")
		data = data[3:]
	case enc != "":
		ps.refuse(pos, "Encoding", "the file is "+enc, "UTF-8", "save it as UTF-8")
		return nil
	}
	if isLFSPointer(data) {
		ps.refuse(pos, "LFSPointer", "the file is a Git LFS pointer, its content is not in this repository", "the file itself", "take plan files out of LFS (git lfs untrack)")
		return nil
	}
	s := byteScan{ps: ps, pos: pos}
	s.run(data)
	return data
}

// encoding names an encoding that is not plain UTF-8, or "".
func encoding(b []byte) string {
	has := func(p string) bool { return bytes.HasPrefix(b, []byte(p)) }
	switch {
	case has("\xef\xbb\xbf"):
		return "UTF-8 with BOM"
	case has("\xff\xfe\x00\x00"), has("\x00\x00\xfe\xff"):
		return "UTF-32"
	case has("\xff\xfe"), has("\xfe\xff"):
		return "UTF-16"
	case len(b) >= 4 && b[1] == 0 && b[3] == 0 && b[0] != 0:
		return "UTF-16 (little endian, without BOM)"
	case len(b) >= 4 && b[0] == 0 && b[2] == 0 && b[1] != 0:
		return "UTF-16 (big endian, without BOM)"
	}
	return ""
}

// isLFSPointer recognises what Git LFS leaves in place of a file.
func isLFSPointer(b []byte) bool {
	return len(b) < 1024 && bytes.HasPrefix(b, []byte("version https://git-lfs.github.com/spec/"))
}

// byteScan goes over the bytes once, keeping the position.
type byteScan struct {
	ps                     *problems
	pos                    Pos
	open, separators, dash int
	tab, ctrl              bool
}

func (s *byteScan) run(data []byte) {
	for i := 0; i < len(data); {
		c := data[i]
		size := 1
		switch {
		case c >= utf8.RuneSelf:
			r, n := utf8.DecodeRune(data[i:])
			if r == utf8.RuneError && n == 1 {
				s.ps.refuse(s.pos, "Encoding", fmt.Sprintf("byte 0x%02x is not UTF-8", c), "UTF-8", "save the file as UTF-8")
				return
			}
			if size = n; r >= 0x80 && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0xfeff {
				s.control(r)
			}
			s.dash = 0
		case c == '\n':
			s.separators, s.dash = s.separators+1, 0
			s.pos.Line++
			s.pos.Col = 0
		default:
			if !s.ascii(data, i) {
				return
			}
		}
		s.pos.Col++
		i += size
	}
	if s.separators > maxSeparators {
		s.ps.refuse(Pos{File: s.pos.File}, "TooManyNodes", fmt.Sprintf("more than %d keys and values", maxSeparators), "a smaller file", "split it")
	}
}

// ascii looks at one byte and says whether to go on.
func (s *byteScan) ascii(data []byte, i int) bool {
	c := data[i]
	if c == '-' || c == '?' {
		if i+1 < len(data) && data[i+1] == ' ' {
			s.dash++
		}
	} else if c != ' ' {
		s.dash = 0
	}
	switch c {
	case ',', ':':
		s.separators++
	case '[', '{':
		s.separators++
		s.open++
	case ']', '}':
		s.open--
	case '\t':
		if !s.tab {
			s.ps.refuse(s.pos, "Tab", "a tab", "spaces", "use spaces; in a quoted value write \\t")
		}
		s.tab = true
	case 0:
		s.ps.refuse(s.pos, "Encoding", "a NUL byte: the file is binary or UTF-16", "UTF-8", "save the file as UTF-8")
		return false
	case '\r':
		if i+1 < len(data) && data[i+1] != '\n' {
			s.control(rune(c))
		}
	case 0x7f:
		s.control(rune(c))
	default:
		if c < ' ' {
			s.control(rune(c))
		}
	}
	if s.open > maxOpenBrackets || s.dash > maxIndicators {
		s.ps.refuse(s.pos, "TooDeep", fmt.Sprintf("more than %d levels of nesting", MaxDepth), "a flatter file", "")
		return false
	}
	return true
}

func (s *byteScan) control(r rune) {
	if !s.ctrl {
		s.ps.refuse(s.pos, "ControlCharacter", fmt.Sprintf("control character U+%04X", r), "printable text", "delete it; in a double-quoted value write it as an escape")
	}
	s.ctrl = true
}
