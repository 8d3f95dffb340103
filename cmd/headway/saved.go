package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners"
)

// A saved plan is the document of `plan --json`. It orders nothing: apply reads the commit again, works out afresh what it
// would do, and refuses where that is not the same.

// save writes a plan to a file, whole or not at all.
func save(e env, d *plan.Changes, file string) error {
	if d.Dirty {
		which := ""
		if len(d.Uncommitted) > 0 {
			which = ": " + clean(runners.Bound(strings.Join(d.Uncommitted, ", "), 300))
		}
		return &exit{code: exitError, err: fmt.Errorf("a saved plan is of a commit, and the files on disk are not committed%s", which), hint: "commit them, or name a commit: --at HEAD"}
	}
	sealed := *d
	sealed.Sum = unsealed
	b, err := sealed.JSON()
	if err != nil {
		return err
	}
	text := e.hidden.known(string(b))
	text = strings.Replace(text, unsealed, sealOf(text), 1)
	file = within(e, file)
	part, err := os.CreateTemp(filepath.Dir(file), ".headway-plan-*")
	if err != nil {
		return err
	}
	defer os.Remove(part.Name()) // it is gone where all went well
	_, err = io.WriteString(part, text)
	if cerr := part.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Chmod(part.Name(), 0o644)
	}
	if err != nil {
		return err
	}
	return os.Rename(part.Name(), file)
}

// unsealed stands in a plan's sum while its digest is taken.
const unsealed = "0000000000000000000000000000000000000000000000000000000000000000"

func sealOf(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// sealed says whether a file is what was saved, byte for byte: one that was edited shows what nobody worked out.
func sealed(b []byte, sum string) bool {
	return len(sum) == len(unsealed) && sealOf(strings.Replace(string(b), sum, unsealed, 1)) == sum
}

// within is a file that a flag names, seen from the working folder of the verb.
func within(e env, file string) string {
	if filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(e.dir, file)
}

// readSaved reads a plan that was saved.
func readSaved(e env, file string) (*plan.Changes, error) {
	f, err := os.Open(within(e, file))
	if err == nil {
		var info os.FileInfo
		if info, err = f.Stat(); err == nil && info.IsDir() {
			_ = f.Close()
			err = fmt.Errorf("%s is a folder", file)
		}
	}
	if err != nil {
		return nil, &exit{code: exitError, err: err, hint: "FILE is a plan that headway plan --out FILE saved; headway launch JOB launches one job alone"}
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, plan.MaxChanges+1))
	if err != nil {
		return nil, err
	}
	d, err := plan.DecodeChanges(b)
	switch {
	case err != nil:
	case !sealed(b, d.Sum):
		err = fmt.Errorf("it was changed since it was saved, or an older version saved it")
	case d.Dirty || d.Commit == "":
		err = fmt.Errorf("it is of files on disk, not of a commit")
	case d.Pending != nil:
		err = fmt.Errorf("it is what a commit adds to %s, not what apply would do", clean(d.Pending.Ref))
	}
	if err != nil {
		return nil, &exit{code: exitError, err: fmt.Errorf("%s is not a plan that headway plan --out saved: %w", file, err), hint: "save it anew: headway plan --out FILE"}
	}
	d.Sum = "" // of the file, not of what is shown of it
	return d, nil
}

// saved shows a plan that was saved. One that does not hold any more is shown all the same, and says so: only apply refuses.
func (v *planning) saved(ctx context.Context, e env) error {
	d, err := readSaved(e, v.showFile)
	if err != nil {
		return err
	}
	if now, err := readAgain(ctx, e, d); err != nil {
		d.Stale = []string{"it could not be held against what is now: " + clean(err.Error())}
	} else if d.Base != d.Commit && now.Base == d.Commit {
		d.Stale = []string{fmt.Sprintf("it was applied: commit %.12s is in force", d.Commit)}
	} else {
		d.Stale = since(d, now)
	}
	if err := v.show(e, d); err != nil {
		return err
	}
	return exitOf(d)
}

// readAgain works out afresh what the commit of a saved plan would do.
func readAgain(ctx context.Context, e env, d *plan.Changes) (*plan.Changes, error) {
	p, err := readProject(ctx, e, d.Commit)
	if err != nil {
		return nil, err
	}
	p.hide()
	return p.diff(ctx, "")
}

// stale refuses a saved plan that is not what would be done now.
func stale(d, now *plan.Changes) error {
	if now.Base == d.Commit {
		return applied(d.Commit)
	}
	if diff := since(d, now); len(diff) > 0 {
		return &exit{code: exitStale, err: fmt.Errorf("the saved plan is stale: %s", runners.Bound(strings.Join(diff, "; "), 1000)),
			hint: "look at the plan again and save it anew: headway plan --out FILE"}
	}
	return nil
}

// codeAlreadyApplied names the refusal of a saved plan that was applied before.
const codeAlreadyApplied = "PlanAlreadyApplied"

func applied(commit string) error {
	return &exit{code: exitStale, err: fmt.Errorf("%s: the saved plan was applied already: commit %.12s is in force", codeAlreadyApplied, commit),
		hint: "headway apply goes on with what is in force"}
}

// line is one job that something would happen to, and the lease that it would end.
type line struct {
	op       plan.Op
	job      string
	old, new plan.Digest
}

func (l line) String() string { return strings.TrimSpace(l.op.Symbol() + " " + clean(l.job)) }

// lines takes what would be done out of a diff, with the lease that each would end; what only waits or goes on is left out,
// since it changes by itself.
func lines(c *plan.Changes) (order []line, ends map[line]string) {
	ends = map[line]string{}
	for i := range c.Changes {
		switch ch := &c.Changes[i]; {
		case ch.Op == plan.OpCreate, ch.Op == plan.OpUpdate, ch.Op == plan.OpReplace, ch.Op == plan.OpRemove, ch.Leaving != nil:
			l := line{ch.Op, ch.Job, ch.OldWork, ch.NewWork}
			order, ends[l] = append(order, l), ""
			if o := ch.Leaving; o != nil {
				ends[l] = fmt.Sprintf("%s, attempt %d of dispatch %d", clean(o.State), o.Attempt, o.Dispatch)
			}
		}
	}
	return order, ends
}

// since says in what a saved plan differs from what would be done now.
func since(d, now *plan.Changes) (diff []string) {
	if d.Base != now.Base {
		diff = append(diff, fmt.Sprintf("commit %.12s is in force now, it was %.12s", orNothing(now.Base), orNothing(d.Base)))
	}
	before, was := lines(d)
	after, is := lines(now)
	for _, l := range after {
		held, known := was[l]
		switch {
		case !known:
			diff = append(diff, "it would now "+l.String())
		case held != is[l]:
			diff = append(diff, fmt.Sprintf("what leaves with %s is %s now, it was %s", clean(l.job), orNothing(is[l]), orNothing(held)))
		}
	}
	for _, l := range before {
		if _, still := is[l]; !still {
			diff = append(diff, "it would no longer "+l.String())
		}
	}
	return diff
}

func orNothing(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
