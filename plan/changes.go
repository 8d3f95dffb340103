package plan

// FormatVersion is the version of the JSON that [Changes.JSON] writes. A reader ignores fields it does not know and
// refuses another major number.
const FormatVersion = "1.0"

// Op says what one job's line of a diff means.
type Op string

const (
	OpCreate    Op = "create"    // + not accepted before, nothing of its work known
	OpUpdate    Op = "update"    // ~ placement or metadata changed: what runs is not disturbed
	OpReplace   Op = "replace"   // ± an identity field changed: other work
	OpRemove    Op = "remove"    // - left the plan
	OpAdopt     Op = "adopt"     // = finished, running or accepted work that the plan names (again), or under another name
	OpRefused   Op = "refused"   // ! its file or its entry has an error: it stays as it was
	OpWaiting   Op = "waiting"   // … wanted, but something must come first
	OpUnchanged Op = "unchanged" //
)

// Symbol is the sign that people see.
func (o Op) Symbol() string {
	switch o {
	case OpCreate:
		return "+"
	case OpUpdate:
		return "~"
	case OpReplace:
		return "±"
	case OpRemove:
		return "-"
	case OpAdopt:
		return "="
	case OpRefused:
		return "!"
	case OpWaiting:
		return "…"
	}
	return " "
}

// FieldChange is one field that differs. Old or New is empty where the field was not set. Values are canonical JSON.
type FieldChange struct {
	Field string `json:"field"` // path: "params.lr", "limits.wall", "needs.digits"
	Sort  Sort   `json:"sort"`
	Old   string `json:"old,omitempty"`
	New   string `json:"new,omitempty"`
	// Derived says that the change follows from others of the same job: a command whose words changed with a parameter.
	// Text and Markdown leave it out.
	Derived bool `json:"derived,omitempty"`
}

// Change is one job's line of a diff.
type Change struct {
	Op       Op            `json:"op"`
	Job      string        `json:"job"`
	Previous string        `json:"previous_job,omitempty"` // the name that this work had: it was moved
	Group    string        `json:"group,omitempty"`
	Pos      Pos           `json:"pos,omitzero"`
	OldWork  Digest        `json:"old_work,omitempty"`
	NewWork  Digest        `json:"new_work,omitempty"`
	Fields   []FieldChange `json:"fields,omitempty"`
	Now      *Observed     `json:"now,omitempty"`       // of NewWork, if anything is known of it
	Leaving  *Observed     `json:"leaving,omitempty"`   // of OldWork, when no job of the plan names it any more
	OnDelete OnDelete      `json:"on_delete,omitempty"` // how OldWork stops
	Lost     float64       `json:"lost_gpu_hours,omitempty"`
	After    []string      `json:"after,omitempty"`    // needed jobs that have not finished
	Cascade  []string      `json:"cascade,omitempty"`  // needed jobs whose own change makes this one other work
	On       []string      `json:"on,omitempty"`       // ladder
	FLOPs    float64       `json:"flops,omitempty"`    // of the whole run; 0: not stated
	Estimate *Estimate     `json:"estimate,omitempty"` // of a job that starts or is replaced; absent where anything is unknown
	Reason   string        `json:"reason,omitempty"`
	Next     string        `json:"next,omitempty"` // what the next pass does about it and why; Diff leaves it to the caller
	Warnings []string      `json:"warnings,omitempty"`
}

// Totals counts the changes. Every change is in exactly one of the first nine, except that an adoption whose name lets
// go of live work (a revert while the reverted work runs) counts in Stop as well.
type Totals struct {
	Start     int `json:"start"`     // create
	Update    int `json:"update"`    // in place
	Replace   int `json:"replace"`   //
	Stop      int `json:"stop"`      // remove, of live work
	Remove    int `json:"remove"`    // remove, of work that does not run
	Adopt     int `json:"adopt"`     // moves included
	Refused   int `json:"refused"`   //
	Waiting   int `json:"waiting"`   //
	Unchanged int `json:"unchanged"` //

	Moved   int     `json:"moved"`   // of Adopt: same work, other name
	Live    int     `json:"live"`    // accepted works that are live now
	Leaving int     `json:"leaving"` // of Live: works that no job of the plan names: what guard.prune limits
	Lost    float64 `json:"lost_gpu_hours"`
}

// Changes is desired against accepted and observed: what a pull request shows and what a reconciler works off.
// Renderings: [Changes.Text], [Changes.JSON], [Changes.Markdown].
type Changes struct {
	FormatVersion string    `json:"format_version"`
	Root          string    `json:"root,omitempty"`
	Base          string    `json:"base,omitempty"` // commit of Accepted
	Errored       bool      `json:"errored"`        // the plan has errors: no stop may be derived from it
	Changes       []Change  `json:"changes"`        // sorted by job name
	Totals        Totals    `json:"totals"`
	Problems      []Problem `json:"problems,omitempty"`
}

// Any says whether there is anything to do. Moves and adoptions alone are nothing to do.
func (c *Changes) Any() bool {
	t := c.Totals
	return t.Start+t.Update+t.Replace+t.Stop+t.Remove > 0
}
