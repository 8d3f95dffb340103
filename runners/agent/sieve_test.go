package agent

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-run/headway/runners/record"
)

func stop(log string) record.Policy    { return record.Policy{Log: log, Then: record.ThenStop} }
func exclude(log string) record.Policy { return record.Policy{Log: log, Then: record.ThenExclude} }

func TestMustOccur(t *testing.T) {
	for pattern, want := range map[string]string{
		"CUDA out of memory": "CUDA out of memory", `CUDA( driver)? error: \w+ memory`: " error: ", "(?i)oom": "", "a|b": "", "x*": "",
		"(abc)+d": "abc", "(?:ab|cd)ECC": "ECC", `^\[rank\d+\]: NCCL`: "]: NCCL", "": "", "\xef\xbf\xbd": "",
	} {
		_, must, err := compile(stop(pattern))
		if pattern != "" && err != nil || string(must) != want {
			t.Errorf("%q: must have %q, want %q; %v", pattern, must, want, err)
		}
	}
}

func TestWhatCannotBeLookedForIsLeftOut(t *testing.T) {
	many := []record.Policy{stop("("), stop(strings.Repeat("x", maxPattern+1)), stop(""), {Log: "x", Then: "fix"}, stop("((a{100}){10}){10}"), stop("(a{100}){50}")}
	for range maxPolicies {
		many = append(many, exclude("y"))
	}
	s, bad := newSieve(many, func(record.Match) {})
	if len(bad) != 12 || len(s.rules) != maxPolicies-6 {
		t.Errorf("%d rules, left out: %q", len(s.rules), bad)
	}
}

// However output is cut, the first line that a policy names is found, and it is the one that looking at the whole finds.
func TestTheFirstLineIsFound(t *testing.T) {
	policies := []record.Policy{stop("ab+c"), exclude("ECC error"), stop("^x.*y$"), exclude("(?i)oom"), stop(" {3}")}
	words := rapid.SampledFrom([]string{"abbc", "ab", "c", "ECC", " error", "error", "x", "y", "OOM", "o", "  ", " ", "\n", "\r", "\r\n", "\xff", strings.Repeat("z", maxSieved-2)})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(words, 0, 40).Draw(t, "words"), "")
		var want *record.Match
		for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == '\r' }) {
			line = line[:min(len(line), maxSieved)]
			for _, p := range policies {
				if want == nil && regexp.MustCompile(p.Log).MatchString(line) {
					want = &record.Match{Policy: p, Line: lastLine(line)}
					want.Line = want.Line[:min(len(want.Line), 500)]
				}
			}
		}
		calls := 0
		s, _ := newSieve(policies, func(record.Match) { calls++ })
		for rest := []byte(text); len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
			_, _ = s.Write(rest[:n])
			rest = rest[n:]
		}
		if d := cmp.Diff(want, s.close()); d != "" {
			t.Fatal(d)
		}
		if want != nil && calls != 1 {
			t.Fatalf("told %d times", calls)
		}
	})
}

// Under a flood of lines for which there is no time the sieve keeps a bounded rest, and looks at the end of it.
func TestAFloodIsNotWaitedFor(t *testing.T) {
	s, _ := newSieve([]record.Policy{stop("(?i)out of memory")}, func(record.Match) {})
	s.looked, s.since = time.Hour, time.Now() // no time left
	chunk := []byte(strings.Repeat("Out Of Memory was the first line\n", 1) + strings.Repeat("step loss\n", 3000))
	for range 50 {
		_, _ = s.Write(chunk)
	}
	if s.hit != nil || len(s.late) > maxLate || cap(s.late) > 4*maxLate {
		t.Errorf("%v, %d bytes kept of %d", s.hit, len(s.late), cap(s.late))
	}
	_, _ = s.Write([]byte("CUDA out of memory\nbye"))
	if m := s.close(); m == nil || m.Line != "Out Of Memory was the first line" && m.Line != "CUDA out of memory" {
		t.Errorf("%+v", m)
	}
}

// The dearest policies that are obeyed hold one write no longer than the time that looking may take at once and one more
// look, and not the end of the program either. The clock is the test's: each look costs 30 ms of it.
func TestTheDearestPoliciesHoldNoWrite(t *testing.T) {
	const look = 30 * time.Millisecond
	var dear []record.Policy
	for i := range maxPolicies {
		dear = append(dear, stop(fmt.Sprintf("(x*y?){%d}[!-%c]$", 160, 'a'+i)))
	}
	s, bad := newSieve(dear, func(record.Match) {})
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	at := s.since
	s.now = func() time.Time { at = at.Add(look); return at }
	line := strings.Repeat("x", 40) + "\n"
	_, _ = s.Write([]byte(strings.Repeat(line, 64)))
	if most := lookBurst + at.Sub(s.since)/lookShare + look; s.looked > most || s.looked < lookBurst || len(s.late) == 0 {
		t.Errorf("looking took %v, at most %v was meant; %d bytes are left for the end", s.looked, most, len(s.late))
	}
	for range 20 { // nor do all the later ones
		_, _ = s.Write([]byte(strings.Repeat(line, 16)))
	}
	if most := lookBurst + at.Sub(s.since)/lookShare + look; s.looked > most {
		t.Errorf("looking took %v, at most %v was meant", s.looked, most)
	}
	_, _ = s.Write([]byte(strings.Repeat(line, maxLate/len(line))))
	_ = s.close()
	if took := s.looked - (lookBurst - lookLast); took > lookLast+at.Sub(s.since)/lookShare+look || took < lookLast {
		t.Errorf("looking in the end took %v", took)
	}
}

// BenchmarkSieve is what looking costs, beside the tail that every program's output goes through anyway: ratio of their
// times for the same output. A pattern that has no text which must occur is bounded by its share of the time instead.
func BenchmarkSieve(b *testing.B) {
	chunk := bytes.Repeat([]byte("step 1234 loss 0.123456 lr 0.001 tokens/s 123456\n"), 668)
	took := func(w interface{ Write([]byte) (int, error) }) time.Duration {
		began := time.Now()
		for range 2000 {
			_, _ = w.Write(chunk)
		}
		return time.Since(began)
	}
	for _, p := range []string{"CUDA out of memory", `NCCL (error|timeout)`, "(?i)out of memory"} {
		b.Run(fmt.Sprintf("%q", p), func(b *testing.B) {
			s, _ := newSieve([]record.Policy{stop(p)}, func(record.Match) {})
			var with time.Duration
			for b.Loop() {
				with += took(s)
			}
			mb := float64(b.N) * 2000 * float64(len(chunk)) / 1e6
			b.ReportMetric(mb/with.Seconds(), "MB/s")
			b.ReportMetric(s.looked.Seconds()/time.Since(s.since).Seconds()*100, "%looking")
		})
	}
}
