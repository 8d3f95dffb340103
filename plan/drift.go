package plan

import (
	"fmt"
	"strings"
)

// Kinds of [Drift].
const (
	DriftEnded    = "ended"    // somebody took the lease of wanted work away, outside the plan
	DriftTerms    = "terms"    // an attempt runs by what the plan said when it was launched
	DriftPlatform = "platform" // it runs where its ladder does not lead any more
	DriftUnnamed  = "unnamed"  // it runs, and no job of the plan names it
	DriftOrphan   = "orphan"   // a platform runs it for us, and nothing in the store explains it
)

// Drift is one thing that is otherwise than the accepted plan says. No commit asks for it, so it is told apart from changes,
// and it is no reason for one. Texts are made safe to print by whoever prints them.
type Drift struct {
	Kind string `json:"kind"`          // one of the constants above; more may come
	Job  string `json:"job,omitempty"` // absent where it is not known
	Work Digest `json:"work"`
	Text string `json:"text"` // one clause
	Then string `json:"then"` // what comes of it by itself, or what to do
}

// String is one line.
func (d Drift) String() string {
	name := d.Job
	if name == "" {
		name = d.Work.Short()
	}
	return line(name + ": " + d.Text + "; " + d.Then)
}

const driftTitle = "Drift (what is otherwise than the accepted plan says, apart from this change):"

// drifts is the block that Text prints of it.
func (c *Changes) drifts(b *strings.Builder) {
	if len(c.Drift) == 0 {
		return
	}
	b.WriteString(driftTitle + "\n")
	for _, d := range c.Drift {
		fmt.Fprintf(b, "    %s\n", d)
	}
	b.WriteByte('\n')
}
