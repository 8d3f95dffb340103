package reconcile

import (
	"strings"
	"testing"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/witness"
)

// A person who cancels what has failed for good is not told that it will be launched again.
func TestAFailedJobThatIsCancelledIsNotLaunchedAgain(t *testing.T) {
	a := Attempt{N: 1, End: "user_code", Step: 14, Error: "boom"}
	b := a
	b.N = 2
	rec := &witness.Record{State: witness.Revoked, Attempt: 2, Dispatch: 2, Reason: "cancelled by an operator"}
	for _, c := range []struct {
		attempts []Attempt
		want     string
	}{{[]Attempt{a}, "it is launched again as soon as it may be"}, {[]Attempt{a, b}, "it is not launched again"}} {
		list := driftOf(&target{wish: Wanted, asked: asked{job: &plan.Job{}}}, &sight{record: rec, history: History{Attempts: c.attempts}}, 0)
		if len(list) != 1 || !strings.Contains(list[0].Then, c.want) {
			t.Errorf("after %d attempts: %v", len(c.attempts), list)
		}
	}
}

// A program that a signal ended, as the kernel does when memory is short, leaves no last line that says so: what people
// read of it names the signal or the exit code, and the program's own line once.
func TestAnEndIsToldWithItsSignal(t *testing.T) {
	const line = "resumed at 10"
	for _, c := range []struct{ name, text, line, want string }{
		{"a signal", "the program was ended by signal 9 (killed): " + line, line, "the program was ended by signal 9 (killed): resumed at 10"},
		{"an exit code", "the program exited with code 1: boom at 15", "boom at 15", "the program exited with code 1: boom at 15"},
		{"a sentence that quotes nothing", "the program ended without a result", "metrics.json has no loss", "metrics.json has no loss"},
		{"an older worker", "", line, line},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := Attempt{N: 1, End: "user_code", Step: 14, Text: c.text, Error: c.line}
			b := a
			b.N = 2
			if got := repeated(History{Attempts: []Attempt{a, b}}); !strings.HasSuffix(got, "(user_code: "+c.want+")") {
				t.Errorf("the job failed: %s", got)
			}
			if l := attemptLine(Line{}, a, Charge{}, &sight{}); l.Error != c.want {
				t.Errorf("explain: %s", l.Error)
			}
		})
	}
	if l := attemptLine(Line{}, Attempt{N: 1, End: "yielded", Text: "a notice"}, Charge{}, &sight{}); l.Error != "" {
		t.Errorf("an end without an error has one: %s", l.Error)
	}
}
