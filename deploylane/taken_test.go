package deploylane

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headway-run/headway/deploylane/tag"
)

// TestTakenDownStaysDown: a release that some of its targets did not have yet when a stage tag took the model away does not come back
// by those, whatever their order. A newer one does.
func TestTakenDownStaysDown(t *testing.T) {
	for name, order := range map[string][]int{"ring first": {0, 1, 2}, "pointer first": {2, 1, 0}} {
		t.Run(name, func(t *testing.T) {
			withRing(t, func(t *testing.T, g *onRing) {
				disk, deaf := t.TempDir(), true
				m := g.conf.Models["digits"]
				all := []Target{m.Targets[0], {Name: "tell", Kind: TargetExec, Argv: []string{"deploy"}}, m.Targets[1]}
				m.Targets = []Target{all[order[0]], all[order[1]], all[order[2]]}
				g.conf.Models["digits"] = m
				process := func() *Lane {
					l := g.process(disk)
					tell := l.Exec
					l.Exec = func(ctx context.Context, argv []string, key string, body []byte) (string, error) {
						if deaf {
							return "", errors.New("it does not listen")
						}
						return tell(ctx, argv, key, body)
					}
					return l
				}
				g.tagged("v1.0.0", 1)
				for range 20 {
					g.pass(process())
					<-time.After(5 * time.Minute)
				}
				g.staged(tag.None, "bob", 1)
				for range 3 {
					if _, trouble := g.pass(process()); len(trouble) > 0 {
						t.Fatal(trouble)
					}
				}
				deaf = false
				if s := g.settle(process(), "v1.0.0"); !s.Done || len(g.told) > 0 {
					t.Errorf("%+v, told %v", s, g.told)
				}
				if at := g.at(t); g.down(t) != "" || at != "2 none" && at != "<nil> <nil>" {
					t.Errorf("at %s, %s", at, g.down(t))
				}
				g.tagged("v1.1.0", 2)
				g.settle(process(), "v1.1.0")
				if v, _ := g.serving(t); v != "v1.1.0" {
					t.Errorf("%s serves", v)
				}
			})
		})
	}
}
