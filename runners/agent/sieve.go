package agent

import (
	"bytes"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/headway-run/headway/runners/agent/journal"
	"github.com/headway-run/headway/runners/record"
)

// Bounds of what is looked for in a program's output. The plan refuses what is beyond the first three; a claim that has
// it all the same is obeyed as far as that.
const (
	maxPolicies = 16
	maxPattern  = 512     // bytes of one expression
	maxProgram  = 1000    // instructions that it compiles to
	maxSieved   = 4 << 10 // bytes of a line that are looked at
	maxLate     = 64 << 10
)

// Looking may take so much of the time that passes, and so much at once: a program must not wait for its own output.
const (
	lookShare = 10 // one part in that many
	lookBurst = time.Second
	lookLast  = 10 * time.Second // at what was passed over, in the end
)

// sieve is an io.Writer that looks for the first line which a policy of the job names. It never keeps more than one line
// and the newest bytes that there was no time for; these are looked at in the end. A pattern with a text that must occur
// costs a search for that text, however much is printed; others are looked for as long as there is time.
type sieve struct {
	found func(record.Match) // called once

	mu     sync.Mutex
	rules  []pattern
	hit    *record.Match
	line   []byte // one that has not ended yet; its end is cut off
	late   []byte // the newest whole lines that were passed over
	looked time.Duration
	since  time.Time
	now    func() time.Time
}

type pattern struct {
	record.Policy
	re   *regexp.Regexp
	must []byte // occurs in whatever it matches; nil: nothing is known
}

// newSieve compiles the policies. bad names those that cannot be obeyed.
func newSieve(policies []record.Policy, found func(record.Match)) (s *sieve, bad []string) {
	s = &sieve{found: found, since: time.Now(), now: time.Now}
	for i, p := range policies {
		re, must, err := compile(p)
		if err == nil && i >= maxPolicies {
			err = fmt.Errorf("at most %d policies are looked for", maxPolicies)
		}
		if err != nil {
			bad = append(bad, fmt.Sprintf("policy %d (%.100q): %v", i+1, p.Log, err))
			continue
		}
		s.rules = append(s.rules, pattern{p, re, must})
	}
	return s, bad
}

func compile(p record.Policy) (*regexp.Regexp, []byte, error) {
	if p.Then != record.ThenStop && p.Then != record.ThenExclude {
		return nil, nil, fmt.Errorf("then %.40q, expected stop or exclude", p.Then)
	}
	if p.Log == "" || len(p.Log) > maxPattern {
		return nil, nil, fmt.Errorf("an expression of %d bytes, expected 1 to %d", len(p.Log), maxPattern)
	}
	tree, err := syntax.Parse(p.Log, syntax.Perl)
	if err != nil {
		return nil, nil, err
	}
	tree = tree.Simplify()
	prog, err := syntax.Compile(tree)
	if err != nil {
		return nil, nil, err
	}
	if len(prog.Inst) > maxProgram {
		return nil, nil, fmt.Errorf("an expression that compiles to %d instructions, at most %d are run", len(prog.Inst), maxProgram)
	}
	re, err := regexp.Compile(p.Log)
	return re, []byte(mustOccur(tree)), err
}

// mustOccur is the longest text that occurs in every match.
func mustOccur(t *syntax.Regexp) (best string) {
	switch t.Op {
	case syntax.OpLiteral:
		if text := string(t.Rune); t.Flags&syntax.FoldCase == 0 && !strings.ContainsRune(text, utf8.RuneError) {
			return text
		}
	case syntax.OpCapture, syntax.OpPlus, syntax.OpConcat:
		for _, sub := range t.Sub {
			if text := mustOccur(sub); len(text) > len(best) {
				best = text
			}
		}
	}
	return best
}

// Write looks at p. It never fails.
func (s *sieve) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rules) > 0 && s.hit == nil {
		s.take(p)
	}
	return len(p), nil
}

// close looks at what is left, and returns the first line that a policy names.
func (s *sieve) close() *record.Match {
	s.mu.Lock()
	defer s.mu.Unlock()
	if late := s.late; s.hit == nil && len(late) > 0 {
		s.late = nil
		s.allow(lookLast)
		s.block(late)
	}
	if s.hit == nil && len(s.line) > 0 {
		s.allow(lookBurst)
		s.block(s.line)
	}
	return s.hit
}

// allow grants so much time from now on, whatever was used.
func (s *sieve) allow(t time.Duration) { s.since, s.looked = s.now(), lookBurst-t }

// spent reports whether there is no time left for looking.
func (s *sieve) spent(now time.Time) bool { return s.looked > lookBurst+now.Sub(s.since)/lookShare }

// lastBreak is where the last line ends; -1: none does.
func lastBreak(b []byte) int {
	n := bytes.LastIndexByte(b, '\n') + 1
	return max(n-1, n+bytes.LastIndexByte(b[n:], '\r'))
}

// take looks at the lines that end in p and keeps the beginning of the one that does not.
func (s *sieve) take(p []byte) {
	if len(s.line) > 0 {
		n := bytes.IndexAny(p, "\r\n")
		if n < 0 {
			s.begin(p)
			return
		}
		s.begin(p[:n])
		s.block(s.line)
		s.line, p = s.line[:0], p[n+1:]
	}
	last := lastBreak(p)
	if last >= 0 && s.hit == nil {
		s.block(p[:last+1])
	}
	s.begin(p[last+1:])
}

// begin keeps more of the line that has not ended.
func (s *sieve) begin(p []byte) {
	s.line = append(s.line, p[:min(len(p), maxSieved-min(len(s.line), maxSieved))]...)
}

// block looks at whole lines. One line may take a second with all patterns, so the time is looked at between any two of them.
func (s *sieve) block(b []byte) {
	var may []pattern
	for _, r := range s.rules {
		if len(r.must) == 0 || bytes.Contains(b, r.must) {
			may = append(may, r)
		}
	}
	for len(may) > 0 && len(b) > 0 && s.hit == nil {
		line, rest := b, []byte(nil)
		if n := bytes.IndexAny(b, "\r\n"); n >= 0 {
			line, rest = b[:n], b[n+1:]
		}
		if !s.match(line[:min(len(line), maxSieved)], may) {
			s.pass(b)
			return
		}
		b = rest
	}
}

// pass keeps the newest of what there is no time for.
func (s *sieve) pass(b []byte) {
	s.late = append(s.late, b[max(0, len(b)-maxLate):]...)
	s.late = append(s.late, '\n')
	s.late = append(s.late[:0], s.late[max(0, len(s.late)-maxLate):]...)
}

// match looks at one line; false: there was no time for all of it.
func (s *sieve) match(line []byte, may []pattern) bool {
	began := s.now()
	for _, r := range may {
		if s.spent(began) {
			return false
		}
		hit := r.re.Match(line)
		now := s.now()
		s.looked, began = s.looked+now.Sub(began), now
		if hit {
			s.hit = &record.Match{Policy: r.Policy, Line: journal.Bound(lastLine(string(line)), 500)}
			s.found(*s.hit)
			return true
		}
	}
	return true
}
