package mutant_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/proof/fleet"
	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/proof/judge"
	"github.com/headway-run/headway/proof/mutant"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
	"github.com/headway-run/headway/runners/witness"
)

// stage is one store with a protection missing, a judge, and actors.
type stage struct {
	*testing.T
	w     *mutant.World
	rec   *history.Recorder
	judge *judge.Judge
	work  string
}

func newStage(t *testing.T, k mutant.Kind) *stage {
	s := &stage{T: t, w: mutant.New(k, time.Millisecond), judge: judge.New(judge.Options{}), work: strings.Repeat("5a", 32)}
	s.rec = history.Record(s.w.Store(mem.New()), s.w.View(s.judge), time.Now())
	return s
}

func (s *stage) actor(name string) bucket.Bucket { return s.w.As(s.rec.As(name)) }

func (s *stage) put(b bucket.Bucket, key string, v any) string {
	s.Helper()
	raw, err := record.Encode(v)
	if err != nil {
		s.Fatal(err)
	}
	if _, err := b.Put(s.Context(), key, bytes.NewReader(raw), bucket.Always()); err != nil {
		s.Fatal(err)
	}
	return record.Hash(raw)
}

func lease() witness.Lease { return witness.LeaseFor(0, time.Second, 0) }

// capture claims a dispatch, takes the lease for it and reserves the prefix.
func (s *stage) capture(b bucket.Bucket, dispatch int64) *witness.Holder {
	s.Helper()
	s.put(s.actor("dispatcher"), record.ClaimKey(s.work, dispatch), record.Claim{Protocol: 1, Work: s.work, Dispatch: dispatch, Nonce: record.Nonce()})
	h, err := witness.Capture(s.Context(), b, witness.CaptureRequest{Work: s.work, Dispatch: dispatch, Lease: lease()})
	if err != nil {
		s.Fatal(err)
	}
	if v := h.Open(s.Context(), record.Open{}); v.Outcome != witness.Won {
		s.Fatalf("%+v", v)
	}
	return h
}

// upload makes milestone 1 of a holder's attempt, at a step.
func (s *stage) upload(b bucket.Bucket, h *witness.Holder, step int64) record.Pointer {
	s.Helper()
	r := h.Seen().Record
	state := fmt.Appendf(nil, "step %d of attempt %d", step, r.Attempt)
	if _, err := b.Put(s.Context(), record.MilestonePrefix(s.work, r.Attempt, 1)+"state", bytes.NewReader(state), bucket.Always()); err != nil {
		s.Fatal(err)
	}
	key := record.MilestoneManifestKey(s.work, r.Attempt, 1)
	sum := s.put(b, key, record.Manifest{Protocol: 1, Work: s.work, Attempt: r.Attempt, Milestone: 1, Step: step, Parent: r.Resume,
		Files: []record.File{{Path: "state", Size: int64(len(state)), SHA256: record.Hash(state)}}})
	return record.Pointer{Attempt: r.Attempt, Milestone: 1, Step: step, Manifest: key, SHA256: sum}
}

func (s *stage) writeOff(b bucket.Bucket) {
	s.Helper()
	seen, err := witness.Read(s.Context(), b, s.work)
	if err != nil {
		s.Fatal(err)
	}
	if said, _, err := witness.Revoke(s.Context(), b, seen, "silent"); said != witness.Ended {
		s.Fatal(said, err)
	}
}

func (s *stage) text(b bucket.Bucket, key string) string {
	s.Helper()
	o, err := b.Get(s.Context(), key, bucket.Range{})
	if err != nil {
		return bucket.CodeOf(err).String()
	}
	defer o.Body.Close()
	raw, err := io.ReadAll(o.Body)
	if err != nil {
		s.Fatal(err)
	}
	return string(raw)
}

// broken fails unless the first invariant that broke is one of these; none: unless nothing broke.
func (s *stage) broken(want ...string) {
	s.Helper()
	found := s.judge.Broken()
	if len(want) == 0 && len(found) > 0 {
		s.Errorf("nothing should be broken: %v", found)
	}
	if len(want) > 0 && (len(found) == 0 || !strings.Contains(" "+strings.Join(want, " ")+" ", " "+found[0].Invariant+" ")) {
		s.Errorf("first broken: %v, want one of %v", found, want)
	}
	if len(want) > 0 && s.w.Fired() == 0 {
		s.Error("the missing protection made no difference")
	}
}

// deposed is a worker that is written off and replaced, and then renews.
func (s *stage) deposed() witness.Verdict {
	a, b, d := s.actor("a"), s.actor("b"), s.actor("dispatcher 2")
	h := s.capture(a, 1)
	s.writeOff(d)
	s.capture(b, 2)
	return h.Renew(s.Context(), witness.Progress{Step: 3}, lease())
}

func TestDeposedWorkerIsRefused(t *testing.T) {
	for kind, want := range map[mutant.Kind][]string{
		mutant.None: nil, mutant.SharedPrefix: nil, mutant.PointerApart: nil, mutant.AckFirst: nil, mutant.SideThread: nil,
		mutant.Unconditional: {"COND"}, mutant.Reread: {"REV"},
	} {
		s := newStage(t, kind)
		v := s.deposed()
		s.broken(want...)
		if over := v.Over(); over != (want == nil) {
			t.Errorf("%q: %+v", kind, v)
		}
	}
}

// A second attempt's milestone leaves the first one's as it was.
func TestAttemptsHavePrefixes(t *testing.T) {
	for _, kind := range append(mutant.All(), mutant.None) {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, kind)
			a, b, d := s.actor("a"), s.actor("b"), s.actor("dispatcher 2")
			h := s.capture(a, 1)
			p := s.upload(a, h, 3)
			time.Sleep(time.Second)
			if v := h.Advance(t.Context(), p, witness.Progress{Step: 3}, lease()); v.Outcome != witness.Won {
				t.Fatalf("%q: %+v", kind, v)
			}
			s.broken()
			if seen, err := witness.Read(t.Context(), d, s.work); err != nil || seen.Record.Resume == nil || *seen.Record.Resume != p {
				t.Errorf("%q: %+v, %v", kind, seen.Record, err)
			}
			s.writeOff(d)
			s.upload(b, s.capture(b, 2), 6)
			time.Sleep(time.Second)
			first := s.text(d, record.MilestonePrefix(s.work, 1, 1)+"state")
			if kind == mutant.SharedPrefix {
				s.broken("I1b")
				if first != "step 6 of attempt 2" {
					t.Errorf("the first attempt's state is %q", first)
				}
				return
			}
			s.broken()
			if first != "step 3 of attempt 1" {
				t.Errorf("%q: the first attempt's state is %q", kind, first)
			}
		})
	}
}

// between runs something right before the store takes a put of a key with that prefix, once.
type between struct {
	bucket.Bucket
	prefix string
	do     func()
}

func (b *between) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if do := b.do; do != nil && strings.HasPrefix(key, b.prefix) {
		b.do = nil
		do()
	}
	return b.Bucket.Put(ctx, key, body, c)
}

// A worker that is deposed while its pointer is on its way does not move it.
func TestPointerIsFenced(t *testing.T) {
	for kind, prefix := range map[mutant.Kind]string{mutant.None: "witness/", mutant.PointerApart: "pointer/"} {
		s := newStage(t, kind)
		way := &between{Bucket: s.rec.As("a"), prefix: prefix}
		a, b, d := s.w.As(way), s.actor("b"), s.actor("dispatcher 2")
		h := s.capture(a, 1)
		p := s.upload(a, h, 3)
		way.do = func() { s.writeOff(d); s.capture(b, 2) }
		v := h.Advance(t.Context(), p, witness.Progress{Step: 3}, lease())
		if !v.Over() || way.do != nil {
			t.Errorf("%q: %+v", kind, v)
		}
		seen, err := witness.Read(t.Context(), d, s.work)
		if err != nil {
			t.Fatal(err)
		}
		if kind == mutant.None {
			s.broken()
			if seen.Record.Resume != nil {
				t.Errorf("moved by a deposed worker: %+v", seen.Record)
			}
			continue
		}
		s.broken("I2")
		if seen.Record.Resume == nil || *seen.Record.Resume != p || seen.Record.Attempt != 2 {
			t.Errorf("%+v", seen.Record)
		}
	}
}

// What was acknowledged is there for everybody.
func TestAcknowledgedIsThere(t *testing.T) {
	for _, kind := range []mutant.Kind{mutant.None, mutant.AckFirst} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, kind)
			a, d := s.actor("a"), s.actor("dispatcher 2")
			h := s.capture(a, 1)
			p := s.upload(a, h, 3)
			key := record.MilestonePrefix(s.work, 1, 1) + "state"
			if got := s.text(a, key); got != "step 3 of attempt 1" {
				t.Errorf("%q: its sender reads %q", kind, got)
			}
			seen := s.text(d, key)
			v := h.Advance(t.Context(), p, witness.Progress{Step: 3}, lease())
			if v.Outcome != witness.Won {
				t.Errorf("%q: %+v", kind, v)
			}
			time.Sleep(time.Second)
			if got := s.text(d, key); got != "step 3 of attempt 1" {
				t.Errorf("%q: after a while it is %q", kind, got)
			}
			if kind == mutant.None {
				s.broken()
			} else if s.broken("I3"); seen != bucket.NotFound.String() {
				t.Errorf("it was there at once: %q", seen)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // and with its sender it dies
		w, b := mutant.New(mutant.AckFirst, time.Minute), mem.New()
		way := &dying{Bucket: b}
		a := w.As(way)
		key := record.ResultManifestKey(strings.Repeat("5a", 32), 1)
		if _, err := a.Put(t.Context(), key, strings.NewReader("x"), bucket.Always()); err != nil {
			t.Fatal(err)
		}
		way.dead.Store(true)
		time.Sleep(time.Hour)
		if _, err := b.Get(t.Context(), key, bucket.Range{}); !bucket.Is(err, bucket.NotFound) {
			t.Error("it landed after its sender's death")
		}
	})
}

type dying struct {
	bucket.Bucket
	dead atomic.Bool
}

func (d *dying) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if d.dead.Load() {
		return "", &bucket.Error{Op: "put", Key: key, Code: bucket.Denied}
	}
	return d.Bucket.Put(ctx, key, body, c)
}

// Without faults the real worker finishes as ever, whatever protection is missing, and nothing breaks: what a simulation
// finds is due to the protection alone. But for uploads that are not there yet: a finish follows its upload at once.
func TestQuietRunsAreClean(t *testing.T) {
	for _, kind := range append(mutant.All(), mutant.None) {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, kind)
			spec := record.Spec{Protocol: 1, Kind: "train", Argv: []string{"train"}, Seed: 1}
			spec.Identity = record.Identity(spec)
			spec.Work = record.Hash(spec.Identity)
			d := runners.Dispatcher{Bucket: s.actor("dispatcher 2")}
			r, err := sim.New(sim.Config{Platform: "sim", Bucket: d.Bucket, Model: sim.Model{Step: time.Second},
				Work: fleet.Config{Scratch: t.TempDir(), SideThread: kind == mutant.SideThread}.Work(),
				Port: func(n int) bucket.Bucket { return s.actor(fmt.Sprintf("worker %d", n)) }})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			out := d.Launch(t.Context(), r, []runners.Launch{{Work: spec.Work, Dispatch: 1, Spec: spec, Claim: record.Claim{Protocol: 1, Work: spec.Work,
				Dispatch: 1, Nonce: record.Nonce(), Platform: "sim", Terms: record.Terms{MilestoneSteps: 3, Steps: 10, GraceS: 20}}}})
			if out[0].Err != nil {
				t.Fatal(out[0].Err)
			}
			time.Sleep(time.Hour)
			seen, err := witness.Read(t.Context(), s.actor("reader"), spec.Work)
			if err != nil || seen.Record.State != witness.Finished || seen.Record.Resume == nil || seen.Record.Resume.Step != 9 {
				t.Errorf("%q: %+v, %v", kind, seen.Record, err)
			}
			s.judge.End()
			if kind == mutant.AckFirst {
				s.broken("I3")
				return
			}
			s.broken()
		})
	}
}
