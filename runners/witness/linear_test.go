package witness

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/dir"
	"github.com/headway-run/headway/runners/bucket/faulty"
	"github.com/headway-run/headway/runners/bucket/mem"
)

// checked is what some histories came to.
type checked struct {
	mu                          sync.Mutex
	histories, ops, open, wrong int
	unsure                      int // histories that the checker got no verdict on in time
	answers                     map[string]int
	first                       []op // of the first that no order explains
}

// patience is how long the checker may look for an order. Sound histories take it milliseconds.
const patience = 30 * time.Second

func (c *checked) add(ops []op) {
	got := porcupine.CheckOperationsTimeout(lease(), asHistory(ops), patience)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.histories++
	c.ops += len(ops)
	for _, o := range ops {
		c.answers[fmt.Sprint(o.Kind, " ", o.Answer)]++
		if o.Answer == unknown {
			c.open++
		}
	}
	if got == porcupine.Ok {
		return
	}
	if got == porcupine.Unknown {
		c.unsure++
		return
	}
	c.wrong++
	if c.first == nil {
		c.first = ops
	}
}

// explain prints a history that no order explains.
func (c *checked) explain(t *testing.T) {
	slices.SortFunc(c.first, func(a, b op) int { return int(a.From - b.From) })
	for _, o := range c.first {
		t.Logf("%10d-%-10d client %d %-8s %-9s dispatch %d step %d floor %d judged %d -> %+v", o.From, o.To, o.Client, o.Kind, o.Answer, o.Dispatch, o.Step, o.Floor, o.Judged.Rev, o.Seen)
	}
}

// shape of a run: how many histories, how many of them at once, what happens in each, and how long an operation may take.
type shape struct {
	histories, atOnce, clients, rounds int
	limit                              time.Duration
}

// run plays histories over one store, each on a work of its own.
func (c *checked) run(t *testing.T, b bucket.Bucket, s shape, change func([]op)) {
	c.answers = map[string]int{}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range s.atOnce {
		wg.Go(func() {
			for i := int(next.Add(1)); i <= s.histories; i = int(next.Add(1)) {
				ops := oneHistory(t.Context(), b, uint64(i), s)
				change(ops)
				c.add(ops)
			}
		})
	}
	wg.Wait()
}

func oneHistory(ctx context.Context, b bucket.Bucket, seed uint64, s shape) []op {
	start := time.Now()
	now := func() int64 { return int64(time.Since(start)) }
	parts := make([][]op, s.clients)
	var wg sync.WaitGroup
	for id := range s.clients {
		c := newClient(id, seed, b, s.limit, now)
		wg.Go(func() { parts[id] = c.play(ctx, s.rounds) })
	}
	wg.Wait()
	return slices.Concat(parts...)
}

func asIs([]op) {}

// sound wants every history to have an explanation, and every sort of answer to have come.
func (c *checked) sound(t *testing.T) {
	t.Helper()
	t.Logf("%d histories, %d operations, %d of them without an answer: %d not linearizable; %v", c.histories, c.ops, c.open, c.wrong, c.answers)
	if c.unsure > 0 {
		t.Errorf("no verdict on %d histories in %s each", c.unsure, patience)
	}
	if c.wrong > 0 {
		c.explain(t)
		t.Fatalf("%d of %d histories are not linearizable", c.wrong, c.histories)
	}
	for _, want := range []string{"read done", "capture done", "capture elsewhere", "renew done", "renew deposed", "advance done", "yield done", "revoke done", "revoke over", "stop done"} {
		if c.answers[want] == 0 {
			t.Errorf("no operation came out as %q", want)
		}
	}
	if c.open < c.histories/10 {
		t.Errorf("only %d answers were lost", c.open)
	}
}

// TestHistoriesAreLinearizable: whatever workers and dispatchers were told by a store that loses, delays and doubles, some
// order of their operations explains it, one at a time.
func TestHistoriesAreLinearizable(t *testing.T) {
	folder, err := dir.Open(t.TempDir(), dir.Options{Create: true, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("mem", func(t *testing.T) {
		t.Parallel()
		c := &checked{}
		c.run(t, mem.New(), shape{220, 16, 5, 4, 160 * time.Millisecond}, asIs)
		c.sound(t)
	})
	t.Run("dir", func(t *testing.T) {
		t.Parallel()
		c := &checked{}
		c.run(t, folder, shape{200, 16, 4, 2, 160 * time.Millisecond}, asIs)
		c.sound(t)
	})
}

// forgetful drops the condition of every tenth conditional write of a witness.
type forgetful struct {
	bucket.Bucket
	n atomic.Int64
}

func (f *forgetful) Put(ctx context.Context, key string, b bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if c != bucket.Always() && f.n.Add(1)%10 == 0 {
		c = bucket.Always()
	}
	return f.Bucket.Put(ctx, key, b, c)
}

// TestBrokenStoresAreSeen: the check above would notice a store that forgets conditions, and one whose reads are stale,
// by what its clients were told alone: the tripwires of the protocol are taken out of the histories.
func TestBrokenStoresAreSeen(t *testing.T) {
	quiet := func(ops []op) {
		for i := range ops {
			if ops[i].Answer == violation {
				ops[i].Answer = unknown
			}
		}
	}
	for name, b := range map[string]bucket.Bucket{
		"forgets conditions": &forgetful{Bucket: mem.New()},
		"stale reads":        faulty.New(mem.New(), 1, faulty.Rule{Op: "get", Key: "witness/*", Effect: faulty.Stale, Probability: 0.1}),
	} {
		t.Run(name, func(t *testing.T) {
			c := &checked{}
			c.run(t, b, shape{60, 16, 5, 4, 160 * time.Millisecond}, quiet)
			t.Logf("%d of %d histories are not linearizable (%d operations)", c.wrong, c.histories, c.ops)
			if c.wrong < 3 {
				t.Errorf("a store that %s: only %d of %d histories were refused", name, c.wrong, c.histories)
			}
		})
	}
}
