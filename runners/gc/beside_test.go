package gc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/audit"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/faulty"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
	"github.com/headway-run/headway/runners/witness"
)

// beside is a store whose users are slow, and before each of whose requests something else may happen.
type beside struct {
	bucket.Bucket
	mu     sync.Mutex
	n      int                      // requests so far
	before func(n int, what string) // called alone
}

func (b *beside) hook(op, key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n++
	b.before(b.n, op+" "+key)
}

func (b *beside) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	b.hook("get", key)
	return b.Bucket.Get(ctx, key, r)
}

// Put takes three hours for every object of a snapshot: an hour and a half before it lands, and after.
func (b *beside) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	slow := strings.Contains(key, "/milestone/") || strings.Contains(key, "/result/")
	if slow {
		time.Sleep(90 * time.Minute)
	}
	b.hook("put", key)
	v, err := b.Bucket.Put(ctx, key, body, c)
	if slow {
		time.Sleep(90 * time.Minute)
	}
	return v, err
}

func (b *beside) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	b.hook("list", prefix)
	return b.Bucket.List(ctx, prefix, after, limit)
}

// life is all that happens to one work: its code is uploaded, time passes, it is launched and dies, is launched again
// and hangs, its place is taken while it uploads on, and a third attempt finishes it. The answer says what went wrong; "":
// nothing did.
type life struct {
	plan bool // a plan in force names the work before anything is done, and it waits for two hours; else only half of one passes
	t    *testing.T
	b    *beside
	spec record.Spec
	code error // what a worker found instead of its code
}

const lifeSteps = 12

func (l *life) run() string {
	ctx := l.t.Context()
	l.spec = specOf(7, strings.Repeat("c0de", 10))
	waits := 30 * time.Minute
	if l.plan {
		waits = 2 * time.Hour
		l.put("accepted/-", fmt.Appendf(nil, `{"format":1,"plan":{"jobs":[{"work":%q,"identity":%s}]}}`, l.spec.Work, l.spec.Identity))
	}
	l.put(record.CodeKey(l.spec.CodeTree), []byte("code"))
	time.Sleep(waits)
	script, err := sim.ParseScript("worker 1 die 5; worker 2 hang 9")
	if err != nil {
		l.t.Fatal(err)
	}
	r, err := sim.New(sim.Config{Platform: "sim", Slots: 8, Bucket: l.b, Script: script,
		Model: sim.Model{Start: 2 * time.Hour, Step: 10 * time.Second, Steps: lifeSteps, Milestone: 2}})
	if err != nil {
		l.t.Fatal(err)
	}
	defer r.Close()
	d := runners.Dispatcher{Bucket: l.b}
	for n := int64(1); n <= 3; n++ {
		out := d.Launch(ctx, r, []runners.Launch{{Work: l.spec.Work, Dispatch: n, Job: "digits", Store: "mem:", Spec: l.spec,
			Claim: record.Claim{Protocol: record.Protocol, Work: l.spec.Work, Dispatch: n, Nonce: record.Nonce(), Platform: "sim", Runner: "sim"}}})
		if out[0].Err != nil {
			return fmt.Sprint("launch: ", out[0].Err)
		}
		time.Sleep(100 * time.Hour)
		if n == 3 {
			break
		}
		if _, err := d.Revoke(ctx, l.spec.Work, "silent", runners.RevokeOptions{}); err != nil {
			return fmt.Sprint("revoke: ", err)
		}
		l.late(n)
	}
	for _, it := range r.Truth() {
		if strings.HasPrefix(it.End, "gave up") || it.End == "snapshot unreadable" {
			return fmt.Sprintf("instance %d: %s", it.ID, it.End)
		}
	}
	if l.code != nil {
		return fmt.Sprint("code: ", l.code)
	}
	return l.result()
}

func (l *life) put(key string, raw []byte) {
	if _, err := l.b.Put(l.t.Context(), key, bytes.NewReader(raw), bucket.Always()); err != nil {
		l.t.Fatal(err)
	}
}

// late is a deposed worker that uploads on: a snapshot that nobody will ever name.
func (l *life) late(attempt int64) {
	folder := record.MilestonePrefix(l.spec.Work, attempt, 50)
	raw := []byte("late")
	l.put(folder+"state.json", raw)
	m, err := record.Encode(record.Manifest{Protocol: 1, Work: l.spec.Work, Attempt: attempt, Milestone: 50, Step: 50,
		Files: []record.File{{Path: "state.json", Size: int64(len(raw)), SHA256: record.Hash(raw)}}})
	if err != nil {
		l.t.Fatal(err)
	}
	l.put(folder+"manifest.json", m)
}

// result holds what came of it against a run that nobody disturbed.
func (l *life) result() string {
	seen, err := witness.Read(l.t.Context(), l.b.Bucket, l.spec.Work)
	if err != nil || seen.Record.State != witness.Finished {
		return fmt.Sprintf("the lease is %s: %v", seen.Record.State, err)
	}
	key := record.ResultPrefix(l.spec.Work, seen.Record.Finished.Attempt) + sim.StateFile
	var s sim.State
	if err := json.Unmarshal([]byte(bytesOf(l.t, l.t.Context(), l.b.Bucket, key)), &s); err != nil || s != sim.Expect(l.spec.Work, lifeSteps) {
		return fmt.Sprintf("the result is not that of one unbroken run: %+v %v", s, err)
	}
	got, err := audit.Check(l.t.Context(), l.b.Bucket, audit.Options{Deep: true})
	if err != nil || !got.OK() {
		return fmt.Sprintf("check: %v %+v", err, got.Findings)
	}
	return ""
}

// lived runs one life in a bubble of its own, with gc of its own before the requests that at says; total is how many
// requests the life made.
func lived(t *testing.T, o Options, plan bool, at func(n int) bool) (wrong string, total, deleted int) {
	synctest.Test(t, func(t *testing.T) {
		store := mem.New()
		l := &life{t: t, plan: plan, b: &beside{Bucket: store}}
		l.b.before = func(n int, what string) {
			if at(n) {
				did, err := Run(t.Context(), store, o)
				if err != nil {
					t.Error(err)
				}
				deleted += did.Sum().Objects
			}
			if strings.HasPrefix(what, "put ") && strings.HasSuffix(what, "/open.json") { // a worker now fetches its code
				if _, err := store.Get(t.Context(), record.CodeKey(l.spec.CodeTree), bucket.Range{}); err != nil && l.code == nil {
					l.code = err
				}
			}
		}
		wrong = l.run()
		total = l.b.n
	})
	return wrong, total, deleted
}

// TestBesideAWorkerAtEachRequest: a gc before any one request of a work's whole life, and one before each of them, do no
// harm. Each protection is taken away in turn: then they do.
func TestBesideAWorkerAtEachRequest(t *testing.T) {
	each := func(o Options, plan bool) (first string) {
		_, total, _ := lived(t, o, plan, func(int) bool { return false })
		for k := 0; k <= total && first == ""; k++ {
			first, _, _ = lived(t, o, plan, func(n int) bool { return n == k || k == 0 })
		}
		return first
	}
	for _, plan := range []bool{false, true} {
		wrong, total, deleted := lived(t, everything, plan, func(int) bool { return true })
		t.Logf("%d requests; a gc before each of them deletes %d objects", total, deleted)
		if wrong != "" || total < 60 || deleted < 20 {
			t.Errorf("%s: %d requests, %d deletes", wrong, total, deleted)
		}
		if wrong := each(everything, plan); wrong != "" {
			t.Error(wrong)
		}
	}
	for name, c := range map[string]struct {
		plan    bool
		without off
	}{
		"grace":                   {false, off{grace: true}},
		"the plans in force":      {true, off{pins: true}},
		"the holder's protection": {false, off{held: true}},
		"the line's protection":   {false, off{kept: true}},
	} {
		o := everything
		o.off = c.without
		wrong := each(o, c.plan)
		if t.Logf("without %s: %.300s", name, wrong); wrong == "" {
			t.Errorf("without %s nothing breaks: the life is too tame", name)
		}
	}
}

// TestSlowGC: a gc that takes hours between two of its requests acts on what was true long ago. What it was allowed to
// delete then, nobody needs now.
func TestSlowGC(t *testing.T) {
	var deleted atomic.Int64
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			store := mem.New()
			l := &life{t: t, plan: seed%2 == 1, b: &beside{Bucket: store, before: func(int, string) {}}}
			slow := faulty.New(store, seed, faulty.Rule{Effect: faulty.Slow, Delay: time.Duration(1+seed%9) * time.Hour, Probability: 0.3})
			ctx, stop := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					for ctx.Err() == nil {
						o := everything
						o.For = 1000 * time.Hour
						did, err := Apply(ctx, slow, o)
						if err != nil && ctx.Err() == nil {
							t.Error(err)
						}
						deleted.Add(int64(did.Sum().Objects))
						time.Sleep(time.Duration(seed%5) * time.Hour)
					}
				})
			}
			if wrong := l.run(); wrong != "" {
				t.Errorf("seed %d: %s", seed, wrong)
			}
			stop()
			wg.Wait()
		})
	}
	t.Logf("%d objects deleted", deleted.Load())
	if deleted.Load() == 0 {
		t.Error("nothing was deleted")
	}
}
