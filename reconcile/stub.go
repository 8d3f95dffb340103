package reconcile

import (
	"context"
	"errors"

	"github.com/headway-run/headway/plan"
)

// World is what one look at the store showed.
type World struct {
	Requests int64 // store requests that the look cost
}

// Observe looks at works: one LIST of the leases, a GET for each that changed since the last look, and the newest
// dispatches and attempts of those that are neither running nor finished. It writes nothing. jobs may be nil; with
// them, a state also tells what the job's budget says (failed).
func (r *Reconciler) Observe(ctx context.Context, works []plan.Digest, jobs []plan.Job) (*World, error) {
	return nil, errors.New("not yet")
}

// Observed is the form that plan.Diff takes.
func (w *World) Observed() map[plan.Digest]plan.Observed { return nil }

// Accepted reads the plan that is in force for a root (plan.Config.Name); nil: none was accepted yet. It writes
// nothing.
func (r *Reconciler) Accepted(ctx context.Context, root string) (*plan.Accepted, error) {
	return nil, errors.New("not yet")
}

// Check says which guards refuse a commit, without writing anything: what `plan` shows and exits 3 for.
func (r *Reconciler) Check(ctx context.Context, d *Desired) ([]Refusal, error) {
	return nil, errors.New("not yet")
}

// Pass looks once at everything that the desired and the accepted plan name, and acts. The error is of the store or
// the context; then nothing was decided. What failed for single works is in the report.
func (r *Reconciler) Pass(ctx context.Context, d *Desired) (*Report, error) {
	return nil, errors.New("not yet")
}

// Explanation is everything the store says about why a work is where it is, in order.
type Explanation struct {
	Work  plan.Digest `json:"work"`
	Job   string      `json:"job,omitempty"`
	State string      `json:"state"`
	Now   Action      `json:"now"` // what a pass would decide
	Spent int         `json:"spent"`
	Limit int         `json:"limit"`
	Lines []Line      `json:"lines"`
}

// Line is one thing that happened: a claim with its reason, an answer, an attempt and its end, a release. Times are
// those that their writers wrote down, for people.
type Line struct {
	What     string `json:"what"` // claim, receipt, attempt, end, release, lease
	Dispatch int64  `json:"dispatch,omitempty"`
	Attempt  int64  `json:"attempt,omitempty"`
	Platform string `json:"platform,omitempty"`
	Class    string `json:"class,omitempty"`
	From     int64  `json:"from_step,omitempty"` // attempt: step it started from
	Kept     int64  `json:"kept_step,omitempty"` // attempt: step of its last acknowledged milestone
	Step     int64  `json:"step,omitempty"`      // attempt: last step by its own account
	Lost     int64  `json:"lost_steps,omitempty"`
	Spent    bool   `json:"spent,omitempty"`
	Time     string `json:"time,omitempty"`
	Text     string `json:"text"`
}

// Explain reads everything there is about one job's work. It writes nothing.
func (r *Reconciler) Explain(ctx context.Context, job *plan.Job) (*Explanation, error) {
	return nil, errors.New("not yet")
}
