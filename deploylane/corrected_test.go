package deploylane

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headway-run/headway/deploylane/tag"
)

// mendedGit is Git whose branch has gone on since the tagged commit.
type mendedGit struct {
	Repository
	tip  Config
	fail error
}

func (m mendedGit) Lane(ctx context.Context, commit string) (Config, error) {
	if commit == "tip" {
		return m.tip, m.fail
	}
	return m.Repository.Lane(ctx, commit)
}

// TestAMistypedTargetIsCorrected: a target that the tagged commit has wrong never takes its release, and its sentence says what to
// do. The newest lane.yaml counts for it, by its name: mended, it is told, once; removed, it is told no more. One that took the
// release is not told again, however often it changes.
func TestAMistypedTargetIsCorrected(t *testing.T) {
	for name, c := range map[string]struct {
		tip    []string // the program that the newest lane.yaml names; nil: no such target
		fail   error
		done   bool
		code   string
		reason string
		says   string
	}{
		"mended":      {tip: []string{"deploy"}, done: true, reason: "tell took it, as lane/lane.yaml of commit tip has it"},
		"removed":     {done: true, code: "Dropped", reason: "tell was not told: lane/lane.yaml of commit tip has no target of this name any more"},
		"as it was":   {tip: []string{"depoly"}, says: "target tell: no such program depoly; it is told again at each look; if it is wrong in lane/lane.yaml, mend or remove it there, in a commit that a root key signs"},
		"wrong again": {tip: []string{"dpeloy"}, says: "no such program dpeloy (as lane/lane.yaml of commit tip has it)"},
		"by nobody":   {tip: []string{"deploy"}, fail: errors.New("no root key signed it"), says: "that of commit tip does not: no root key signed it"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t, 5)
				m := g.conf.Models["digits"]
				m.Targets = []Target{{Name: "tell", Kind: TargetExec, Argv: []string{"depoly"}}, {Name: "pointer", Kind: TargetPointer}}
				g.conf.Models["digits"] = m
				g.tagged("v1.0.0", 1)
				m.Targets = slices.Clone(m.Targets)
				m.Targets[0].Argv = c.tip
				if c.tip == nil {
					m.Targets = m.Targets[1:]
				}
				l := g.fresh()
				tell := l.Exec
				l.Exec = func(ctx context.Context, argv []string, key string, body []byte) (string, error) {
					if argv[0] != "deploy" {
						return "", errors.New("no such program " + argv[0])
					}
					return tell(ctx, argv, key, body)
				}
				l.Git = mendedGit{l.Git, Config{Models: map[string]Model{"digits": m}}, c.fail}
				var s Standing
				for range 20 {
					all, trouble := l.Pass(t.Context(), &tag.Look{Tip: "tip", Policy: g.policy, Models: []tag.Model{{Name: "digits", Entries: g.entries}}})
					if len(trouble) > 0 {
						t.Fatal(trouble)
					}
					s = all[0]
				}
				k, found, err := l.read(t.Context(), key("digits", "v1.0.0", "target-tell"))
				if err != nil || s.Done != c.done || found != c.done || k.Record.Code != c.code || k.Record.Reason != c.reason || !strings.Contains(s.Text, c.says) {
					t.Errorf("%+v; %+v, %v", s, k.Record, err)
				}
				if told := c.done && c.code == ""; told != (len(g.told) == 1) || len(g.told) > 1 {
					t.Errorf("told %v", g.told)
				}
			})
		})
	}
}
