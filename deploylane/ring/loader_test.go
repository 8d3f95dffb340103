package ring_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/deploylane/ring"
	"github.com/headway-run/headway/deploylane/ringsim"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/faulty"
	"github.com/headway-run/headway/runners/bucket/mem"
)

// TestReleaseAndReplace: a first release serves; the second replaces it, with the catalog cleared before the unload and
// switched after the canary; the records of the first say gone.
func TestReleaseAndReplace(t *testing.T) {
	inWorld(t, t.TempDir(), nil, func(t *testing.T, p *place) {
		first, err := p.lane(&life{}).Release(t.Context(), release("r1"), nil)
		if err != nil || first.Serving == 0 {
			t.Fatalf("%+v, %v", first, err)
		}
		second, err := p.lane(&life{}).Release(t.Context(), release("r2"), nil)
		if err != nil || second.Serving <= first.Serving || second.Release != "r2" || second.RolledBack {
			t.Fatalf("%+v, %v", second, err)
		}
		if e := p.cat.entry(); e == nil || e.Route.Load != second.Serving || p.serves(e) != nil {
			t.Errorf("catalog %+v: %v", e, p.serves(e))
		}
		loads, err := p.lane(&life{}).Records.Loads(t.Context())
		if err != nil || len(loads) != 2 || loads[0].Ledger.Closed != ring.OpGone || !loads[1].Ledger.Serving || loads[1].Intent.Replaces != first.Serving {
			t.Errorf("%+v, %v", loads, err)
		}
		if out, err := p.lane(&life{}).Recover(t.Context(), thePlan(t)); err != nil || out.Serving != second.Serving {
			t.Errorf("a ring that serves is left alone: %+v, %v", out, err)
		}
	})
}

func (p *place) mustServe(name string) ring.Outcome {
	p.t.Helper()
	out, err := p.lane(&life{}).Release(p.t.Context(), release(name), nil)
	if err != nil || out.Serving == 0 || out.RolledBack {
		p.t.Fatalf("%+v, %v", out, err)
	}
	return out
}

// TestFailedReleaseRollsBack: whatever fails of a new release, the old one serves again under a generation of its own,
// and the catalog never names what failed.
func TestFailedReleaseRollsBack(t *testing.T) {
	for _, c := range []struct {
		what   string
		faults []ringsim.Fault
		spoil  func(r *ring.Release)
		says   string
	}{
		{"the answer is another", nil, func(r *ring.Release) { r.Prompts[0].Want = "something else" }, "round 1: the reply is"},
		{"the prompt is not rendered", nil, func(r *ring.Release) { r.Prompts[0].Text, r.Prompts[0].Want = "hello", "" }, `the reply ended by "length"`},
		{"a stage dies of its weights", []ringsim.Fault{{Host: "h2", At: "load/weights", Nth: 25, Do: ringsim.KillServer}}, nil, "node step37-s1: failed"},
		{"a LOAD is lost", []ringsim.Fault{{Host: "h2", At: "event/load", Nth: 2, Do: ringsim.Drop}}, nil, "no answer to LOAD"},
		{"a receipt is lost", []ringsim.Fault{{Host: "h1", At: "event/closed", Nth: 4, Do: ringsim.Drop}}, nil, "no answer to receipt"},
		{"a stage freezes before the last round", []ringsim.Fault{{Host: "h2", At: "event/session", Nth: 6, Do: ringsim.FreezeServer}}, nil, "round 3: no answer to session"},
	} {
		inWorld(t, t.TempDir(), func(w *ringsim.Config) { w.Faults = c.faults }, func(t *testing.T, p *place) {
			first := p.mustServe("r1")
			r2 := release("r2")
			if c.spoil != nil {
				c.spoil(&r2)
			}
			out, err := p.lane(&life{}).Release(t.Context(), r2, nil)
			if err != nil || !out.RolledBack || out.Release != "r1" || !strings.Contains(out.Why, c.says) {
				t.Errorf("%s: %+v, %v; want %q", c.what, out, err, c.says)
			}
			if d := cmp.Diff([]string{fmt.Sprintf("show %d", first.Serving), "clear", "clear", fmt.Sprintf("show %d", out.Serving)}, p.cat.log); d != "" {
				t.Errorf("%s: %s", c.what, d)
			}
			if wrong := p.afterwards(out, err); wrong != "" {
				t.Errorf("%s: %s", c.what, wrong)
			}
		})
	}
}

// TestBlockedSendsNothing: a ring that a guard refuses gets no command, keeps what it has, and leaves no record.
func TestBlockedSendsNothing(t *testing.T) {
	inWorld(t, t.TempDir(), nil, func(t *testing.T, p *place) {
		first := p.mustServe("r1")
		p.w.Change("h2", func(h *ringsim.Host) { h.Native.Release = "v0.8.0" })
		l := &life{}
		_, err := p.lane(l).Release(t.Context(), release("r2"), nil)
		if _, is := errors.AsType[ring.Blocked](err); !is || l.n != 0 {
			t.Errorf("%v after %v", err, l.what)
		}
		if e := p.cat.entry(); e.Route.Load != first.Serving || p.serves(e) != nil {
			t.Errorf("%+v", e)
		}
	})
}

// TestTwoReleasers: of two at once, one loads and the other touches nothing.
func TestTwoReleasers(t *testing.T) {
	inWorld(t, t.TempDir(), nil, func(t *testing.T, p *place) {
		var wg sync.WaitGroup
		outs, errs := make([]ring.Outcome, 2), make([]error, 2)
		for k := range 2 {
			l := p.lane(&life{})
			l.Dir = t.TempDir()
			wg.Go(func() {
				later(time.Duration(k) * time.Millisecond)
				outs[k], errs[k] = l.Release(t.Context(), release("r1"), nil)
			})
		}
		wg.Wait()
		served := 0
		for k := range 2 {
			if errs[k] == nil && outs[k].Serving != 0 {
				served++
			}
		}
		if served != 1 {
			t.Errorf("%d of two: %+v, %v", served, outs, errs)
		}
		out, err := p.lane(&life{}).Recover(t.Context(), thePlan(t))
		if wrong := p.afterwards(out, err); wrong != "" || out.Serving == 0 {
			t.Errorf("%s: %+v, %v", wrong, out, err)
		}
	})
}

// TestTwoAtAnyTime: whoever comes while another is at the ring disturbs nothing, at whatever step, and whatever it came for;
// who comes afterwards finds what was left.
func TestTwoAtAnyTime(t *testing.T) {
	for what, do := range map[string]func(*testing.T, *ring.Loader) (ring.Outcome, error){
		"a release": func(t *testing.T, l *ring.Loader) (ring.Outcome, error) {
			return l.Release(t.Context(), release("r3"), nil)
		},
		"a lane": func(t *testing.T, l *ring.Loader) (ring.Outcome, error) {
			return l.Ensure(t.Context(), release("r3"), nil)
		},
		"a person": func(t *testing.T, l *ring.Loader) (ring.Outcome, error) { return l.Recover(t.Context(), thePlan(t)) },
	} {
		for _, d := range []time.Duration{time.Millisecond, time.Minute, 121 * time.Second, 200 * time.Second, 4 * time.Minute} { // it drains, loads, is proven, is over
			inWorld(t, t.TempDir(), nil, func(t *testing.T, p *place) {
				p.mustServe("r1")
				late := p.lane(&life{})
				late.Dir = t.TempDir()
				var out ring.Outcome
				var err error
				var wg sync.WaitGroup
				wg.Go(func() {
					later(d)
					out, err = do(t, late)
				})
				p.mustServe("r2")
				wg.Wait()
				if over := d == 4*time.Minute; (err == nil) != over || over && out.Serving == 0 {
					t.Errorf("%s after %s: %+v, %v", what, d, out, err)
				}
				if e := p.cat.entry(); e == nil || err != nil && e.Release != "r2" || p.serves(e) != nil {
					t.Errorf("%s after %s: the catalog says %+v", what, d, e)
				}
			})
		}
	}
}

// TestStoreUnreachable: nothing at all is done.
func TestStoreUnreachable(t *testing.T) {
	inWorld(t, t.TempDir(), nil, func(t *testing.T, p *place) {
		p.mustServe("r1")
		sent := p.w.Sent()
		l := p.lane(&life{})
		down := faulty.New(p.store, 1, faulty.Rule{Effect: faulty.Refuse, Code: bucket.Unknown})
		l.Records.Store = down
		for what, do := range map[string]func() error{
			"release": func() error { _, err := l.Release(t.Context(), release("r2"), nil); return err },
			"recover": func() error { _, err := l.Recover(t.Context(), thePlan(t)); return err },
		} {
			if _, is := errors.AsType[ring.Halt](do()); !is {
				t.Errorf("%s went on without the store", what)
			}
		}
		if p.w.Sent() != sent || p.serves(p.cat.entry()) != nil {
			t.Errorf("%d events were sent", p.w.Sent()-sent)
		}
	})
}

// TestDeposedLoaderStops: one that was frozen for longer than it promised finds its lease gone, and changes nothing more.
func TestDeposedLoaderStops(t *testing.T) {
	inWorld(t, t.TempDir(), nil, func(t *testing.T, p *place) {
		p.mustServe("r1")
		l := p.lane(&life{})
		frozen := faulty.New(p.store, 1, faulty.Rule{Name: "freeze", Op: "put", Key: "*/event/*", Nth: 4, Times: 1, Effect: faulty.Slow, Delay: 4 * time.Hour})
		l.Records.Store = frozen
		done := make(chan error, 1)
		go func() {
			_, err := l.Release(t.Context(), release("r2"), nil)
			done <- err
		}()
		later(2 * time.Hour)
		out, err := p.lane(&life{}).Recover(t.Context(), thePlan(t))
		if err != nil || out.Serving == 0 {
			t.Fatalf("%+v, %v", out, err)
		}
		late := <-done
		if frozen.Fired("freeze") != 1 || late == nil {
			t.Errorf("the frozen one went on: %v", late)
		}
		if wrong := p.afterwards(out, nil); wrong != "" {
			t.Errorf("%s (%v)", wrong, late)
		}
	})
}

// TestBothRecordsLost: nodes that no record names stop everything until a person vouches for their generation; then they
// are a load like any other.
func TestBothRecordsLost(t *testing.T) {
	inWorld(t, t.TempDir(), nil, func(t *testing.T, p *place) {
		first := p.mustServe("r1")
		p.store, p.dir = mem.New(), t.TempDir()
		out, err := p.lane(&life{}).Recover(t.Context(), thePlan(t))
		if h, is := errors.AsType[ring.Halt](err); !is || !strings.Contains(h.Error(), fmt.Sprint(first.Serving)) {
			t.Fatalf("%+v, %v", out, err)
		}
		if err := p.lane(&life{}).Adopt(t.Context(), release("r1"), first.Serving+1); err == nil {
			t.Error("a generation was adopted that no node has")
		}
		if err := p.lane(&life{}).Adopt(t.Context(), release("r1"), first.Serving); err != nil {
			t.Fatal(err)
		}
		if out, err = p.lane(&life{}).Recover(t.Context(), thePlan(t)); err != nil || out.Serving != first.Serving {
			t.Errorf("%+v, %v", out, err)
		}
	})
}

// TestLocalRecordLost: the store's is enough.
func TestLocalRecordLost(t *testing.T) {
	inWorld(t, t.TempDir(), nil, func(t *testing.T, p *place) {
		p.mustServe("r1")
		p.dir = t.TempDir()
		second := p.mustServe("r2")
		if wrong := p.afterwards(second, nil); wrong != "" {
			t.Error(wrong)
		}
	})
}

// TestStoreClockWentBack: a generation is above all that were ever used, whatever the store's clock says.
func TestStoreClockWentBack(t *testing.T) {
	inWorld(t, t.TempDir(), nil, func(t *testing.T, p *place) {
		first := p.mustServe("r1")
		l := p.lane(&life{})
		l.Records.Store = slow{p.store}
		second, err := l.Release(t.Context(), release("r2"), nil)
		if err != nil || second.Serving != first.Serving+1 {
			t.Errorf("%+v, %v; want %d", second, err, first.Serving+1)
		}
	})
}

// slow is a store whose clock is hours behind.
type slow struct{ *mem.Bucket }

func (s slow) List(ctx context.Context, prefix, after string, n int) (*bucket.Page, error) {
	p, err := s.Bucket.List(ctx, prefix, after, n)
	if p != nil {
		p.Date = p.Date.Add(-5 * time.Hour)
	}
	return p, err
}

// TestEnsure: asked again and again, a release is loaded once; one that failed is not tried again by itself.
func TestEnsure(t *testing.T) {
	inWorld(t, t.TempDir(), nil, func(t *testing.T, p *place) {
		first, err := p.lane(&life{}).Ensure(t.Context(), release("r1"), nil)
		if err != nil || first.Serving == 0 {
			t.Fatalf("%+v, %v", first, err)
		}
		again := &life{}
		if out, err := p.lane(again).Ensure(t.Context(), release("r1"), nil); err != nil || out.Serving != first.Serving {
			t.Errorf("%+v, %v", out, err)
		}
		bad := release("r2")
		bad.Prompts[0].Want = "something else"
		var back ring.Outcome
		for k := range 3 {
			l := &life{}
			out, err := p.lane(l).Ensure(t.Context(), bad, nil)
			f, is := errors.AsType[ring.FailedBefore](err)
			if !is || out.Release != "r1" || !strings.Contains(f.Why, "the canary failed") || f.Serving != out.Serving {
				t.Fatalf("%d: %+v, %v", k, out, err)
			}
			if loaded := strings.Contains(strings.Join(l.what, " "), "load step37"); loaded != (k == 0) {
				t.Errorf("%d: %v", k, l.what)
			}
			back = out
		}
		if wrong := p.afterwards(back, nil); wrong != "" {
			t.Error(wrong)
		}
		good := release("r2")
		good.Since = back.Serving // asked for anew, after what failed
		if out, err := p.lane(&life{}).Ensure(t.Context(), good, nil); err != nil || out.Release != "r2" {
			t.Errorf("%+v, %v", out, err)
		}
		third, err := p.lane(&life{at: 14, after: true}).Ensure(t.Context(), release("r3"), nil)
		if err == nil {
			t.Fatalf("it did not crash: %+v", third)
		}
		later(3 * time.Hour)
		if third, err = p.lane(&life{}).Ensure(t.Context(), release("r3"), nil); err != nil || third.Release != "r3" {
			t.Errorf("%+v, %v", third, err)
		}
	})
}
