//go:build linux && chaos

package round_test

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headway-run/headway/proof/chaos/kin"
	"github.com/headway-run/headway/proof/chaos/round"
	"github.com/headway-run/headway/proof/chaos/schedule"
	"github.com/headway-run/headway/proof/chaos/server"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/local"
)

// family is the process's one.
var family = sync.OnceValues(kin.New)

// rig is what the rounds of a test share: binaries, a server, and what an undisturbed round came to.
type rig struct {
	t *testing.T
	c round.Config

	agent string // the headway-agent binary

	mu     sync.Mutex
	number int
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dir := t.TempDir()
	for binary, from := range map[string][2]string{"headway": {"../../..", "./cmd/headway"}, round.AgentName: {"../../..", "./cmd/headway-agent"}, "s3server": {"../../../.ci/s3server", "."}} {
		c := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(dir, binary), from[1])
		c.Dir, c.Env = from[0], append(os.Environ(), "GOFLAGS=-mod=readonly")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", binary, err, out)
		}
	}
	python, err := exec.Command("python3", "-c", "import os, sys; print(os.path.dirname(sys.executable))").Output()
	if err != nil {
		t.Fatal(err)
	}
	family, err := family()
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(family, filepath.Join(dir, "s3server"), filepath.Join(dir, "server"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	r := &rig{t: t, agent: filepath.Join(dir, round.AgentName), c: round.Config{Headway: filepath.Join(dir, "headway"), Path: strings.TrimSpace(string(python)) + ":" + os.Getenv("PATH"), Family: family, Server: s,
		Shape: round.Shape{Trainings: 1, Steps: 100, Every: 20, Pace: 20 * time.Millisecond, Rows: 200}, Watchers: 1, Limit: 2 * time.Minute}}
	undisturbed := r.run(nil)
	if len(undisturbed.Broken) > 0 {
		t.Fatalf("the undisturbed round is broken: %q", undisturbed.Broken)
	}
	r.c.Want, r.c.Proven = undisturbed.Results, undisturbed.Proven
	return r
}

// run makes one round, with something changed.
func (r *rig) run(change func(*round.Config)) round.Report {
	r.t.Helper()
	c := r.c
	r.mu.Lock()
	r.number++
	c.Number = r.number
	r.mu.Unlock()
	c.Dir = filepath.Join(r.t.TempDir(), "round")
	if change != nil {
		change(&c)
	}
	report, err := round.Run(context.Background(), c)
	if err != nil {
		r.t.Fatal(err)
	}
	return report
}

// A harness that cannot fail proves nothing: each thing that it looks for is found when it is there.
func TestEveryBrokenThingIsFound(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if again := r.run(nil); len(again.Broken) > 0 {
		t.Fatalf("a second undisturbed round is broken: %q", again.Broken)
	}
	spoil := func(f func(*round.Spoiler) error) func(*round.Config) {
		return func(c *round.Config) {
			c.Spoil = func(s *round.Spoiler) {
				if err := f(s); err != nil {
					t.Error(err)
				}
			}
		}
	}
	for want, change := range map[string]func(*round.Config){
		"headway doctor --deep: exit status 1":                      spoil(func(s *round.Spoiler) error { return s.Milestone("digits-1") }),
		"of its result has sha256":                                  spoil(func(s *round.Spoiler) error { return s.Result("digits-1") }),
		"digits-1: metrics.json differs from the undisturbed run's": func(c *round.Config) { c.Want = r.otherwise("metrics.json") },
		"backtest: its result is":                                   func(c *round.Config) { c.Want = r.otherwise("") },
		"not finished within 1s: digits-1 is":                       func(c *round.Config) { c.Limit = time.Second },
		"doctor: line 1: no such verb": func(c *round.Config) {
			c.Headway = r.script(`case $1 in doctor) echo "doctor: line 1: no such verb"; exit 3;; esac`)
		},
		"digits-1: attempt 1: its program did step 2 after step 0": func(c *round.Config) {
			c.Path = r.python(`PACE="0.02"; sed -i 's/^    step += 1$/    step += 2/' paced.py`, c.Path)
		},
		"a job was given up, which no disturbance may lead to: watcher 1: digits-1: fail: ": func(c *round.Config) { c.Path = r.python(`exit 3`, c.Path) },
		"digits-1: model.json differs from the undisturbed run's":                           func(c *round.Config) { c.Path = r.python(`set -- "$@" --batch 5`, c.Path) },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel() // most of a round is waiting
			got := r.run(change)
			if !strings.Contains(strings.Join(got.Broken, "\n"), want) {
				t.Errorf("got %q", got.Broken)
			}
			if _, err := os.Stat(filepath.Join(got.Dir, "history.jsonl")); err != nil {
				t.Errorf("the folder of a broken round is gone: %v", err)
			}
		})
	}
}

// What is left behind is named, and ended.
func TestWhatStaysIsFound(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var stray *exec.Cmd
	got := r.run(func(c *round.Config) { c.Patience, stray = time.Second, r.stray(c.Dir) })
	if !strings.Contains(strings.Join(got.Broken, "\n"), "is still there 1s after the end") {
		t.Errorf("got %q", got.Broken)
	}
	if err := r.c.Family.Wait(stray); err == nil {
		t.Error("it was not ended")
	}
}

// A worker that the platform still runs for a job that is finished is an orphan, and breaks the round.
func TestALeftoverMachineIsFound(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	got := r.run(func(c *round.Config) {
		c.Spoil = func(s *round.Spoiler) {
			work, dispatch, scratch, store, err := s.Launched("digits-1")
			if err != nil {
				t.Error(err)
				return
			}
			here, err := local.New(local.Config{Platform: "here", Scratch: scratch, Agent: []string{sleep, "1000"}})
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := here.Launch(t.Context(), []runners.Launch{{Work: work, Dispatch: dispatch, Job: "digits-1", Store: store}}); err != nil {
				t.Error(err)
			}
		}
	})
	alive, err := r.c.Family.Look()
	if err != nil {
		t.Fatal(err)
	}
	ended := 0
	for _, p := range alive {
		if p.In(got.Dir) && p.Signal(syscall.SIGKILL) == nil {
			ended++
		}
	}
	if said := strings.Join(got.Broken, "\n"); ended != 1 || !strings.Contains(said, "and nothing explains it: its work was finished by attempt 1") {
		t.Errorf("%d processes ended, got %q", ended, got.Broken)
	}
}

// Workers are headway-agent where that is wanted, also those of a watcher's next life; others are found.
func TestWorkersAreTheAgentsBinary(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	got := r.run(func(c *round.Config) {
		c.Agent, c.Schedule = r.agent, schedule.Round{Chains: [][]schedule.Event{{{Kind: schedule.Kill, Victim: schedule.Watch}}, {{Kind: schedule.Kill, Victim: schedule.Tree, Job: "digits-1", Steps: 50}}}}
	})
	if len(got.Broken) > 0 || got.Workers[round.AgentName] < 3 || len(got.Workers) != 1 || got.Killed[schedule.Watch] != 1 || got.Killed[schedule.Tree] != 1 {
		t.Errorf("%+v", got)
	}
	got = r.run(func(c *round.Config) {
		c.Agent = r.shell(round.AgentName, "exec '"+c.Headway+"' agent \"$@\"\n")
	})
	if want := "workers ran as map[headway:2], all were to be headway-agent"; !slices.Contains(got.Broken, want) {
		t.Errorf("got %q, want %q", got.Broken, want)
	}
}

// otherwise is a result that nobody comes to: one byte more in a file, or a file more.
func (r *rig) otherwise(file string) round.Results {
	want := round.Results{}
	for job, files := range r.c.Want {
		want[job] = maps.Clone(files)
		if file == "" {
			want[job]["another"] = nil
		} else if body, ok := files[file]; ok {
			want[job][file] = append(slices.Clone(body), '\n')
		}
	}
	return want
}

// stray starts a process in the round's folder that nobody ends.
func (r *rig) stray(dir string) *exec.Cmd {
	r.t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		r.t.Fatal(err)
	}
	c := exec.Command("sleep", "1000")
	c.Dir = dir
	if err := r.c.Family.Start(c); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// script is the real binary behind a line of shell.
func (r *rig) script(line string) string {
	return r.shell("headway", line+"\nexec '"+r.c.Headway+"' \"$@\"\n")
}

// python is a search path whose python3 is the real one behind a line of shell.
func (r *rig) python(line, path string) string {
	real, err := exec.LookPath(filepath.Join(strings.Split(path, ":")[0], "python3"))
	if err != nil {
		r.t.Fatal(err)
	}
	return filepath.Dir(r.shell("python3", "case $2 in paced.py)\n"+line+"\n;; esac\nexec '"+real+"' \"$@\"\n")) + ":" + path
}

func (r *rig) shell(name, body string) string {
	r.t.Helper()
	file := filepath.Join(r.t.TempDir(), name)
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+body), 0o755); err != nil {
		r.t.Fatal(err)
	}
	return file
}

// A program that goes on from a milestone to something else is found only because somebody killed it.
func TestABrokenResumeIsFound(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	kill := schedule.Round{Chains: [][]schedule.Event{{{Kind: schedule.Kill, Victim: schedule.Program, Job: "digits-1", Steps: 50}}}}
	sound := r.run(func(c *round.Config) { c.Schedule = kill })
	if len(sound.Broken) > 0 || sound.Hits[schedule.Kill] != 1 || sound.Sum.Attempts != 3 || sound.Sum.Repeated == 0 {
		t.Errorf("killed once: %+v", sound)
	}
	got := r.run(func(c *round.Config) {
		c.Schedule, c.Path = kill, r.python(`[ "$HEADWAY_ATTEMPT" = 1 ] || set -- "$@" --lr 0.06`, c.Path)
	})
	if !strings.Contains(strings.Join(got.Broken, "\n"), "digits-1: model.json differs from the undisturbed run's") {
		t.Errorf("got %q", got.Broken)
	}
}
