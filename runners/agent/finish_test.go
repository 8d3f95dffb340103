package agent

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/runners/agent/courier"
	"github.com/headway-run/headway/runners/agent/guard"
	"github.com/headway-run/headway/runners/agent/journal"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// slowWitness takes its time for each write of the witness, and notes in which state the witness was when an end.json
// was written.
type slowWitness struct {
	bucket.Bucket
	delay atomic.Int64 // nanoseconds
	state atomic.Value // witness.State at the last end.json
}

func (s *slowWitness) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if strings.HasPrefix(key, record.WitnessPrefix) {
		time.Sleep(time.Duration(s.delay.Load())) // the bubble's clock
	}
	if strings.HasSuffix(key, "/end.json") {
		if seen, err := witness.Read(ctx, s.Bucket, testWork); err == nil {
			s.state.Store(seen.Record.State)
		}
	}
	return s.Bucket.Put(ctx, key, body, c)
}

// held is a run from the capture on, without a program, in a bubble.
func heldRun(t *testing.T, b bucket.Bucket) *run {
	t.Helper()
	h := captured(t, b, terms())
	r := &run{c: Config{Bucket: b, Work: testWork, Log: slog.New(slog.DiscardHandler)}, claim: record.Claim{Terms: terms()}, h: h, began: time.Now(), tail: &tail{}, sieve: &sieve{}, scratch: &scratch{dir: t.TempDir()}}
	if err := os.Mkdir(r.scratch.at("milestones"), 0o700); err != nil {
		t.Fatal(err)
	}
	r.logs = journal.New(t.Context(), b, record.LogPrefix(testWork, 1))
	r.happ = journal.New(t.Context(), b, record.EventPrefix(testWork, 1))
	r.ev = journal.Events{W: r.happ, Attempt: 1}
	r.out, r.words = journal.NewRedactor(io.Discard, nil), journal.NewRedactor(io.Discard, nil)
	r.d = newDesk(terms(), r.say)
	r.keep = newKeeper(r.d, h, time.Now())
	r.k = courier.New(t.Context(), courier.Config{Store: b, Work: testWork, Attempt: 1, Dir: r.scratch.at("milestones"), Report: r.d.reported})
	ctx, cancel := context.WithCancel(t.Context())
	go r.keep.run(ctx)
	t.Cleanup(func() { r.k.Close(); cancel(); <-r.keep.done })
	return r
}

// milestone hands over one milestone at a step; the pointer follows when the next step is evidence.
func (r *run) milestone(t *testing.T, step int64) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	r.d.stepped(step)
	if _, err := r.k.Stage(file, "", true, step); err != nil {
		t.Fatal(err)
	}
	r.d.took(step)
}

func (r *run) result(t *testing.T) *laid {
	t.Helper()
	l := &laid{result: t.TempDir()}
	if err := os.WriteFile(filepath.Join(l.result, "r"), []byte("1"), 0o644); err != nil {
		t.Fatal(err)
	}
	return l
}

func endOf(t *testing.T, b bucket.Bucket) (e record.End) {
	t.Helper()
	o, err := b.Get(t.Context(), record.EndKey(testWork, 1), bucket.Range{})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(o.Body).Decode(&e); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestFinishBehindASlowPointer: the wait for the last milestone ends while its pointer is on the way, and it lands a
// moment later. The result names it, and the finish is won; end.json speaks after that.
func TestFinishBehindASlowPointer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &slowWitness{Bucket: mem.New()}
		r := heldRun(t, b)
		r.milestone(t, 10)
		if _, _, err := r.d.drain(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		b.delay.Store(int64(2 * time.Second))
		r.milestone(t, 20)
		r.arrive(t.Context(), time.Second)
		l := r.result(t)
		found, why := result(l.result, nil)
		if why != "" {
			t.Fatal(why)
		}
		if exit := r.finish(t.Context(), l, found, guard.Ended{}); exit.Code != CodeFinished {
			t.Errorf("%+v", exit)
		}
		seen, err := witness.Read(t.Context(), b, testWork)
		if err != nil || seen.Record.State != witness.Finished || seen.Record.Resume.Step != 20 {
			t.Errorf("witness %+v, %v", seen.Record, err)
		}
		if e := endOf(t, b); e.Class != "finished" || b.state.Load() != witness.Finished {
			t.Errorf("end.json says %q while the witness is %v", e.Class, b.state.Load())
		}
	})
}

// refusing is a lease whose finish is refused, or has no verdict though it landed.
type refusing struct {
	bucket.Bucket
	lose atomic.Bool
}

func (s *refusing) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	o, err := s.Bucket.Get(ctx, key, r)
	if err == nil && strings.HasSuffix(key, "/result/manifest.json") && !s.lose.Load() {
		o.Body, o.Size = io.NopCloser(strings.NewReader("{}")), 2
	}
	return o, err
}

func (s *refusing) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	v, err := s.Bucket.Put(ctx, key, body, c)
	if strings.HasPrefix(key, record.WitnessPrefix) && s.lose.Load() && err == nil {
		<-ctx.Done()
		return "", &bucket.Error{Op: "put", Key: key, Code: bucket.Unknown, Err: ctx.Err()}
	}
	return v, err
}

// TestRefusedFinishYields: what is not finished does not say so, and the place is free.
func TestRefusedFinishYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &refusing{Bucket: mem.New()}
		r := heldRun(t, b)
		r.d.stepped(5)
		r.arrive(t.Context(), time.Second)
		l := r.result(t)
		found, _ := result(l.result, nil)
		if exit := r.finish(t.Context(), l, found, guard.Ended{}); exit.Class != "internal" {
			t.Errorf("%+v", exit)
		}
		seen, err := witness.Read(t.Context(), b, testWork)
		if e := endOf(t, b); err != nil || seen.Record.State != witness.Yielded || e.Class != "internal" {
			t.Errorf("witness %s, end %q, %v", seen.Record.State, e.Class, err)
		}
	})
}

// TestLandedFinishWithoutAnswers: no write of the witness is ever answered; what landed is found by reading.
func TestLandedFinishWithoutAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &refusing{Bucket: mem.New()}
		r := heldRun(t, b)
		r.d.stepped(5)
		r.arrive(t.Context(), time.Second)
		b.lose.Store(true)
		l := r.result(t)
		found, _ := result(l.result, nil)
		exit := r.finish(t.Context(), l, found, guard.Ended{})
		seen, err := witness.Read(t.Context(), b, testWork)
		if err != nil || seen.Record.State != witness.Finished || exit.Code != CodeFinished || endOf(t, b).Class != "finished" {
			t.Errorf("%+v, witness %s, end %q, %v", exit, seen.Record.State, endOf(t, b).Class, err)
		}
	})
}
