package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/headway-run/headway/runners/agent/courier"
	"github.com/headway-run/headway/runners/agent/files"
	"github.com/headway-run/headway/runners/agent/guard"
	"github.com/headway-run/headway/runners/agent/journal"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// Bounds of the end, each for one thing.
const (
	lastMilestones = 2 * time.Minute  // for accepted milestones to arrive after the program's end
	crashed        = 20 * time.Second // the same after a failure
	endRecord      = 10 * time.Second // for end.json
	flush          = 5 * time.Second  // for each stream
	lastWrite      = time.Minute      // for yield or finish
	lastUpload     = 10 * time.Minute // for the result, and a second for each MiB of it
)

// judge decides what the program's end means, and ends the attempt.
func (r *run) judge(ctx, store context.Context, l *laid, ended guard.Ended, a asked) Exit {
	r.say("exited", r.d.at(), describe(ended))
	if !a.leave.IsZero() && r.overNow() == nil {
		// Whoever asked may have written the lease off before: then the attempt did not leave, it was silent.
		r.look(store, r.d.record())
	}
	if r.overNow() != nil {
		return r.giveUp(store, exitOf(r.overNow()), ended, "")
	}
	wait := lastMilestones
	if !a.leave.IsZero() {
		wait = max(time.Second, time.Duration(r.claim.Terms.GraceS*float64(time.Second))-time.Since(a.leave))
	} else if ended.Code != 0 {
		wait = crashed
	}
	r.arrive(store, wait)
	if ended.Code == 0 {
		found, why := result(l.result, r.spec.Metrics)
		if why == "" {
			return r.finish(store, l, found, ended)
		}
		if a.leave.IsZero() {
			return r.giveUp(store, Exit{CodeNoResult, "no_result", why}, ended, why)
		}
	}
	if a.why != nil {
		return r.giveUp(store, *a.why, ended, "")
	}
	if !a.leave.IsZero() {
		return r.giveUp(store, Exit{CodeYielded, "yielded", "asked to leave; the place is free"}, ended, "")
	}
	class, word := "user_code", r.lastWord(ended)
	if ended.Signal == syscall.SIGKILL && r.c.oomKills() > r.oom {
		class = "out_of_memory"
	}
	if slices.Contains(r.claim.Terms.RetryCodes, ended.Code) && ended.Failed == "" {
		return r.giveUp(store, Exit{CodeUserCode, "retryable", fmt.Sprintf("the program %s, which the job names as retryable: %s", describe(ended), word)}, ended, word)
	}
	if noSpace(word) {
		return r.giveUp(store, Exit{CodeDiskFull, "disk_full", fmt.Sprintf("the program %s: %s", describe(ended), word)}, ended, word)
	}
	return r.giveUp(store, Exit{CodeUserCode, class, fmt.Sprintf("the program %s: %s", describe(ended), word)}, ended, word)
}

// noSpace: the program's last error is the system's sentence for a full disk. That is the machine's: another one, or this
// one later, may have room, so it is no failure of the program's that ends the job when it comes back at the same step. A
// program that fills every disk spends its retries.
func noSpace(word string) bool {
	word = strings.ToLower(word)
	return strings.Contains(word, syscall.ENOSPC.Error()) || strings.Contains(word, syscall.EDQUOT.Error())
}

// arrive waits until what was accepted is named by the witness, or failed.
func (r *run) arrive(store context.Context, wait time.Duration) {
	ctx, cancel := context.WithTimeout(store, wait)
	defer cancel()
	if _, _, err := r.d.drain(ctx, true); err != nil && r.overNow() == nil {
		r.say("milestone late", r.d.at(), "a milestone did not arrive in time; the one before it stays")
	}
	r.k.Close()
}

// describe says how a program ended.
func describe(e guard.Ended) string {
	switch {
	case e.Failed != "":
		return "could not be started: " + e.Failed
	case e.Signal != 0:
		return fmt.Sprintf("was ended by signal %d (%s)", int(e.Signal), e.Signal)
	}
	return fmt.Sprintf("exited with code %d", e.Code)
}

// lastWord is the program's own last error: what it told the agent, else the last line it printed. This run's folder
// is taken out of it: its name is another one in each attempt, and an error that comes back must be known again.
func (r *run) lastWord(e guard.Ended) string {
	if e.Failed != "" {
		return r.mask(r.scratch.hide(e.Failed))
	}
	r.d.mu.Lock()
	told := r.d.lastWord
	r.d.mu.Unlock()
	if line := lastLine(told); line != "" {
		return r.scratch.hide(line)
	}
	if line := r.tail.lastLine(); line != "" {
		return r.scratch.hide(line)
	}
	return "it printed nothing"
}

// result lists the files that a program left, or says in one sentence why they are no result.
func result(dir string, metrics map[string]string) (found []files.Found, why string) {
	found, _, err := files.List(dir)
	switch {
	case errors.Is(err, os.ErrNotExist), err == nil && len(found) == 0:
		return nil, fmt.Sprintf("the program exited with code 0 and left no file in its result folder: write one into $HEADWAY_RESULT (%s)", filepath.Base(dir))
	case err != nil:
		return nil, "the result cannot be kept: " + err.Error()
	case slices.ContainsFunc(found, func(f files.Found) bool { return f.Path == "manifest.json" }):
		return nil, "the result holds a file named manifest.json, which is the store's own: give it another name"
	case len(metrics) == 0:
		return found, ""
	}
	return found, checkMetrics(filepath.Join(dir, "metrics.json"), metrics)
}

// checkMetrics says what is wrong with metrics.json, empty when every promised metric is there and finite.
func checkMetrics(path string, want map[string]string) string {
	names := strings.Join(slices.Sorted(maps.Keys(want)), ", ")
	st, err := os.Stat(path)
	if err != nil {
		return fmt.Sprintf("the result has no metrics.json: the plan promises %s", names)
	}
	if st.Size() > 1<<20 {
		return fmt.Sprintf("metrics.json has %d bytes, at most %d are read", st.Size(), 1<<20)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "metrics.json cannot be read: " + err.Error()
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		return fmt.Sprintf("metrics.json is no JSON object: %v (NaN and Infinity are not JSON)", err)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		v, ok := got[name].(float64)
		if !ok || math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Sprintf("metrics.json has no finite number named %q: the plan promises %s", name, names)
		}
	}
	return ""
}

// settled is the record after the last milestone. It is taken between two writes of the keeper: a pointer that is on its
// way when the wait for it ends must either have a verdict or be known to have none.
func (r *run) settled() (seen witness.Record) {
	take := func() { seen = r.d.settledRecord() }
	if !r.keep.once(take) {
		take()
	}
	return seen
}

// finish uploads the result and ends the work for ever. The log is complete before that; end.json says "finished" only
// when it is so.
func (r *run) finish(store context.Context, l *laid, found []files.Found, ended guard.Ended) Exit {
	seen, step := r.settled(), r.d.at()
	var total int64
	for _, f := range found {
		total += f.Size
	}
	ctx, done := r.whileHeld(store)
	defer done()
	ctx, cancel := context.WithTimeout(ctx, lastUpload+time.Duration(total>>20)*time.Second) // 1 MiB/s at the least
	defer cancel()
	arrived := r.k.Result()
	defer arrived()
	m := record.Manifest{Protocol: record.Protocol, Work: r.c.Work, Attempt: seen.Attempt, Step: step, Parent: seen.Resume, Sums: r.d.sums()}
	sum, err := courier.Upload(ctx, r.c.Bucket, os.DirFS(l.result), found, record.ResultPrefix(r.c.Work, seen.Attempt), m,
		func(int64) { r.d.evidence() })
	if err != nil {
		exit := exitOf(err)
		exit.Text += fmt.Sprintf(" (lost on its way: the result, %d bytes in its files)", total)
		return r.giveUp(store, exit, ended, "")
	}
	r.say("finishing", step, "the result is in the store")
	r.flush(store, flush)
	f := witness.FinishedPointer{ExitCode: ended.Code, Attempt: seen.Attempt,
		Manifest: record.ResultManifestKey(r.c.Work, seen.Attempt), SHA256: sum}
	v := r.keepLast(store, func(ctx context.Context) witness.Verdict {
		return r.h.Finish(ctx, f, witness.Progress{Step: step, Work: float64(step) * r.claim.Terms.FLOPsPerStep})
	})
	switch {
	case v.Outcome == witness.Won:
		r.account(store, finished(), ended, "")
		return finished()
	case v.Over():
		exit := overBy(seen, v).exit
		r.account(store, exit, ended, "")
		return exit
	case v.Outcome == witness.Refused:
		return r.giveUp(store, Exit{CodeInternal, "internal", "the finish was refused: " + errText(v.Err)}, ended, "")
	}
	return r.giveUp(store, Exit{CodeStore, "store",
		"the result is in the store, but the finish got no verdict; the next attempt finishes: " + errText(v.Err)}, ended, "")
}

func finished() Exit { return Exit{CodeFinished, "finished", "the result is in the store"} }

// giveUp ends an attempt that did not finish: account first, then the lease, if it is still ours to give.
func (r *run) giveUp(store context.Context, exit Exit, ended guard.Ended, word string) Exit {
	r.k.Close()
	over := r.overNow() != nil
	if !over {
		r.say("yielding", r.d.at(), exit.Text)
	}
	r.account(store, exit, ended, word)
	if over {
		return exit
	}
	v := r.keepLast(store, func(ctx context.Context) witness.Verdict {
		return r.h.Yield(ctx, journal.Bound(r.mask(exit.Text), 300))
	})
	switch {
	case v.Over() && r.h.Seen().Record.State == witness.Finished:
		return finished() // a finish that had no verdict has landed meanwhile
	case v.Over():
		return overBy(r.d.record(), v).exit
	case v.Outcome != witness.Won:
		exit.Text += " (the lease could not be given back and runs out by itself: " + errText(v.Err) + ")"
	}
	return exit
}

func (r *run) keepLast(store context.Context, f func(context.Context) witness.Verdict) witness.Verdict {
	ctx, cancel := context.WithTimeout(store, lastWrite)
	defer cancel()
	return r.keep.give(ctx, f)
}

// account writes end.json and the last segments. Where another attempt may follow that is while the attempt is still
// this one's: whoever follows the log finds all of it before the next attempt begins.
func (r *run) account(store context.Context, exit Exit, ended guard.Ended, word string) {
	seen, text := r.d.record(), journal.Bound(r.mask(exit.Text), 1900)
	if exit.Code != CodeFinished {
		text += r.d.left()
	}
	e := record.End{Protocol: record.Protocol, Work: r.c.Work, Attempt: seen.Attempt, Class: exit.Class, ExitCode: ended.Code,
		Step: r.d.at(), Text: text, Error: journal.Bound(r.mask(word), 1024),
		RanS: time.Since(r.began).Seconds(), Sums: r.d.sums(), Policy: r.sieve.close(), Time: time.Now().UTC().Format(time.RFC3339)}
	scale := time.Duration(1)
	if exit.Code == CodeStore {
		scale = 5 // it has been waited for long enough
	}
	if b, err := record.Encode(e); err == nil { // always: plain data
		r.create(store, record.EndKey(r.c.Work, seen.Attempt), b, endRecord/scale)
	}
	r.flush(store, flush/scale)
}

// flush ends log and events; what is said later is not kept.
func (r *run) flush(store context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(store, limit)
	defer cancel()
	done := make(chan struct{})
	go func() { defer close(done); r.happ.Close(ctx) }()
	r.logs.Close(ctx)
	<-done
}

// create creates one object of this attempt's own, asking again while the store is unsure and there is time.
func (r *run) create(store context.Context, key string, b []byte, limit time.Duration) {
	ctx, cancel := context.WithTimeout(store, limit)
	defer cancel()
	for {
		_, err := r.c.Bucket.Put(ctx, key, bytes.NewReader(b), bucket.IfAbsent())
		if err == nil || bucket.Is(err, bucket.Condition) { // an earlier try of ours landed
			return
		}
		select {
		case <-ctx.Done():
			r.c.Log.Warn("a record of how it ended could not be written", "key", key, "err", err)
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
}
