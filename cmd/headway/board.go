package main

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/reconcile/repo"
)

// settings is a tree without its plan files: what is read of it is headway.yaml.
type settings struct{ plan.Tree }

func (s settings) Entries(dir string) ([]plan.Entry, error) {
	all, err := s.Tree.Entries(dir)
	if dir != "" && dir != "." {
		return nil, err
	}
	for _, e := range all {
		if e.Name == plan.ConfigFile {
			return []plan.Entry{e}, err
		}
	}
	return nil, err
}

// briefly is how much garbage may pile up in a process that shows ten thousand rows and ends, in percent: less of its time is
// spent on collecting it.
const briefly = 400

// fromBoard is the status of a large plan, or of its jobs of one name, as a dispatcher left it in the store; nil: there is
// none, or it can't tell, and the records have to be read. It reads headway.yaml and no plan.
func fromBoard(ctx context.Context, e env, names []string) (*statusDoc, error) {
	if e.getenv("GOGC") == "" {
		debug.SetGCPercent(briefly)
	}
	root, err := findRoot(e)
	if err != nil {
		return nil, err
	}
	tree, err := repo.Folder(root)
	if err != nil {
		return nil, nil // said by whoever reads the plan
	}
	defer tree.Close()
	p := &project{env: e, root: root, commit: workTreeName}
	p.plan, _ = plan.Load(settings{tree})
	if p.unusable() != nil {
		return nil, nil
	}
	b, _, err := p.openStore(ctx, false)
	if err != nil {
		return nil, nil
	}
	var wanted func(*reconcile.BoardRow) bool
	if len(names) > 0 {
		wanted = func(r *reconcile.BoardRow) bool { return r.Job == names[0] || r.Group == names[0] }
	}
	board, requests, err := reconcile.ReadBoard(ctx, b, p.plan.Config.Name, wanted)
	if errors.Is(err, reconcile.ErrNoBoard) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if len(names) > 0 && len(board.Rows) == 0 {
		return nil, nil
	}
	doc := &statusDoc{FormatVersion: "1.0", Commit: board.Commit, AsOfS: board.AsOf.Seconds(), Requests: requests, Platforms: p.platformRows(board.Platforms), Drift: board.Drift, wrong: board.Wrong}
	doc.Jobs = make([]statusRow, 0, len(board.Rows))
	for i := range board.Rows {
		r := &board.Rows[i]
		row := statusRow{Job: r.Job, Group: r.Group, Work: string(r.Work), State: r.State, Attempt: r.Attempt, Dispatch: r.Dispatch, Platform: r.Platform,
			Step: r.Step, Steps: r.Steps, Milestone: r.Milestone, MilestoneStep: r.MilestoneStep, AgeS: r.Age.Seconds(), Reason: r.Reason}
		if row.Group == "" {
			row.Group = r.Job
		}
		if row.Attempt == 0 {
			row.AgeS = 0
		}
		doc.Jobs = append(doc.Jobs, row)
	}
	return doc, nil
}

// driftAmong is the drift of the jobs of one name.
func driftAmong(doc *statusDoc, name string) []plan.Drift {
	works := map[plan.Digest]bool{}
	for _, r := range only(doc.Jobs, name) {
		works[plan.Digest(r.Work)] = true
	}
	return slices.DeleteFunc(doc.Drift, func(d plan.Drift) bool { return !works[d.Work] })
}
