package reconcile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/record"
)

// classRetryable is a worker's word: the program ended with an exit code that the job names as the machine's doing.
const classRetryable = "retryable"

// policies are a job's, as its worker takes them.
func policies(j *plan.Job) (out []record.Policy) {
	for _, p := range j.Policy {
		out = append(out, record.Policy{Log: p.Log, Then: p.Then})
	}
	return out
}

// matchOf is the policy that an attempt's output met, as its worker wrote it down; the zero Match: none.
func matchOf(e *record.End) record.Match {
	if e.Policy == nil {
		return record.Match{}
	}
	return record.Match{Policy: record.Policy{Log: shown(e.Policy.Log, plan.MaxPattern), Then: shown(e.Policy.Then, 20)}, Line: shown(e.Policy.Line, 500)}
}

// stopped says that a policy of the job ends it: the program failed, and its output had the line.
func stopped(h History) string {
	for _, a := range h.Attempts {
		if class := a.class(); !a.Live && a.Policy.Then == record.ThenStop && (ruleOf(class).Program || class == classRetryable) {
			return fmt.Sprintf("attempt %d failed and printed %q, at which the job stops (policy: %q)", a.N, a.Policy.Line, a.Policy.Log)
		}
	}
	return ""
}

// excluded are the platforms that the job's policies keep a work off, each with the reason. An attempt that hung or went
// silent behind the line counts as one that failed; one that was asked to leave, or did not fail, does not.
func excluded(h History) map[string]string {
	out := map[string]string{}
	for _, a := range h.Attempts {
		r := ruleOf(a.class())
		if a.Live || a.Policy.Then != record.ThenExclude || !r.Program && r.Spend != SpendBelow && r.Spend != SpendUnlessGained {
			continue
		}
		out[a.Platform] = fmt.Sprintf("attempt %d failed there and printed %q, which keeps this work off it (policy: %q)", a.N, a.Policy.Line, a.Policy.Log)
	}
	return out
}

// barred are the rungs with those refused that the work is kept off.
func barred(rungs []Rung, h History) []Rung {
	out := excluded(h)
	for i := range rungs {
		if why := out[rungs[i].Platform]; why != "" {
			rungs[i].Refused = why
		}
	}
	return rungs
}

// nowhere says that policies keep the work off every platform of its ladder.
func nowhere(ladder []string, h History) string {
	out := excluded(h)
	if len(out) == 0 || len(ladder) == 0 || slices.ContainsFunc(ladder, func(name string) bool { return out[name] == "" }) {
		return ""
	}
	why := make([]string, len(ladder))
	for i, name := range ladder {
		why[i] = name + ": " + out[name]
	}
	return "no platform of its ladder is left: " + strings.Join(why, "; ")
}

// alike is an error's text without its numbers: two failures of one cause differ in process ids, addresses and sizes.
func alike(text string) string {
	var b strings.Builder
	hex := false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c >= '0' && c <= '9' || hex && (c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'):
			if c == '0' && i+1 < len(text) && text[i+1] == 'x' {
				hex, i = true, i+1
			}
			if s := b.String(); !strings.HasSuffix(s, "#") {
				b.WriteByte('#')
			}
		case c == '.' && i > 0 && i+1 < len(text) && text[i-1] >= '0' && text[i-1] <= '9' && text[i+1] >= '0' && text[i+1] <= '9':
		default:
			hex = false
			b.WriteByte(c)
		}
	}
	return b.String()
}
