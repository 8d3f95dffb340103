package runnertest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/headway-run/headway/runners"
)

// spoken are the classes that a platform's own words can have. What the others mean is found out by the dispatcher or the worker.
// A table of values.
var spoken = []runners.Class{runners.NoSlots, runners.QuotaExhausted, runners.Unreachable, runners.Rejected}

// strange is what no table knows: words of tomorrow, with what a terminal would obey, and far too many of them. A table of values.
var strange = []string{
	"Error 0x7E57: the flux manifold is out of phase",
	"\x1b[2J\x1b[31mflux\x07\r\nsecond line",
	"flux \xff\xfe " + strings.Repeat("phase ", 50_000),
	"{\"flux\":{\"code\":418}}",
}

// What a platform says is classed by its table, however it is spelt around the words that are known; what no table knows is a
// refusal with its raw text, bounded and harmless to print, and nothing is started by either.
func words(t *testing.T, s *suite) {
	if s.Says == nil {
		return
	}
	said := 0
	refused := func(text string, class runners.Class) (*runners.Failure, runners.Launched) {
		t.Helper()
		s.Says(text)
		said++
		out := s.d.Launch(t.Context(), s.Runner, []runners.Launch{s.launch(work(said), 1)})
		f, ok := errors.AsType[*runners.Failure](out[0].Err)
		if !ok || f.Class != class || f.Hint == "" {
			t.Fatalf("%.80q: %v, want %s and what to do", text, out[0].Err, class)
		}
		if r := out[0].Receipt; r == nil || r.OK || r.Class != string(class) || r.Text == "" {
			t.Errorf("%.80q: the receipt is %+v", text, r)
		}
		return f, out[0]
	}
	for _, c := range spoken {
		if !slices.ContainsFunc(s.Sentences, func(r runners.Sentence) bool { return r.Class == c }) {
			t.Errorf("no sentence of the table means %s", c)
		}
	}
	for _, row := range s.Sentences {
		if row.Words == "" || row.Words != strings.Join(strings.Fields(strings.ToLower(row.Words)), " ") || !slices.Contains(spoken, row.Class) {
			t.Errorf("%+v: want words in lower case with single spaces, and one of %v", row, spoken)
		}
		for _, text := range []string{row.Words, "\n HTTP 400: " + strings.ToUpper(strings.ReplaceAll(row.Words, " ", "  ")) + " (request 4711).\n"} {
			if f, _ := refused(text, row.Class); !strings.Contains(f.Raw, strings.TrimSpace(text)) {
				t.Errorf("%q is kept as %q", text, f.Raw)
			}
		}
	}
	for _, text := range strange {
		f, out := refused(text, runners.Rejected)
		if f.Raw == "" || !strings.HasPrefix(text, f.Raw[:4]) || len(f.Raw) > 8<<10 {
			t.Errorf("%.40q is kept as %.60q, %d bytes", text, f.Raw, len(f.Raw))
		}
		if told := out.Receipt.Text; strings.ContainsAny(told, "\x1b\a\r\n") || len(told) > 1<<10 || !strings.Contains(told, "flux") {
			t.Errorf("%.40q is told as %.200q", text, told)
		}
		if !strings.Contains(f.Hint, "not known") {
			t.Errorf("the advice does not say that nobody knows these words: %s", f.Hint)
		}
	}
	s.Says("")
	s.runs(t)
	s.start(t, s.Runner, s.launch(work(0), 1))
	s.runs(t, is(work(0), 1))
}
