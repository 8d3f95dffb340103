package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/faulty"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// here runs dispatch n in this process, on w's store as b shows it.
func (w *world) here(ctx context.Context, b bucket.Bucket, n int64) Exit {
	w.Helper()
	w.claim(n)
	return Run(ctx, Config{Bucket: b, Work: w.work, Dispatch: n, Platform: "here", Scratch: w.scratch,
		Environ: append(os.Environ(), "MY_SECRET=correct horse"), Guard: []string{"/proc/self/exe", guardWord}})
}

func newMemWorld(t *testing.T, env map[string]string) *world {
	t.Helper()
	w := newWorld(t, env)
	w.b = mem.New()
	return w
}

// TestLostAnswers: every write of the witness and of the agent's own records loses its answer once in a while; the
// run finishes all the same, and its pointer is where it should be.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	w := newMemWorld(t, nil)
	f := faulty.New(w.b, 7,
		faulty.Rule{Name: "capture", Op: "put", Key: "witness/*", Nth: 1, Effect: faulty.Lose},
		faulty.Rule{Name: "open", Op: "put", Key: "*/open.json", Nth: 1, Effect: faulty.Lose},
		faulty.Rule{Name: "end", Op: "put", Key: "*/end.json", Nth: 1, Effect: faulty.Lose},
		faulty.Rule{Name: "manifest", Op: "put", Key: "*/manifest.json", Nth: 2, Effect: faulty.Lose},
		faulty.Rule{Name: "log", Op: "put", Key: "*/log/*", Nth: 1, Effect: faulty.Lose},
		faulty.Rule{Name: "witness", Op: "put", Key: "witness/*", Probability: 0.3, Effect: faulty.Lose},
		faulty.Rule{Name: "slow down", Op: "put", Key: "*", Probability: 0.1, Effect: faulty.Refuse, Code: bucket.Throttled})
	if exit := w.here(t.Context(), f, 1); exit.Code != CodeFinished {
		t.Fatalf("%+v", exit)
	}
	if never := f.Unfired(); len(never) > 0 {
		t.Errorf("faults that never fired: %v", never)
	}
	seen := w.witness().Record
	if seen.State != witness.Finished || seen.Resume == nil || seen.Resume.Step != 100 {
		t.Errorf("witness %+v", seen)
	}
	if log := w.text(record.LogPrefix(w.work, 1)); log != "training from step 0\n" {
		t.Errorf("log %q", log)
	}
}

// TestInputs: a finished input is downloaded, verified and named to the program; an unfinished one is refused and the
// lease is given back.
func TestInputs(t *testing.T) {
	t.Parallel()
	up := newMemWorld(t, nil)
	up.spec.Metrics = nil
	up.spec.Argv = shell(`mkdir -p "$HEADWAY_RESULT/deep"; echo tokens >"$HEADWAY_RESULT/deep/data.txt"`)
	up.publish()
	w := newMemWorld(t, nil)
	w.b = up.b
	w.spec.Metrics = nil
	w.spec.Inputs = []record.Input{{Job: "data-set.1", Work: up.work}}
	w.spec.Argv = []string{"/bin/sh", "-c", `cat "$1/deep/data.txt" "$HEADWAY_NEED_DATA_SET_1/deep/data.txt" >"$HEADWAY_RESULT/r"`, "sh", "${needs.data-set.1}"}
	if exit := w.here(t.Context(), w.b, 1); exit.Code != CodeRefused || !strings.Contains(exit.Text, "was never run") {
		t.Errorf("%+v", exit)
	}
	if seen := w.witness().Record; seen.State != witness.Yielded || w.end(1).Class != "refused" {
		t.Errorf("witness %+v", seen)
	}
	if exit := up.here(t.Context(), up.b, 1); exit.Code != CodeFinished {
		t.Fatalf("%+v", exit)
	}
	if exit := w.here(t.Context(), w.b, 2); exit.Code != CodeFinished {
		t.Fatalf("%+v", exit)
	}
	if got := w.text(record.ResultPrefix(w.work, 2) + "r"); got != "tokens\ntokens\n" {
		t.Errorf("result %q", got)
	}
}

// TestInputsWitnessIsAskedForAgain: a store that hangs, or fails once, is asked again; one that stays away is an answer.
func TestInputsWitnessIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		captured(t, b, terms())
		gate := make(chan struct{})
		defer close(gate)
		f := faulty.New(b, 1, faulty.Rule{Name: "hang", Op: "get", Key: "witness/*", Nth: 1, Effect: faulty.Hold, Release: gate},
			faulty.Rule{Name: "fail", Op: "get", Key: "witness/*", Nth: 1, Effect: faulty.Refuse, Code: bucket.Unknown})
		if seen, err := readWitness(t.Context(), f, testWork); err != nil || seen.Record.Attempt != 1 || len(f.Unfired()) > 0 {
			t.Errorf("%+v, %v, never fired: %v", seen.Record, err, f.Unfired())
		}
		f = faulty.New(b, 1, faulty.Rule{Name: "hang", Op: "get", Key: "witness/*", Effect: faulty.Hold, Release: gate})
		began := time.Now()
		_, err := readWitness(t.Context(), f, testWork)
		if took := time.Since(began); exitOf(err).Class != "store" || took > 3*time.Minute {
			t.Errorf("%v after %s", err, took)
		}
	})
}

// TestResumedAtTheEndOnlyFinishes: C11. The last milestone was made, the finish was not: no step is made again.
func TestResumedAtTheEndOnlyFinishes(t *testing.T) {
	t.Parallel()
	w := newMemWorld(t, nil)
	f := faulty.New(w.b, 1, faulty.Rule{Name: "result", Op: "put", Key: "*/result/*", Effect: faulty.Refuse, Code: bucket.Full})
	if exit := w.here(t.Context(), f, 1); exit.Code != CodeStore || exit.Class != "store_refused" || w.end(1).Class != exit.Class || f.Fired("result") == 0 {
		t.Fatalf("%+v, end %+v", exit, w.end(1))
	}
	if seen := w.witness().Record; seen.State != witness.Yielded || seen.Resume.Step != 100 {
		t.Fatalf("witness %+v", seen)
	}
	if exit := w.here(t.Context(), w.b, 2); exit.Code != CodeFinished {
		t.Fatalf("%+v", exit)
	}
	log := w.text(record.LogPrefix(w.work, 2))
	if seen := w.witness().Record; log != "training from step 100\n" || seen.Progress.Step != 100 || seen.Resume.Attempt != 1 {
		t.Errorf("log %q, witness %+v", log, seen)
	}
}

// TestStoreClasses: what a person must mend is not what passes by itself; the store's hint is kept.
func TestStoreClasses(t *testing.T) {
	for c := bucket.Unknown; c <= bucket.Unsupported; c++ {
		want := "store"
		if slices.Contains([]bucket.Code{bucket.Denied, bucket.Full, bucket.BadKey, bucket.Unsupported}, c) {
			want = "store_refused"
		}
		err := fmt.Errorf("upload x: %w", errors.Join(&bucket.Error{Op: "put", Key: "k", Code: c, Hint: "do this"}, context.DeadlineExceeded))
		if e := exitOf(err); e.Class != want || e.Code != CodeStore || !strings.Contains(e.Text, "(do this)") || strings.Contains(e.Text, "\n") {
			t.Errorf("%s: %+v", c, e)
		}
	}
}

// TestNoticeBeforeTheProgram: asked to leave while the code is still on its way.
func TestNoticeBeforeTheProgram(t *testing.T) {
	t.Parallel()
	w := newMemWorld(t, nil)
	w.spec.CodeTree = strings.Repeat("ab", 20)
	gate := make(chan struct{})
	f := faulty.New(w.b, 1, faulty.Rule{Name: "hold", Op: "get", Key: "code/*", Effect: faulty.Hold, Release: gate})
	defer close(gate)
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		w.until("the download", func() bool { return f.Fired("hold") > 0 })
		leave()
	}()
	if exit := w.here(ctx, f, 1); exit.Code != CodeYielded {
		t.Errorf("%+v", exit)
	}
	if seen := w.witness().Record; seen.State != witness.Yielded {
		t.Errorf("witness %+v", seen)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if exit := w.here(gone, w.b, 2); exit.Code != CodeYielded || w.witness().Record.Attempt != 1 {
		t.Errorf("asked to leave before the lease: %+v", exit)
	}
}

func TestMainRefusesInOneSentence(t *testing.T) {
	for name, c := range map[string]struct {
		args, env []string
		code      int
		say       string
	}{
		"nothing":     {nil, nil, 1, "error: no -"},
		"dispatch":    {[]string{"-store", "dir:///x", "-work", testWork, "-dispatch", "one"}, nil, 1, `error: dispatch "one": expected a number from 1 on`},
		"stray":       {[]string{"run"}, nil, 1, `error: unexpected "run"`},
		"flag":        {[]string{"-stroe", "x"}, nil, 1, "error: flag provided but not defined: -stroe; headway-agent -h lists the flags"},
		"store":       {nil, []string{"HEADWAY_STORE=dir:///nowhere/at/all", "HEADWAY_WORK=" + testWork, "HEADWAY_DISPATCH=1"}, CodeStore, "error: store"},
		"short work":  {[]string{"-store", "dir://" + t.TempDir(), "-work", "ab", "-dispatch", "1"}, nil, 1, `internal: work "ab": expected 64 hex digits`},
		"no dispatch": {[]string{"-store", "dir://" + t.TempDir(), "-work", testWork, "-dispatch", "0"}, nil, 1, "internal: dispatch 0: the first is 1"},
	} {
		var out, errs bytes.Buffer
		code := Main(t.Context(), append(c.args, "-quiet"), c.env, &out, &errs, Deps{Open: openMemOrDir})
		if name == "stray" || name == "flag" {
			errs.Reset()
			code = Main(t.Context(), c.args, c.env, &out, &errs, Deps{Open: openMemOrDir})
		}
		if code != c.code || !strings.Contains(errs.String(), c.say) || strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("%s: code %d, %q", name, code, errs.String())
		}
	}
	var out, errs bytes.Buffer
	if code := Main(t.Context(), []string{"-h"}, nil, &out, &errs, Deps{Self: []string{"agent"}}); code != 0 || !strings.HasPrefix(out.String(), "usage: headway agent [flags]") || errs.Len() > 0 {
		t.Errorf("help: %d %q %q", code, out.String(), errs.String())
	}
}

func openMemOrDir(ctx context.Context, url string, environ []string) (bucket.Bucket, error) {
	if strings.Contains(url, "nowhere") {
		return openDir(ctx, url, environ)
	}
	return mem.New(), nil
}

// TestScratchOfDeadRunsGoes, and that of living ones stays.
func TestScratchOfDeadRunsGoes(t *testing.T) {
	base := t.TempDir()
	alive, err := newScratch(base)
	if err != nil {
		t.Fatal(err)
	}
	dead, err := newScratch(base)
	if err != nil {
		t.Fatal(err)
	}
	_ = dead.lock.Close() // what the kernel does for a killed process
	other := filepath.Join(base, "mine")
	if err := os.WriteFile(other, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	next, err := newScratch(base)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{alive.dir: true, dead.dir: false, next.dir: true, other: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	alive.remove()
	next.remove()
	left, _ := filepath.Glob(filepath.Join(base, "*"))
	if d := cmp.Diff([]string{other}, left); d != "" {
		t.Error(d)
	}
}
