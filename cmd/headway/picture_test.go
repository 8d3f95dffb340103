package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/sim"
)

const pictureTitle = "headway status while a run dies at step 347 and the next attempt resumes from the milestone at step 300"

// The picture in the README is what `headway status` prints while a simulated machine dies under a run. The run, the
// loop, the leases and the rendering are the real ones; only the platform is simulated, and time is the bubble's.
// UPDATE=1 go test ./cmd/headway -run Picture rewrites it.
func TestPictureInTheReadme(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := film(t)
		for name, p := range palettes {
			golden := filepath.Join("..", "..", "docs", "status-"+name+".svg")
			got := svg(text, pictureTitle, p)
			if os.Getenv("UPDATE") != "" {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s is not what headway status prints (UPDATE=1 rewrites it; -want +got):\n%s", golden, diff)
			}
		}
	})
}

// film runs one job and the one that needs it on a platform whose first machine dies before step 347, and looks at
// the status at four moments of the fake clock.
func film(t *testing.T) string {
	t.Helper()
	store := mem.New()
	script, err := sim.ParseScript("worker 1 die 347")
	if err != nil {
		t.Fatal(err)
	}
	platform, err := sim.New(sim.Config{Platform: "spot", Slots: 1, Bucket: store, Script: script, Model: sim.Model{Steps: 1000, Milestone: 100}})
	if err != nil {
		t.Fatal(err)
	}
	defer platform.Close()
	loaded, problems := plan.Load(plan.NewMemTree(map[string]string{
		"headway.yaml":  "headway: v1\nplatforms:\n  spot: {runner: sim, slots: 1}\ndefaults: {on: [spot]}\n",
		"plans/a.yaml":  "jobs:\n  digits:\n    code: ../code\n    run: python3 train.py\n    work: {flops_per_step: 1e9, steps: 1000}\n    milestones: {every: 100 steps}\n  digits-backtest:\n    kind: backtest\n    needs: [digits]\n    code: ../code\n    run: python3 backtest.py --model ${needs.digits}\n    work: {flops_per_step: 1e9, steps: 1000}\n",
		"code/train.py": "\n",
	}))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	r, err := reconcile.New(reconcile.Config{Bucket: store, StoreURL: "mem:", Runners: map[string]runners.Runner{"spot": platform}, ID: "picture", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	p := &project{plan: loaded, commit: strings.Repeat("1", 40), env: env{stdout: &out, stderr: &out, tty: true, getenv: func(string) string { return "" }}}
	start, shown := time.Now(), 0
	const off = 37 * time.Millisecond // never at the same instant as a step, a renewal or a pass, so that every run looks the same
	moments := []struct {
		at   time.Duration
		what string
	}{
		{28*time.Second + off, "a machine trains; every 100 steps a snapshot is in the store"},
		{44*time.Second + off, "it died at step 347, and nobody was told: its lease runs"},
		{58*time.Second + off, "the lease ran out: another machine went on from step 300"},
		{140*time.Second + off, "finished, and the job that needed it has started"},
	}
	for shown < len(moments) {
		report, err := r.Pass(t.Context(), p.desired())
		if err != nil {
			t.Fatal(err)
		}
		for wait := min(report.Next, 2*time.Second); ; {
			m := moments[shown]
			if left := m.at - time.Since(start); left > wait {
				<-time.After(wait)
				break
			} else if left > 0 {
				<-time.After(left)
			}
			synctest.Wait()
			fmt.Fprintf(&out, "%s$ headway status%s    %s# %s after the commit: %s%s\n", bold, plain, dim, ago(m.at), m.what, plain)
			doc, err := status(t.Context(), p, r)
			if err != nil {
				t.Fatal(err)
			}
			if err := printStatus(p.env, doc); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(&out)
			if shown++; shown == len(moments) {
				break
			}
		}
	}
	if n := platform.Meter().Fired[sim.Die]; n != 1 {
		t.Fatalf("the machine died %d times, want once", n)
	}
	return strings.TrimRight(out.String(), "\n") + "\n"
}
