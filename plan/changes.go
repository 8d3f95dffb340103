package plan

// FormatVersion is the version of the JSON that [Changes.JSON] writes. A reader ignores fields it does not know and
// refuses another major number.
const FormatVersion = "1.2"

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
	LostPaid string        `json:"lost_paid,omitempty"` // the same in money, with its unit
	After    []string      `json:"after,omitempty"`     // needed jobs that have not finished
	Cascade  []string      `json:"cascade,omitempty"`   // needed jobs whose own change makes this one other work
	On       []string      `json:"on,omitempty"`        // ladder
	FLOPs    float64       `json:"flops,omitempty"`     // of the whole run; 0: not stated
	Estimate *Estimate     `json:"estimate,omitempty"`  // of a job that starts or is replaced; absent where anything is unknown
	Cost     *Cost         `json:"cost,omitempty"`      // likewise
	Reason   string        `json:"reason,omitempty"`
	Rungs    []Rung        `json:"rungs,omitempty"` // of a launch that is due: where it would run now; Diff leaves it to the caller
	Next     string        `json:"next,omitempty"`  // what the next pass does about it and why; Diff leaves it to the caller
	Warnings []string      `json:"warnings,omitempty"`
	// Environment: what was measured otherwise than the job requires, where it would run or of what it starts from; Diff leaves it
	// to the caller.
	Environment []string `json:"environment,omitempty"`
}

// Rung is what one platform of a job's ladder says to a launch now. They stand in the order in which they are considered,
// down to the one that is chosen.
type Rung struct {
	Platform string  `json:"platform"`
	Chosen   bool    `json:"chosen,omitempty"`
	WaitS    float64 `json:"wait_s,omitempty"`   // seconds until it may take the job, as far as is known
	PerHour  float64 `json:"per_hour,omitempty"` // price of the launch, in Unit
	Unit     string  `json:"unit,omitempty"`     // "": the price is not known, or it is free
	Free     bool    `json:"free,omitempty"`     // it costs nothing
	AtMost   bool    `json:"at_most,omitempty"`  // PerHour is an upper bound
	Why      string  `json:"why"`
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

	Ending  int  `json:"ending"`  // attempts that run, or are on their way, and would be ended
	Drained int  `json:"drained"` // of Ending: after the next milestone
	Bill    Bill `json:"bill"`    // of what starts and is replaced
}

// Changes is desired against accepted and observed: what a pull request shows and what a reconciler works off.
// Renderings: [Changes.Text], [Changes.JSON], [Changes.Markdown].
type Changes struct {
	FormatVersion string    `json:"format_version"`
	Root          string    `json:"root,omitempty"`
	Commit        string    `json:"commit,omitempty"`      // that the plan was read from, full hash; "": it is not known, or files on disk
	Uncommitted   []string  `json:"uncommitted,omitempty"` // of Dirty: files that count and differ from the commit; the first ones
	Dirty         bool      `json:"dirty,omitempty"`       // it was read from files on disk that no commit holds as they are
	Base          string    `json:"base,omitempty"`        // commit of Accepted
	Alone         bool      `json:"alone,omitempty"`       // files against files: no store was asked, so nothing is known of what runs
	Sum           string    `json:"sum,omitempty"`         // of a saved plan: sha256 of the file, with zeros in place of this
	State         string    `json:"state"`                 // digest over the leases that the changes rest on, 16 hex digits
	Verdict       Verdict   `json:"verdict"`
	Errored       bool      `json:"errored"`            // the plan has errors: no stop may be derived from it
	Stale         []string  `json:"stale,omitempty"`    // of a saved plan: what has changed since
	Refusals      []Refusal `json:"refusals,omitempty"` // Diff leaves them to the caller
	Changes       []Change  `json:"changes"`            // sorted by job name
	Totals        Totals    `json:"totals"`
	Pending       *Pending  `json:"pending,omitempty"` // of [DiffOver]
	Drift         []Drift   `json:"drift,omitempty"`   // Diff leaves it to the caller; sorted
	Problems      []Problem `json:"problems,omitempty"`
}

// Any says whether there is anything to do. Moves and adoptions alone are nothing to do.
func (c *Changes) Any() bool {
	t := c.Totals
	return t.Start+t.Update+t.Replace+t.Stop+t.Remove > 0
}
