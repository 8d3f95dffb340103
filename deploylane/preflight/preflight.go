// Package preflight checks a target before anything is sent to it: small checks with stable ids, each of a class of
// drift (what was true when it was written down and is not any more), cheap ones first, every failure at once. What
// could not be looked at is unknown and blocks, unless a person takes it upon themselves by name. The checks of a
// generic target are here; those of a serving ring are in deploylane/ring, in the same terms. docs/preflight.md
// describes the report.
package preflight

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// Class is what kind of drift a check is against.
type Class string

// The classes. The first seven are drifts of what was written down; the last three are of what a success claims.
const (
	Addressee Class = "A" // what is sent to something is sent to something that is there
	Equal     Class = "B" // numbers that must be equal are one number
	Derived   Class = "C" // a figure is derived from its inputs, never remembered
	FromPeer  Class = "D" // an address is tried from where it will be called, and answers as itself
	Required  Class = "E" // a needed feature is a fact to verify, not an option to set
	Inventory Class = "F" // a name comes from the target's own list
	Release   Class = "G" // what works together is one release
	Twice     Class = "H" // one success proves nothing
	Service   Class = "I" // healthy is not serving
	Claimed   Class = "J" // nothing is claimed before it is true
)

// Cost is what a check takes, so that cheap ones come first.
type Cost int

const (
	Free    Cost = iota // reads what is here already
	Network             // asks over the network
	Process             // starts a process, here or on the target
)

// String is the cost's name in a report.
func (c Cost) String() string {
	names := [...]string{"free", "network", "process"}
	if c < 0 || int(c) >= len(names) {
		return fmt.Sprintf("cost %d", int(c))
	}
	return names[c]
}

// MarshalText makes a report readable.
func (c Cost) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads a report back.
func (c *Cost) UnmarshalText(b []byte) error {
	for k := Free; k <= Process; k++ {
		if k.String() == string(b) {
			*c = k
			return nil
		}
	}
	return fmt.Errorf("cost %q: expected free, network or process", b)
}

// Verdict of a finding.
type Verdict string

const (
	OK      Verdict = "ok"
	Refused Verdict = "refused"
	Unknown Verdict = "unknown" // could not be looked at: blocks as a refusal does
)

// Finding is what one check says of one subject.
type Finding struct {
	Rule      string    `json:"rule"` // the check's stable id
	Class     Class     `json:"class"`
	Subject   string    `json:"subject"`
	Verdict   Verdict   `json:"verdict"`
	Found     string    `json:"found"` // may quote a target: bounded and escaped by whoever prints it
	Expected  string    `json:"expected,omitempty"`
	Fix       string    `json:"fix,omitempty"`
	CheckedAt time.Time `json:"checked_at"`
	Cost      Cost      `json:"cost"`
	Override  *Override `json:"override,omitempty"`
}

// Blocks says that nothing may be sent while this stands.
func (f Finding) Blocks() bool {
	return f.Verdict != OK && (f.Verdict != Unknown || f.Override == nil)
}

// String is the one sentence that people see.
func (f Finding) String() string {
	s := fmt.Sprintf("%s %s %s: %s", f.Verdict, f.Rule, f.Subject, f.Found)
	if f.Expected != "" {
		s += ": expected " + f.Expected
	}
	if f.Fix != "" {
		s += "; " + f.Fix
	}
	if f.Override != nil {
		s += fmt.Sprintf(" (%s goes on without knowing: %s)", f.Override.By, f.Override.Reason)
	}
	return s
}

// Override is a person who goes on although something is unknown. A refusal has no override: mend what was found.
type Override struct {
	Rule    string `json:"rule"`
	Subject string `json:"subject"`
	By      string `json:"by"`
	Reason  string `json:"reason"`
}

// Check is one thing to look at. Run gives at least one finding, one for each subject, with rule, class, cost and time
// left to [Run]; a check that finds nothing to look at says so, as ok or as unknown.
type Check struct {
	ID    string
	Class Class
	Cost  Cost
	Run   func(ctx context.Context) []Finding
}

// Report is everything that was found. Schema 1.
type Report struct {
	Schema    int       `json:"schema"`
	Target    string    `json:"target"`
	Blocked   bool      `json:"blocked"`
	Findings  []Finding `json:"findings"`
	CheckedAt time.Time `json:"checked_at"`
}

// Blocking lists what stands in the way.
func (r *Report) Blocking() []Finding {
	var out []Finding
	for _, f := range r.Findings {
		if f.Blocks() {
			out = append(out, f)
		}
	}
	return out
}

// Run runs every check, the cheap ones first, and goes on after a failure: a person mends all of them in one go. A
// check that says nothing, or a context that ends, is unknown. An override that fits no unknown finding is unknown
// itself: it was given for something that nobody sees any more.
func Run(ctx context.Context, target string, checks []Check, overrides []Override) Report {
	checks = slices.Clone(checks)
	slices.SortStableFunc(checks, func(a, b Check) int { return cmp.Compare(a.Cost, b.Cost) })
	r := Report{Schema: 1, Target: target, CheckedAt: time.Now().UTC()}
	used := make([]bool, len(overrides))
	for _, c := range checks {
		var found []Finding
		if err := ctx.Err(); err == nil {
			found = c.Run(ctx)
		}
		if len(found) == 0 {
			found = []Finding{{Subject: target, Verdict: Unknown, Found: "nothing was looked at", Expected: "an answer", Fix: "look again with more time"}}
		}
		for _, f := range found {
			f.Rule, f.Class, f.Cost, f.CheckedAt = c.ID, c.Class, c.Cost, time.Now().UTC()
			if f.Verdict != OK && f.Verdict != Refused {
				f.Verdict = Unknown
			}
			for i, o := range overrides {
				if f.Verdict == Unknown && o.Rule == f.Rule && o.Subject == f.Subject && o.By != "" && o.Reason != "" {
					f.Override, used[i] = &overrides[i], true
				}
			}
			r.Findings = append(r.Findings, f)
		}
	}
	for i, o := range overrides {
		if !used[i] {
			r.Findings = append(r.Findings, Finding{Rule: o.Rule, Subject: o.Subject, Verdict: Unknown, CheckedAt: time.Now().UTC(),
				Found: fmt.Sprintf("an override by %q fits nothing that is unknown", o.By), Expected: "a rule and a subject that are unknown, a name and a reason", Fix: "take the override away, or mend what is refused"})
		}
	}
	for _, f := range r.Findings {
		r.Blocked = r.Blocked || f.Blocks()
	}
	return r
}
