//go:build linux

package round

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/headway-run/headway/proof/chaos/account"
	"github.com/headway-run/headway/proof/judge"
	"github.com/headway-run/headway/runners/bucket/probe"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// stored reads a key from the server's own files.
func (r *run) stored(key string) ([]byte, bool) { return r.c.Server.Stored(r.prefix, key) }

// names are all jobs of the plan.
func (r *run) names() []string { return append(r.c.Shape.Jobs(), "backtest") }

// finished reports whether every job is.
func (r *run) finished() bool {
	works := r.book.works()
	all := true
	for _, job := range r.names() {
		if r.isFinished(job) {
			continue
		}
		if lease, ok := r.lease(works[job]); !ok || lease.State != witness.Finished {
			all = false
			continue
		}
		r.mu.Lock()
		r.states[job] = true
		r.mu.Unlock()
		r.say("%s is finished", job)
	}
	return all
}

func (r *run) isFinished(job string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.states[job]
}

func (r *run) lease(work string) (witness.Record, bool) {
	b, found := r.stored(record.WitnessKey(work))
	if work == "" || !found {
		return witness.Record{}, false
	}
	rec, err := witness.Decode(work, b)
	return rec, err == nil
}

func (r *run) unfinished() string {
	var out []string
	works := r.book.works()
	for _, job := range r.names() {
		if !r.isFinished(job) {
			rec, _ := r.lease(works[job])
			out = append(out, fmt.Sprintf("%s is %q at attempt %d, step %d", job, rec.State, rec.Attempt, rec.Progress.Step))
		}
	}
	return strings.Join(out, ", ")
}

// proven gives the store the verdict of an earlier round, so that the round begins at once.
func (r *run) proven() error {
	if r.c.Proven == nil {
		return nil
	}
	var report probe.Report
	if err := json.Unmarshal(r.c.Proven, &report); err != nil {
		return err
	}
	report.Store = r.c.Server.URL(r.proxy.Addr(), r.prefix)
	raw, err := json.Marshal(report)
	if err != nil {
		return err
	}
	return r.c.Server.Put(r.prefix, probe.Key, raw)
}

// judge holds what the round left behind against what it must be.
func (r *run) judge(ctx context.Context) {
	if r.c.Spoil != nil {
		r.c.Spoil(&Spoiler{r})
	}
	r.results()
	r.accounts()
	r.history()
	// With --no-probe no platform would be asked what it still runs.
	c := exec.CommandContext(ctx, r.c.Headway, "doctor", "--deep")
	c.Dir, c.Env = r.repo(), r.environ()
	out, err := r.output(c)
	if werr := os.WriteFile(filepath.Join(r.c.Dir, "doctor.txt"), out, 0o644); werr != nil {
		r.broken("%v", werr)
	}
	if err != nil {
		r.broken("headway doctor --deep: %v:\n%s", err, out)
	} else if !bytes.Contains(out, []byte(nothingRuns)) {
		r.broken("headway doctor --deep does not say %q of the platform:\n%s", nothingRuns, out)
	}
	r.workers()
	r.report.Proven, _ = r.stored(probe.Key)
}

// nothingRuns is the doctor's word for a platform that was asked, and runs nothing for us any more.
const nothingRuns = ", 0 running"

// results reads the result of every job, and compares it with the undisturbed one's, byte for byte.
func (r *run) results() {
	r.report.Results = Results{}
	works := r.book.works()
	for _, job := range r.names() {
		files, err := r.result(works[job])
		if err != nil {
			r.broken("%s: %v", job, err)
			continue
		}
		r.report.Results[job] = files
		if r.c.Want == nil {
			continue
		}
		if got, want := slices.Sorted(maps.Keys(files)), slices.Sorted(maps.Keys(r.c.Want[job])); !slices.Equal(got, want) {
			r.broken("%s: its result is %q, that of the undisturbed run %q", job, got, want)
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if !bytes.Equal(files[name], r.c.Want[job][name]) {
				r.broken("%s: %s differs from the undisturbed run's", job, name)
			}
		}
	}
}

func (r *run) result(work string) (map[string][]byte, error) {
	lease, ok := r.lease(work)
	if !ok || lease.State != witness.Finished {
		return nil, fmt.Errorf("it has no result")
	}
	if lease.Finished.ExitCode != 0 {
		return nil, fmt.Errorf("it finished with exit code %d", lease.Finished.ExitCode)
	}
	raw, _ := r.stored(lease.Finished.Manifest)
	if got := record.Hash(raw); got != lease.Finished.SHA256 {
		return nil, fmt.Errorf("the manifest of its result has sha256 %.12s, the lease says %.12s", got, lease.Finished.SHA256)
	}
	var m record.Manifest
	if err := record.Decode(raw, record.MaxManifest, &m); err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, f := range m.Files {
		body, _ := r.stored(path.Dir(lease.Finished.Manifest) + "/" + f.Path)
		if got := record.Hash(body); got != f.SHA256 {
			return nil, fmt.Errorf("%s of its result has sha256 %.12s, the manifest says %.12s", f.Path, got, f.SHA256)
		}
		files[f.Path] = body
	}
	return files, nil
}

// history holds every write that the store took, in its order, against the invariants.
func (r *run) history() {
	j := judge.New(judge.Options{AllFinish: true})
	entries, writers := r.book.attributed()
	for _, e := range entries {
		j.Take(e)
	}
	r.report.Writers = writers
	j.End()
	for _, v := range j.Broken() {
		r.broken("%s", v)
	}
}

// accounts adds up the attempts of every training.
func (r *run) accounts() {
	works := r.book.works()
	for _, job := range r.names() {
		w := account.Work{Job: job, Work: works[job], Trace: map[int64][]byte{}, Opens: map[int64]record.Open{}}
		if job != "backtest" {
			w.Steps = r.c.Shape.Steps
		}
		lease, _ := r.lease(w.Work)
		for n := int64(1); n <= lease.Attempt; n++ {
			if b, err := os.ReadFile(r.trace(w.Work, n)); err == nil {
				w.Trace[n] = b
			}
			var o record.Open
			if b, found := r.stored(record.OpenKey(w.Work, n)); found && record.Decode(b, record.MaxRecord, &o) == nil {
				w.Opens[n] = o
			}
		}
		r.reach(&w, lease.Attempt)
		sum, broken := account.Of(w, r.book.all())
		r.report.Sum.Add(sum)
		for _, b := range broken {
			r.broken("%s", b)
		}
	}
}

// reach adds when attempts ended, what they had handed over, and when faults stood between their agents and the store.
func (r *run) reach(w *account.Work, attempts int64) {
	w.Every, w.Staged, w.Ends, w.Cut = r.c.Shape.Every, map[int64][]byte{}, map[int64]time.Duration{}, map[int64][]account.Span{0: slices.Clone(r.cuts)}
	for n := range attempts {
		if st, err := os.Stat(r.trace(w.Work, n+1)); err == nil {
			w.Ends[n+1] = st.ModTime().Sub(r.proxy.Began())
		}
		if b, err := os.ReadFile(r.trace(w.Work, n+1) + ".staged"); err == nil {
			w.Staged[n+1] = b
		}
	}
	for _, m := range r.proxy.Slowness() { // whose it was may not be known: a fault of the harness is everybody's excuse
		w.Cut[0] = append(w.Cut[0], account.Span{From: m.From, To: m.To})
	}
	for _, m := range r.proxy.Meetings() {
		var dispatch int64
		if _, who, ok := strings.Cut(m.Who, " of dispatch "); ok {
			var work string
			if n, err := fmt.Sscanf(who, "%d of %s", &dispatch, &work); err != nil || n < 2 || !strings.HasPrefix(w.Work, work) {
				continue
			}
		} else if !strings.HasPrefix(m.Who, somebody) || !strings.Contains(m.Key, w.Work) {
			continue // a watcher
		}
		w.Cut[dispatch] = append(w.Cut[dispatch], account.Span{From: m.From, To: m.To})
	}
}

// cut notes that nobody reached the store, or its own disk, from then to now.
func (r *run) cut(from time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cuts = append(r.cuts, account.Span{From: from.Sub(r.proxy.Began()), To: time.Since(r.proxy.Began())})
}
