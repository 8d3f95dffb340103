package model

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/proof/judge"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// life is a random life of one work, lived by the product's own lease code over a store that loses answers, delivers
// late and delivers twice. Everything runs in one goroutine of a bubble, so a seed repeats its history.
type life struct {
	ctx     context.Context
	rng     *rand.Rand
	work    string
	log     history.Log
	rec     *history.Recorder
	late    []func()
	claims  int64
	names   int
	workers []*lived
	deleted bool
	faults  bool
}

type lived struct {
	name string
	s    bucket.Bucket
	h    *witness.Holder
	sure bool   // the prefix is reserved
	end  []byte // the result's manifest, made once
}

// rough is the way from one actor to the store.
type rough struct {
	bucket.Bucket
	l *life
}

func (r *rough) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	send := func() (bucket.Version, error) { return r.Bucket.Put(context.WithoutCancel(ctx), key, body, c) }
	lost := &bucket.Error{Op: "put", Key: key, Code: bucket.Unknown}
	dice := 99
	if r.l.faults {
		dice = r.l.rng.IntN(20)
	}
	switch dice {
	case 0: // the answer is lost
		_, _ = send()
		return "", lost
	case 1: // the request is lost
		return "", lost
	case 2: // it lands later
		r.l.late = append(r.l.late, func() { _, _ = send() })
		return "", lost
	case 3: // it arrives twice, once now and once later
		r.l.late = append(r.l.late, func() { _, _ = send() })
	case 4:
		return "", &bucket.Error{Op: "put", Key: key, Code: bucket.Raced}
	}
	return send()
}

func lease() witness.Lease { return witness.LeaseFor(1, time.Second, 15*time.Second) }

func encoded(v any) []byte {
	b, err := record.Encode(v)
	if err != nil {
		return nil // plain data
	}
	return b
}

// run lives n steps.
func (l *life) run(n int) {
	for range n {
		l.step()
		if len(l.late) > 0 && l.rng.IntN(6) == 0 {
			k := l.rng.IntN(len(l.late))
			l.late[k]()
			l.late = append(l.late[:k], l.late[k+1:]...)
		}
	}
}

func (l *life) actor(name string) *lived {
	l.names++
	name = fmt.Sprint(name, l.names)
	return &lived{name: name, s: &rough{l.rec.As(name), l}}
}

func (l *life) step() {
	ctx, cancel := context.WithTimeout(l.ctx, 30*time.Second)
	defer cancel()
	switch dice := l.rng.IntN(100); {
	case l.claims == 0 || dice < 6:
		d := l.actor("d")
		b := encoded(record.Claim{Protocol: 1, Work: l.work, Dispatch: l.claims + 1, Nonce: record.Nonce()})
		if _, err := d.s.Put(ctx, record.ClaimKey(l.work, l.claims+1), bytes.NewReader(b), bucket.IfAbsent()); err == nil {
			l.claims++
		}
	case dice < 22:
		l.launch(ctx)
	case dice < 27:
		d := l.actor("d")
		if seen, err := witness.Read(ctx, d.s, l.work); err == nil {
			_, _, _ = witness.Revoke(ctx, d.s, seen, "silent")
		}
	case dice < 29:
		_, _, _ = witness.Stop(ctx, l.actor("op").s, l.work, l.claims+1, "enough")
	case dice < 31 && l.faults && !l.deleted:
		l.deleted = true
		_ = l.rec.As("").Delete(ctx, record.WitnessKey(l.work))
	case dice < 36 && l.deleted:
		_, _ = witness.Repair(ctx, l.actor("op").s, l.work, nil, "by hand")
	case len(l.workers) > 0:
		l.works(ctx, l.workers[l.rng.IntN(len(l.workers))])
	}
}

func (l *life) launch(ctx context.Context) {
	for range 1 + l.rng.IntN(2) {
		w := l.actor("w")
		h, err := witness.Capture(ctx, w.s, witness.CaptureRequest{Work: l.work, Dispatch: max(1, l.claims-int64(l.rng.IntN(2))), Lease: lease()})
		if err != nil {
			continue
		}
		w.h = h
		l.workers = append(l.workers, w)
	}
}

// works is one step of a worker, which may have been deposed long ago.
func (l *life) works(ctx context.Context, w *lived) {
	r := w.h.Seen().Record
	if !w.sure {
		w.sure = w.h.Open(ctx, record.Open{}).Outcome == witness.Won
		return
	}
	switch dice := l.rng.IntN(12); {
	case dice < 3:
		w.h.Renew(ctx, witness.Progress{Step: 1}, lease())
	case w.end == nil && (dice < 9 || r.Resume == nil || r.Resume.Step < 30):
		if p, ok := l.snapshot(ctx, w); ok {
			w.h.Advance(ctx, p, witness.Progress{Step: p.Step}, lease())
		}
	case dice < 10:
		w.h.Yield(ctx, "notice")
	default:
		if w.end == nil {
			w.end = encoded(record.Manifest{Protocol: 1, Work: l.work, Attempt: r.Attempt, Step: 99, Parent: r.Resume})
		}
		b := w.end
		key := record.ResultManifestKey(l.work, r.Attempt)
		if _, err := w.s.Put(ctx, key, bytes.NewReader(b), bucket.Always()); err == nil && r.State == witness.Held {
			w.h.Finish(ctx, witness.FinishedPointer{Attempt: r.Attempt, Manifest: key, SHA256: record.Hash(b)}, witness.Progress{Step: 99})
		}
	}
}

func (l *life) snapshot(ctx context.Context, w *lived) (record.Pointer, bool) {
	r := w.h.Seen().Record
	p := record.Pointer{Attempt: r.Attempt, Milestone: 1, Step: 10}
	if r.Resume != nil {
		p.Step = r.Resume.Step + 10
		if r.Resume.Attempt == r.Attempt {
			p.Milestone = r.Resume.Milestone + 1
		}
	}
	text := fmt.Sprintf("model %d", p.Step)
	p.Manifest = record.MilestoneManifestKey(l.work, p.Attempt, p.Milestone)
	m := encoded(record.Manifest{Protocol: 1, Work: l.work, Attempt: p.Attempt, Milestone: p.Milestone, Step: p.Step, Parent: r.Resume,
		Files: []record.File{{Path: "model.bin", Size: int64(len(text)), SHA256: record.Hash([]byte(text))}}})
	p.SHA256 = record.Hash(m)
	if _, err := w.s.Put(ctx, strings.TrimSuffix(p.Manifest, "manifest.json")+"model.bin", strings.NewReader(text), bucket.Always()); err != nil {
		return p, false
	}
	_, err := w.s.Put(ctx, p.Manifest, bytes.NewReader(m), bucket.Always())
	return p, err == nil
}

// oneLife makes the history of one seed.
func oneLife(t *testing.T, seed uint64, faults bool, steps int) (out history.Log, work string) {
	t.Helper()
	cryptotest.SetGlobalRandom(t, seed)
	work = record.Hash(fmt.Append(nil, seed))
	synctest.Test(t, func(t *testing.T) {
		l := &life{ctx: context.Background(), rng: rand.New(rand.NewPCG(seed, 1)), work: work, faults: faults}
		l.rec = history.Record(mem.New(), &l.log, time.Now())
		l.run(steps)
		out = l.log
	})
	return out, work
}

// judged is what the other oracle says.
func judged(log history.Log) []judge.Violation {
	j := judge.New(judge.Options{HandDeletes: 1})
	for _, e := range log {
		j.Take(e)
	}
	return j.Broken()
}

func told(log history.Log) string {
	var b strings.Builder
	history.Print(&b, log)
	return b.String()
}

// TestRealTraces: what the product's lease code writes, twins, zombies, stops, deletions and lost answers included, is a
// behaviour of the model; and each action of the model is taken by some of it.
func TestRealTraces(t *testing.T) {
	var c Coverage
	writes := 0
	for seed := range uint64(150) {
		log, work := oneLife(t, seed, seed%3 != 0, 120)
		f := Follow(work)
		for _, e := range log {
			f.Take(e)
		}
		if err := f.Err(); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, told(log))
		}
		if got := judged(log); len(got) > 0 {
			t.Fatalf("seed %d: the judge sees more than the follower: %v\n%s", seed, got[0], told(log))
		}
		c.Add(f.Coverage())
		writes += len(log)
	}
	if un := c.Untaken(); len(un) > 0 {
		t.Errorf("no real trace takes %v", un)
	}
	if len(c.Outside) > 0 {
		t.Errorf("writes of the lease code that the model does not have: %v", c.Outside)
	}
	t.Logf("%d requests, taken %v", writes, c.Taken)
}
