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
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
)

// recorder notes every request for the witness as the store saw it, and loses some answers on the way to the caller.
type recorder struct {
	bucket.Bucket
	key    string
	client int
	h      *history
}

type history struct {
	mu    sync.Mutex
	ops   []porcupine.Operation
	n     atomic.Int64
	start time.Time
}

// call is the input of an operation: a read, or a write of the record with this nonce over the version base.
type call struct {
	read      bool
	base, now bucket.Version // base "" : if absent
}

// reply is its output.
type reply struct {
	version bucket.Version // a read; "" : absent
	ok      bool           // a write
}

func (h *history) note(client int, c call, from time.Duration, r reply) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: c, Call: int64(from), Output: r, Return: int64(time.Since(h.start))})
}

func (r *recorder) Get(ctx context.Context, key string, rg bucket.Range) (*bucket.Object, error) {
	from := time.Since(r.h.start)
	o, err := r.Bucket.Get(ctx, key, rg)
	if key == r.key && (err == nil || bucket.Is(err, bucket.NotFound)) {
		v := bucket.Version("")
		if err == nil {
			v = o.Version
		}
		r.h.note(r.client, call{read: true}, from, reply{version: v})
	}
	return o, err
}

func (r *recorder) Put(ctx context.Context, key string, b bucket.Body, c bucket.Cond) (bucket.Version, error) {
	from := time.Since(r.h.start)
	v, err := r.Bucket.Put(ctx, key, b, c)
	if key != r.key {
		return v, err
	}
	base, _ := c.Is()
	switch {
	case err == nil:
		r.h.note(r.client, call{base: base, now: v}, from, reply{ok: true})
		if r.h.n.Add(1)%5 == 0 {
			return "", &bucket.Error{Op: "put", Key: key, Code: bucket.Unknown}
		}
	case bucket.CodeOf(err).Certain():
		r.h.note(r.client, call{base: base}, from, reply{})
	}
	return v, err
}

// register is one key under conditional writes.
func register() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return bucket.Version("") },
		Step: func(state, input, output any) (bool, any) {
			c, r := input.(call), output.(reply)
			switch {
			case c.read:
				return r.version == state, state
			case r.ok:
				return c.base == state, c.now
			}
			return c.base != state, state // refused: the condition did not hold
		},
		Equal: func(a, b any) bool { return a == b },
	}
}

// TestHistoriesAreLinearizable runs workers and dispatchers at once over the stores that ship, loses every fifth answer,
// and holds what the store saw against a register.
func TestHistoriesAreLinearizable(t *testing.T) {
	folder, err := dir.Open(t.TempDir(), dir.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]bucket.Bucket{"mem": mem.New(), "dir": folder} {
		t.Run(name, func(t *testing.T) {
			h := &history{start: time.Now()}
			work := workNamed(7)
			var wg sync.WaitGroup
			for i := range 6 {
				s := &recorder{Bucket: b, key: record.WitnessKey(work), client: i, h: h}
				wg.Go(func() {
					if i%2 == 0 {
						churn(t.Context(), s, work)
						return
					}
					for range 15 {
						if seen, err := Read(t.Context(), s, work); err == nil {
							_, _, _ = Revoke(t.Context(), s, seen, "silent")
						}
					}
				})
			}
			wg.Wait()
			if len(h.ops) < 50 {
				t.Fatalf("only %d operations", len(h.ops))
			}
			if got := porcupine.CheckOperationsTimeout(register(), h.ops, 20*time.Second); got != porcupine.Ok {
				t.Fatalf("history of %d operations: %s", len(h.ops), got)
			}
			second := append(slices.Clone(h.ops), porcupine.Operation{ClientId: 9, Input: call{now: "x"}, Call: int64(time.Hour),
				Output: reply{ok: true}, Return: int64(time.Hour) + 1})
			if got := porcupine.CheckOperationsTimeout(register(), second, 20*time.Second); got != porcupine.Illegal {
				t.Fatalf("the checker lets a second creation pass: %s", got)
			}
			t.Logf("%d operations, linearizable; ended at %+v", len(h.ops), mustRead(t, b, work).Record)
		})
	}
}

// churn claims, captures, renews and yields a few times.
func churn(ctx context.Context, s *recorder, work string) {
	for i := range 4 {
		n := int64(s.client + 10*i + 1)
		b, _ := record.Encode(record.Claim{Protocol: 1, Work: work, Dispatch: n, Nonce: record.Nonce()})
		_, _ = s.Put(ctx, record.ClaimKey(work, n), body(b), bucket.IfAbsent())
		h, err := Capture(ctx, s, CaptureRequest{Work: work, Dispatch: n, Lease: quick})
		if err != nil {
			continue
		}
		if v := h.Open(ctx, record.Open{Platform: fmt.Sprint(s.client)}); v.Outcome != Won {
			continue
		}
		for step := range int64(3) {
			if h.Renew(ctx, Progress{Step: step}, quick).Over() {
				break
			}
		}
		h.Yield(ctx, "done")
	}
}
