package reconcile_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
	"github.com/headway-run/headway/runners/witness"
)

// zoo puts works into states that nothing but a person, a worker or a long time gets them out of.
type zoo struct {
	*rig
	jobs  []plan.Job
	want  map[plan.Digest]string // the state that each must have
	moves map[plan.Digest]bool   // a worker is at it: its lease changes by itself
}

const day = 24 * time.Hour

func newZoo(t *testing.T) *zoo {
	r := newRig(t, rigConfig{slots: 400, model: sim.Model{Step: time.Minute, Steps: 1 << 40, Milestone: 30}})
	z := &zoo{rig: r, want: map[plan.Digest]string{}, moves: map[plan.Digest]bool{}}
	for name, slots := range map[string]int{"full": 1, "quota": 5} {
		r.conf.Platforms[name] = plan.Platform{Name: name, Runner: "sim", Slots: slots, Capture: 30 * day}
	}
	here := r.conf.Platforms["here"]
	here.Capture = 30 * day
	r.conf.Platforms["here"] = here
	z.put(record.PlatformKey("quota"), map[string]any{"protocol": 1, "platform": "quota", "write": record.Nonce(), "series": 1,
		"class": "quota_exhausted", "park_s": (30 * day).Seconds(), "text": "weekly quota reached", "time": "-"})
	return z
}

func (z *zoo) put(key string, v any) {
	z.t.Helper()
	b, err := record.Encode(v)
	if err == nil {
		_, err = z.store.Put(z.t.Context(), key, bytes.NewReader(b), bucket.Always())
	}
	if err != nil {
		z.t.Fatal(err)
	}
}

// add names one more job of a kind, whose state must be want.
func (z *zoo) add(kind, want string, change func(*plan.Job)) plan.Job {
	j := job(fmt.Sprintf("%s-%03d", kind, len(z.jobs)), func(j *plan.Job) {
		j.On, j.Limits.Retries, j.FLOPs.Steps, j.Milestones.Steps = []string{"full"}, 1, 1<<40, 30
		if change != nil {
			change(j)
		}
	})
	z.jobs, z.want[j.Work] = append(z.jobs, j), want
	return j
}

// claimed writes a claim; answer "": no receipt.
func (z *zoo) claimed(j plan.Job, n int64, window time.Duration, answer string) {
	z.put(record.ClaimKey(string(j.Work), n), record.Claim{Protocol: 1, Work: string(j.Work), Dispatch: n, Nonce: record.Nonce(),
		Dispatcher: "zoo", Platform: "here", Runner: "sim", Job: j.Name, CaptureS: window.Seconds(), Time: "-"})
	rc := record.Receipt{Protocol: 1, Work: string(j.Work), Dispatch: n, OK: answer == "ok", Handle: []byte(`{"instance":1073741824}`), Time: "-"}
	if !rc.OK {
		rc.Class, rc.Handle = answer, nil
	}
	if answer != "" {
		z.put(record.ReceiptKey(string(j.Work), n), rc)
	}
}

// captured makes one attempt that has opened its prefix.
func (z *zoo) captured(j plan.Job, n int64) *witness.Holder {
	z.t.Helper()
	return z.promised(j, n, witness.LeaseFor(0, time.Minute, 0))
}

func (z *zoo) promised(j plan.Job, n int64, lease witness.Lease) *witness.Holder {
	z.t.Helper()
	z.claimed(j, n, time.Second, "")
	h, err := witness.Capture(z.t.Context(), z.store, witness.CaptureRequest{Work: string(j.Work), Dispatch: n, Lease: lease})
	if err != nil {
		z.t.Fatal(err)
	}
	z.won(h.Open(z.t.Context(), record.Open{Platform: "here", Time: "-"}))
	return h
}

func (z *zoo) won(v witness.Verdict) {
	z.t.Helper()
	if v.Outcome != witness.Won {
		z.t.Fatal(v)
	}
}

func (z *zoo) ended(j plan.Job, a int64, class, text string) {
	z.put(record.EndKey(string(j.Work), a), record.End{Protocol: 1, Work: string(j.Work), Attempt: a, Class: class, ExitCode: 1, Step: 7, Error: text, Time: "-"})
}

func (z *zoo) finished(j plan.Job, code int) {
	h := z.captured(j, 1)
	m := record.Manifest{Protocol: 1, Work: string(j.Work), Attempt: 1, Step: 9, Files: []record.File{}}
	b, err := record.Encode(m)
	if err != nil {
		z.t.Fatal(err)
	}
	key := record.ResultManifestKey(string(j.Work), 1)
	z.put(key, m)
	z.won(h.Finish(z.t.Context(), witness.FinishedPointer{Attempt: 1, Manifest: key, SHA256: record.Hash(b), ExitCode: code}, witness.Progress{Step: 9}))
}

func needing(in plan.Job) func(*plan.Job) {
	return func(j *plan.Job) { j.Inputs = []plan.Input{{Job: in.Name, Work: in.Work}} }
}

// family adds one work of each state.
func (z *zoo) family() {
	ctx, t := z.t.Context(), z.t
	here := func(j *plan.Job) { j.On = []string{"here"} }
	z.add("pending", plan.StateAbsent, nil)
	z.claimed(z.add("claimed", plan.StateClaimed, here), 1, 20*day, "")
	z.claimed(z.add("launched", plan.StateClaimed, here), 1, 20*day, "ok")
	z.claimed(z.add("lost", plan.StateClaimed, here), 1, 20*day, "unreachable")
	uncalled := z.add("uncalled", plan.StateAbsent, nil) // whoever claimed died each time: more often than there are retries
	for n := range int64(3) {
		z.claimed(uncalled, n+1, time.Second, "")
	}
	held := z.add("held", plan.StateHeld, here)
	z.moves[held.Work] = true
	ends := z.add("ends", plan.StateFinished, func(j *plan.Job) { j.On, j.FLOPs.Steps = []string{"here"}, 10+int64(len(z.jobs))%40 })
	z.moves[ends.Work] = true
	yielded := z.add("yielded", plan.StateYielded, nil)
	z.won(z.captured(yielded, 1).Yield(ctx, "asked to leave"))
	z.ended(yielded, 1, "yielded", "")
	revoked := z.add("revoked", plan.StateRevoked, nil)
	if got, _, err := witness.Revoke(ctx, z.store, z.captured(revoked, 1).Seen(), "silent"); err != nil || got != witness.Ended {
		t.Fatal(got, err)
	}
	stopped := z.add("stopped", plan.StateRevoked, nil)
	z.captured(stopped, 1)
	if got, err := (runners.Dispatcher{Bucket: z.store}).Revoke(ctx, string(stopped.Work), "by a person", runners.RevokeOptions{Stop: true}); err != nil || got.Answer != witness.Ended {
		t.Fatal(got, err)
	}
	z.finished(z.add("finished", plan.StateFinished, nil), 0)
	bad := z.add("bad", plan.StateFinished, nil)
	z.finished(bad, 3)
	failed := z.add("failed", plan.StateFailed, nil)
	for n := range int64(2) {
		z.won(z.captured(failed, n+1).Yield(ctx, "user_code"))
		z.ended(failed, n+1, "user_code", "ValueError")
	}
	refused := z.add("refused", plan.StateFailed, func(j *plan.Job) { j.Limits.Retries = 0 })
	z.claimed(refused, 1, time.Second, "rejected")
	z.add("parked", plan.StateAbsent, func(j *plan.Job) { j.On = []string{"quota"} })
	suspended := z.add("suspended", plan.StateAbsent, func(j *plan.Job) { j.On, j.Suspend = []string{"here"}, true })
	z.add("needs-suspended", plan.StateAbsent, needing(suspended))
	z.add("needs-failed", plan.StateAbsent, needing(failed))
	z.add("needs-bad", plan.StateAbsent, needing(bad))
	z.add("needs-held", plan.StateAbsent, needing(held))
	unreadable := z.add("unreadable", plan.StateUnknown, here)
	z.put(record.WitnessKey(string(unreadable.Work)), "half a rec")
	vanished := z.add("vanished", plan.StateUnknown, here)
	z.claimed(vanished, 1, time.Second, "")
	z.ended(vanished, 1, "yielded", "")
	z.add("secret", plan.StateAbsent, func(j *plan.Job) { j.On, j.Secrets = []string{"here"}, []string{"TOKEN"} })
	z.add("nowhere", plan.StateAbsent, func(j *plan.Job) { j.On = []string{"moon"} })
}

// shot is everything in the store but what workers write and what ended dispatches taught (which is written down beside the
// passes, whenever they allow it), as versions; of leases that workers change: whose they are.
func (z *zoo) shot() map[string]string {
	z.t.Helper()
	out := map[string]string{}
	for after := ""; ; {
		p, err := z.store.List(z.t.Context(), "", after, 1000)
		if err != nil {
			z.t.Fatal(err)
		}
		for _, it := range p.Items {
			after = it.Key
			k, ok := record.Parse(it.Key)
			if strings.HasPrefix(it.Key, record.StatsPrefix) {
				continue
			}
			if ok && z.moves[plan.Digest(k.Work)] && k.Attempt > 0 {
				continue
			}
			if w, is := strings.CutPrefix(it.Key, record.WitnessPrefix); is && z.moves[plan.Digest(w)] {
				rec := z.lease(plan.Digest(w))
				state := string(rec.State)
				switch z.want[plan.Digest(w)] {
				case plan.StateFinished:
					state = "held, or finished by its worker"
				case plan.StateRevoked:
					state = "held, or written off"
				}
				out[it.Key] = fmt.Sprintf("%s attempt %d dispatch %d floor %d", state, rec.Attempt, rec.Dispatch, rec.Floor)
				continue
			}
			out[it.Key] = string(it.Version)
		}
		if !p.More {
			return out
		}
	}
}

// drowsy are workers that renew in the last moment: between the look by which they are judged silent and the one that a
// write-off takes. dead are those that never do.
type drowsy struct {
	z       *zoo
	mu      sync.Mutex
	holders map[string]*witness.Holder
	woke    int
	dead    []plan.Job
}

// sleepers adds some of both: works that a reconciler has to act on while it is killed again and again.
func (z *zoo) sleepers() *drowsy {
	d := &drowsy{z: z, holders: map[string]*witness.Holder{}}
	for i := range 6 {
		j := z.add("silent", plan.StateAbsent, nil)
		z.moves[j.Work] = true
		if i < 3 {
			d.dead = append(d.dead, j)
		} else {
			d.holders[record.WitnessKey(string(j.Work))] = nil
		}
	}
	return d
}

// hold lets all of them take their leases, which are shorter than most reconcilers live apart.
func (d *drowsy) hold() {
	for _, j := range d.z.jobs {
		_, wakes := d.holders[record.WitnessKey(string(j.Work))]
		if !wakes && !slices.ContainsFunc(d.dead, func(o plan.Job) bool { return o.Work == j.Work }) {
			continue
		}
		h := d.z.promised(j, 1, witness.Lease{Seconds: 45, K: 10, StepS: 4})
		d.z.want[j.Work] = plan.StateRevoked
		if wakes {
			d.holders[record.WitnessKey(string(j.Work))], d.z.want[j.Work] = h, plan.StateHeld
		}
	}
}

// renew fails the test when the holder has lost its lease.
func (d *drowsy) renew(key string) {
	h := d.holders[key]
	if v := h.Renew(d.z.t.Context(), witness.Progress{Step: h.Seen().Record.Progress.Step + 1}, h.Seen().Record.Lease); v.Outcome != witness.Won {
		d.z.t.Errorf("%s was written off though it renewed: %v", key, v)
		delete(d.holders, key)
	}
}

// stirring is the store as one life sees it.
type stirring struct {
	bucket.Bucket
	d    *drowsy
	gets map[string]int
}

func (s *stirring) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	s.d.mu.Lock()
	if h := s.d.holders[key]; h != nil {
		if s.gets[key]++; s.gets[key]%2 == 0 {
			s.d.woke++
			s.d.renew(key)
		}
	}
	s.d.mu.Unlock()
	return s.Bucket.Get(ctx, key, r)
}

// listedRunner can list what runs, as the platform can that brought the zoo about: on one that can't, what receipts name is
// ended once its worker has left, which is what TestATwinOnABlindPlatformIsEnded is about.
type listedRunner struct {
	dyingRunner
	runners.Lister
}

// life is one reconciler that is killed at its n-th call; it reports how many calls it made.
func (z *zoo) life(d *reconcile.Desired, w *drowsy, passes, n int, before bool, id string) int {
	ctx, kill := context.WithCancel(z.t.Context())
	defer kill()
	dy := &dying{Bucket: &stirring{z.store, w, map[string]int{}}, r: z.sim, kill: kill, left: n, before: before}
	rec := z.reconciler(func(c *reconcile.Config) {
		one := listedRunner{dyingRunner{dy}, z.sim}
		c.Bucket, c.ID, c.Runners = dy, id, map[string]runners.Runner{"here": one, "full": one, "quota": one}
	})
	for range passes {
		rep, err := rec.Pass(ctx, d)
		if err != nil || ctx.Err() != nil {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(rep.Next):
		}
	}
	rec.Wait()
	return n - dy.left
}

// kills ends fifty lives: at any call, and every other one at or behind the point where the first pass begins to act, which
// it reaches after hundreds of calls that only look.
func (z *zoo) kills(d *reconcile.Desired, w *drowsy) {
	whole, first := z.life(d, w, 2, 1<<30, false, "whole"), z.life(d, w, 1, 1<<30, false, "first")
	rng := rand.New(rand.NewPCG(4, 50))
	killed := 0
	for i := range 100 {
		n := 1 + rng.IntN(whole)
		if i%2 == 1 {
			n = first - 10 + rng.IntN(max(whole-first, 40))
		}
		if z.life(d, w, 2, n, rng.IntN(2) == 0, fmt.Sprint("life ", i)) >= n {
			killed++
		}
		<-time.After(time.Duration(rng.IntN(120)) * time.Second)
		if killed == 50 {
			return
		}
	}
	z.t.Fatalf("%d of 100 were killed within their passes of %d calls, %d of them the first", killed, whole, first)
}

// Given a thousand works in every state there is, and a reconciler that is killed fifty times at random points.
// Then nothing in the store changes but what workers write, the platform is asked for nothing, and every work is in the
// state that it was in, or in the one that its worker brought it to. Nor is anything lost by the kills: workers that are
// dead are written off, by reconcilers that each live for less than a lease, and none that renews in the last moment.
func TestGateKilledFiftyTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newZoo(t)
		for len(z.jobs)+24 <= killedWorks-8 {
			z.family()
		}
		silent := z.sleepers()
		hold := z.add("full", plan.StateHeld, nil) // takes the one slot of its platform
		z.claimed(hold, 1, time.Second, "")
		for n := 0; len(z.jobs) < killedWorks; n++ {
			z.add("pending", plan.StateAbsent, nil)
		}
		occupy(z, hold)
		d := z.desired("c1", z.jobs...)
		all := func(c *reconcile.Config) {
			c.Runners = map[string]runners.Runner{"here": z.sim, "full": z.sim, "quota": z.sim}
		}
		z.until(z.reconciler(all), d, time.Hour, func(rep *reconcile.Report) bool { return z.settled(rep, true) == "" })
		silent.hold()
		before, meter := z.shot(), z.sim.Meter()
		z.kills(d, silent)
		if diff := cmp.Diff(before, z.shot()); diff != "" {
			t.Errorf("the store changed (-before +after):\n%s", diff)
		}
		if now := z.sim.Meter(); now.Calls[sim.OpLaunch] != meter.Calls[sim.OpLaunch] || now.Calls[sim.OpRelease] != meter.Calls[sim.OpRelease] {
			t.Errorf("platform calls %v, before the kills %v", now.Calls, meter.Calls)
		}
		for _, j := range silent.dead {
			if got := z.lease(j.Work); got.State != witness.Revoked {
				t.Errorf("%s is dead, and its lease is %s", j.Name, got.State)
			}
		}
		if silent.woke < 10 {
			t.Errorf("only %d workers renewed in the last moment", silent.woke)
		}
		<-time.After(time.Hour) // the last of those that end have ended
		for key := range silent.holders {
			silent.renew(key)
		}
		if why := z.settled(z.pass(z.reconciler(all), d), false); why != "" {
			t.Error(why)
		}
	})
}

// occupy lets a worker that renews for ever hold the lease of a work.
func occupy(z *zoo, j plan.Job) {
	z.moves[j.Work] = true
	launch := runners.Launch{Work: string(j.Work), Dispatch: 1, Job: j.Name, Claim: record.Claim{Work: string(j.Work), Dispatch: 1, Platform: "full"}}
	z.put(record.ClaimKey(string(j.Work), 1), record.Claim{Protocol: 1, Work: string(j.Work), Dispatch: 1, Nonce: "x", Platform: "full", Runner: "sim", CaptureS: 60, Time: "-"})
	if _, err := z.sim.Launch(z.t.Context(), []runners.Launch{launch}); err != nil {
		z.t.Fatal(err)
	}
	<-time.After(3 * time.Second)
}

// settled says which work is not in its state; "": all are. early: those that end may still be held.
func (z *zoo) settled(rep *reconcile.Report, early bool) string {
	for _, j := range z.jobs {
		got, want := rep.States[j.Work].State, z.want[j.Work]
		if early && want == plan.StateFinished && z.moves[j.Work] {
			want = plan.StateHeld
		}
		if got != want {
			return fmt.Sprintf("%s is %s (%s), want %s", j.Name, got, rep.States[j.Work].Reason, want)
		}
	}
	return ""
}
