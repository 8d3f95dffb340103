package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/goclient"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// inside runs dispatch 1 with a program inside this process.
func (w *world) inside(ctx context.Context, in *Inside) Exit {
	w.Helper()
	w.claim(1)
	return Run(ctx, Config{Bucket: w.b, Work: w.work, Dispatch: 1, Scratch: w.scratch, Environ: []string{"MY_SECRET=correct horse", "HEADWAY_STORE=x"}, Inside: in})
}

// joined is a loop inside the process.
func joined(p Program) (*goclient.Run, error) {
	c, err := p.Dial()
	if err != nil {
		return nil, err
	}
	return goclient.Join(c, func(name string) string {
		i := slices.IndexFunc(p.Env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
		if i < 0 {
			return ""
		}
		return strings.TrimPrefix(p.Env[i], name+"=")
	})
}

// TestInsideFinishes: a program inside the process has its own environment and folder, speaks the protocol, and its run
// is a run like any other.
func TestInsideFinishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newMemWorld(t, nil)
		w.terms.MilestoneSteps = 0
		exit := w.inside(t.Context(), &Inside{Facts: map[string]string{"gpu": "none"}, Program: func(ctx context.Context, p Program) int {
			if slices.Contains(p.Env, "HEADWAY_STORE=x") || !slices.Contains(p.Env, "MY_SECRET=correct horse") || len(p.Argv) != 2 {
				return 3
			}
			fmt.Fprintln(p.Output, "my word is correct horse")
			r, err := joined(p)
			if err != nil {
				return 4
			}
			for n := range r.Steps(0, 50) {
				time.Sleep(time.Second)
				path := filepath.Join(p.Dir, "state")
				if n == 20 && errors.Join(os.WriteFile(path, []byte("20"), 0o600), r.Milestone(path, n, true)) != nil {
					return 5
				}
			}
			return code(r.Finish(map[string]float64{"sum": 1}), r.Close(nil))
		}})
		if exit.Code != CodeFinished {
			t.Fatalf("%+v", exit)
		}
		seen := w.witness().Record
		if seen.State != witness.Finished || seen.Resume == nil || seen.Resume.Step != 20 || seen.Progress.Step != 50 {
			t.Errorf("%+v", seen)
		}
		if log := w.text(record.LogPrefix(w.work, 1)); log != "my word is [secret]\n" {
			t.Errorf("log %q", log)
		}
		if open := w.text(record.OpenKey(w.work, 1)); !strings.Contains(open, `"gpu": "none"`) {
			t.Errorf("open %s", open)
		}
		if left, err := os.ReadDir(w.scratch); err != nil || len(left) > 0 {
			t.Errorf("left in the scratch folder: %v, %v", left, err)
		}
	})
}

func code(errs ...error) int {
	if errors.Join(errs...) != nil {
		return 1
	}
	return 0
}

// TestInsideSignals: what a signal does to a program inside the process is what it does to one of its own.
func TestInsideSignals(t *testing.T) {
	for name, tc := range map[string]struct {
		program func(ctx context.Context, p Program) int
		took    time.Duration // from the notice to the end
		end     string
	}{
		"goes at once": {func(_ context.Context, p Program) int { <-p.Term.Done(); return 128 + 15 }, 0, "was ended by signal 15 (terminated)"},
		"handles it":   {func(_ context.Context, p Program) int { <-p.Term.Done(); time.Sleep(time.Second); return 7 }, time.Second, "exited with code 7"},
		"ignores it":   {func(ctx context.Context, p Program) int { <-ctx.Done(); return 0 }, 4 * time.Second, "was ended by signal 9 (killed)"},
		"reads on": {func(_ context.Context, p Program) int {
			c, err := p.Dial()
			if err != nil {
				return 3
			}
			_, _ = io.ReadAll(c) // until the kernel closes it
			return 0
		}, 4 * time.Second, "was ended by signal 9 (killed)"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newMemWorld(t, nil)
			ctx, leave := context.WithCancel(t.Context())
			go func() { time.Sleep(time.Minute); leave() }()
			began := time.Now()
			exit := w.inside(ctx, &Inside{Program: tc.program})
			if took := time.Since(began) - time.Minute; exit.Code != CodeYielded || took != tc.took {
				t.Errorf("%s: %+v %s after the notice", name, exit, took)
			}
			if events := w.text(record.EventPrefix(w.work, 1)); !strings.Contains(events, `"the program `+tc.end) && !strings.Contains(events, `"`+tc.end) {
				t.Errorf("%s: events %s", name, events)
			}
		})
	}
}

// TestInsideLifeEnds: a machine that is lost takes its program and its agent along at once; the lease stays as it is.
func TestInsideLifeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newMemWorld(t, nil)
		o := &outage{Bucket: w.b}
		w.claim(1)
		life, lose := context.WithCancel(t.Context())
		began, killed := time.Now(), false
		go func() { time.Sleep(time.Minute); o.off.Store(true); lose() }()
		Run(life, Config{Bucket: o, Work: w.work, Dispatch: 1, Scratch: w.scratch, Environ: []string{"MY_SECRET=x"}, Inside: &Inside{Life: life,
			Program: func(ctx context.Context, p Program) int { <-ctx.Done(); killed = true; return 0 }}})
		if took := time.Since(began); took != time.Minute || !killed {
			t.Errorf("it took %s, the program was killed: %t", took, killed)
		}
		if seen := w.witness().Record; seen.State != witness.Held {
			t.Errorf("the lease is %s", seen.State)
		}
	})
}

// TestInsideNeedsAProgram and is refused what a pinned work does not find.
func TestInsideNeedsAProgram(t *testing.T) {
	c := Config{Bucket: mem.New(), Work: testWork, Dispatch: 1, Inside: &Inside{}}
	if err := c.check(); err == nil {
		t.Error("no program was accepted")
	}
	w := newMemWorld(t, nil)
	w.spec.Requires = map[string]string{"gpu": "a big one"}
	exit := w.inside(t.Context(), &Inside{Facts: map[string]string{"gpu": "a small one"}, Program: func(context.Context, Program) int { return 0 }})
	if exit.Code != CodeRefused || !strings.Contains(exit.Text, `required "a big one", found "a small one"`) {
		t.Errorf("%+v", exit)
	}
}
