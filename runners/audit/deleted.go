package audit

import (
	"context"
	"maps"
	"slices"

	"github.com/headway-run/headway/runners/record"
)

// deleted finds that a work which has run has no witness. What is finished is not to be computed again by the way.
func (c *check) deleted(ctx context.Context, w *work, highest int64) error {
	n, err := c.stands(ctx, w)
	if err != nil {
		return err
	}
	again := "headway doctor --repair " + w.id + " --resume " + w.from("")
	if n == 0 {
		c.find(record.WitnessKey(w.id), OneWriter, "restore it from a backup of the bucket; without one make it anew: "+again,
			"there is no witness, but attempt %d has written: it was deleted, and no launch can capture", highest)
		return nil
	}
	c.find(record.WitnessKey(w.id), Terminal, "restore it from a backup of the bucket; without one copy the result, which lies whole under "+record.ResultPrefix(w.id, n)+
		"; only if it is to be computed again: "+again+" --again", "there is no witness, but attempt %d has finished the work (its end.json says so): it was deleted", n)
	return nil
}

// stands is the last attempt that says it has finished the work and whose result is whole; 0: there is none. A worker
// says so only after the witness did. It finds fault with nothing.
func (c *check) stands(ctx context.Context, w *work) (int64, error) {
	for _, n := range slices.Backward(slices.Sorted(maps.Keys(w.attempts))) {
		if !w.attempts[n].end {
			continue
		}
		var e record.End
		b, why, err := c.small(ctx, record.EndKey(w.id, n), record.MaxRecord, &e)
		if err != nil {
			return 0, err
		}
		if b == nil || why != "" || e.Work != w.id || e.Attempt != n || e.Class != "finished" {
			continue
		}
		key := record.ResultManifestKey(w.id, n)
		if b, _, err = c.get(ctx, key, record.MaxManifest); err != nil {
			return 0, err
		}
		aside := &check{s: c.s, o: Options{Deep: c.o.Deep, Max: 1}}
		m, err := aside.snapshot(ctx, w, key, record.Hash(b), "the result", "")
		c.r.Requests += aside.r.Requests
		if err != nil {
			return 0, err
		}
		if m != nil && m.Attempt == n && m.Milestone == 0 && len(aside.now) == 0 {
			return n, nil
		}
	}
	return 0, nil
}

// Finished reads what a work without a witness has left: the attempt that says it has finished it and whose result is
// whole, every byte of it; 0: there is none, and the work may go on. Errors are the store's.
func Finished(ctx context.Context, s Store, id string) (int64, error) {
	c := &check{s: s, o: Options{Deep: true, Max: 1}}
	w, keys := newWork(id), c.list(record.AttemptsPrefix(id))
	for {
		it, err := keys.peek(ctx)
		if err != nil {
			return 0, err
		}
		if it == nil {
			return c.stands(ctx, w)
		}
		keys.next()
		c.sort(w, it.Key)
	}
}
