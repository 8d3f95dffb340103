package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners"
)

// saved is what `plan --out` writes and `apply FILE` reads: a commit, what was in force, and what the commit would do. It
// orders nothing: apply reads the commit again, works out afresh what it would do, and refuses where that is not the same.
type saved struct {
	FormatVersion string      `json:"format_version"`
	Commit        string      `json:"commit"`
	Base          string      `json:"base"` // accepted commit; empty: none
	Changes       []savedLine `json:"changes"`
}

// savedLine is one job that something would happen to.
type savedLine struct {
	Op      plan.Op     `json:"op"`
	Job     string      `json:"job"`
	OldWork plan.Digest `json:"old_work"`
	NewWork plan.Digest `json:"new_work"`
}

func (l savedLine) String() string { return strings.TrimSpace(l.Op.Symbol() + " " + l.Job) }

const maxSaved = 64 << 20

// savedOf takes what would be done out of a diff; what only waits or goes on is left out, since it changes by itself.
func savedOf(commit string, c *plan.Changes) saved {
	s := saved{FormatVersion: "1.0", Commit: commit, Base: c.Base, Changes: []savedLine{}}
	for i := range c.Changes {
		switch ch := &c.Changes[i]; ch.Op {
		case plan.OpCreate, plan.OpUpdate, plan.OpReplace, plan.OpRemove:
			s.Changes = append(s.Changes, savedLine{ch.Op, ch.Job, ch.OldWork, ch.NewWork})
		default:
		}
	}
	return s
}

// save writes a plan to a file.
func (d *planDoc) save(e env, commit, file string) error {
	if commit == workTreeName {
		return &exit{code: exitError, err: fmt.Errorf("a saved plan is of a commit, and the files on disk are not committed"), hint: "commit them, or name a commit: --at HEAD"}
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(e.dir, file)
	}
	var b bytes.Buffer
	if err := printJSON(&b, savedOf(commit, d.Changes)); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}

// readSaved reads a plan that was saved. It is a file of somebody's: bounded, and held to its form.
func readSaved(e env, file string) (saved, error) {
	var s saved
	if !filepath.IsAbs(file) {
		file = filepath.Join(e.dir, file)
	}
	f, err := os.Open(file)
	if err != nil {
		return s, err
	}
	defer f.Close()
	d := json.NewDecoder(io.LimitReader(f, maxSaved))
	d.DisallowUnknownFields()
	err = d.Decode(&s)
	major, _, _ := strings.Cut(s.FormatVersion, ".")
	if err != nil || major != "1" || s.Commit == "" {
		return s, &exit{code: exitError, err: fmt.Errorf("%s is not a plan that headway plan --out saved", file), hint: "save it anew: headway plan --out FILE"}
	}
	return s, nil
}

// stale says in what a saved plan differs from what would be done now, or nil.
func (s saved) stale(now saved) error {
	var diff []string
	if s.Base != now.Base {
		diff = append(diff, fmt.Sprintf("commit %.12s is in force now, it was %.12s", orNothing(now.Base), orNothing(s.Base)))
	}
	was := map[savedLine]bool{}
	for _, l := range s.Changes {
		was[l] = true
	}
	for _, l := range now.Changes {
		if !was[l] {
			diff = append(diff, "it would now "+l.String())
		}
		delete(was, l)
	}
	for _, l := range s.Changes {
		if was[l] {
			diff = append(diff, "it would no longer "+l.String())
		}
	}
	switch {
	case now.Base == s.Commit:
		return &exit{code: exitStale, err: fmt.Errorf("the saved plan was applied already: commit %.12s is in force", s.Commit)}
	case len(diff) == 0:
		return nil
	}
	return &exit{code: exitStale, err: fmt.Errorf("the saved plan is stale: %s", runners.Bound(strings.Join(diff, "; "), 1000)), hint: "look at the plan again and save it anew: headway plan --out FILE"}
}

func orNothing(commit string) string {
	if commit == "" {
		return "none"
	}
	return commit
}
