package audit

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// work is what one work has in the store, by its listing.
type work struct {
	id       string
	spec     bool
	claims   map[int64]bool     // dispatch number → its claim is there
	extras   map[int64][]string // dispatch number → keys of its receipt and releases
	attempts map[int64]*attempt
	chain    map[record.Pointer]bool // what the pointer leads back to
}

type attempt struct {
	open bool
	end  bool
	data string          // first key that is not open.json
	by   *record.Open    // as read; nil: absent or undecodable
	heir *record.Pointer // what the first snapshot of this attempt on the chain grew from
	root bool            // … and that it grew from nothing
}

// sentences that several findings share: what to do.
const (
	doLook     = "look at the object and at who can write to the bucket; headway leaves it alone"
	doWitness  = "launch nothing for this work; restore the witness from a backup of the bucket, or repair it by hand"
	doSnapshot = "restore the object from a backup of the bucket, or start the work again under another seed or replica"
)

// work checks one work: takes its keys from the listing, reads its records, then its witness.
func (c *check) work(ctx context.Context, id string, keys *listing) error {
	w := &work{id: id, claims: map[int64]bool{}, extras: map[int64][]string{}, attempts: map[int64]*attempt{}, chain: map[record.Pointer]bool{}}
	found := false
	for {
		it, err := keys.peek(ctx)
		if err != nil {
			return err
		}
		if it == nil || !strings.HasPrefix(it.Key, record.WorkPrefix(id)) {
			if it != nil && !found && !strings.Contains(strings.TrimPrefix(it.Key, "work/"), "/") {
				c.find(it.Key, Format, doLook, "no key of headway: work/ holds folders named by a work")
				keys.next()
			}
			break
		}
		found = true
		c.sort(w, it.Key)
		keys.next()
	}
	if !isWork(id) {
		c.find(id, Format, doLook, "%q is no work: a work is 64 hex digits", id)
		return nil
	}
	c.r.Works++
	for _, step := range []func(context.Context, *work) error{c.checkSpec, c.checkClaims, c.checkAttempts, c.checkWitness} {
		if err := step(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

func isWork(id string) bool {
	return len(id) == 64 && strings.Trim(id, "0123456789abcdef") == ""
}

// sort puts one listed key where it belongs.
func (c *check) sort(w *work, key string) {
	p, ok := record.Parse(key)
	switch {
	case ok && p.Rest == "spec.json" && p.Attempt == 0 && p.Dispatch == 0:
		w.spec = true
	case ok && p.Dispatch > 0 && key == record.ClaimKey(w.id, p.Dispatch):
		w.claims[p.Dispatch] = true
	case ok && p.Dispatch > 0 && strings.HasPrefix(key, strings.TrimSuffix(record.ClaimKey(w.id, p.Dispatch), "json")):
		w.extras[p.Dispatch] = append(w.extras[p.Dispatch], key)
	case ok && p.Attempt > 0 && strings.HasPrefix(key, record.AttemptPrefix(w.id, p.Attempt)):
		a := w.attempts[p.Attempt]
		if a == nil {
			a = &attempt{}
			w.attempts[p.Attempt] = a
		}
		switch {
		case p.Rest == "open.json":
			a.open = true
		case a.data == "":
			a.data = key
		}
		a.end = a.end || p.Rest == "end.json"
	default:
		c.find(key, Format, doLook, "no key of headway: nothing of this name belongs under a work")
	}
}

// missing asks again, directly, for what a listing did not show: pages are read one after the other, and what a later
// page or the witness speaks of may have been written since.
func (c *check) missing(ctx context.Context, key string) (bool, error) {
	b, big, err := c.get(ctx, key, record.MaxRecord)
	return err == nil && b == nil && !big, err
}

// decode reads one small record; false: it was reported.
func (c *check) decode(ctx context.Context, key string, v any, ours func() bool) (bool, error) {
	b, big, err := c.get(ctx, key, record.MaxRecord)
	switch {
	case err != nil:
		return false, err
	case b == nil:
		c.find(key, Format, doLook, "was listed and is not there: somebody deletes while this runs")
		return false, nil
	case big:
		c.find(key, Format, doLook, "is too big for a record")
		return false, nil
	}
	if err := record.Decode(b, record.MaxRecord, v); err != nil {
		c.find(key, Format, doLook, "is no record: %v", err)
		return false, nil
	}
	if !ours() {
		c.find(key, Format, doLook, "names another work or number than its key, or a newer protocol (copied from elsewhere?)")
		return false, nil
	}
	return true, nil
}

// checkSpec: the work is what its identity hashes to.
func (c *check) checkSpec(ctx context.Context, w *work) error {
	key := record.SpecKey(w.id)
	if !w.spec {
		if len(w.claims)+len(w.attempts) > 0 {
			c.find(key, Identity, "launch nothing for this work: a worker can't know what to do; restore the spec from a backup of the bucket",
				"there are claims or attempts, but no spec: it is written before the first claim")
		}
		return nil
	}
	var s record.Spec
	ok, err := c.decode(ctx, key, &s, func() bool { return s.Work == w.id && s.Protocol <= record.Protocol })
	if !ok {
		return err
	}
	if err := record.CheckIdentity(s); err != nil { // every worker refuses such a spec
		c.find(key, Identity, "restore the spec from a backup of the bucket: no worker takes this one; look at who can write to the bucket",
			"is not what the work stands for: %v", err)
	}
	return nil
}

// checkClaims: numbers without a gap, each record in its place, nothing said of a dispatch that was never claimed.
func (c *check) checkClaims(ctx context.Context, w *work) error {
	want := int64(1)
	nonces := map[string]int64{}
	for _, n := range slices.Sorted(maps.Keys(w.claims)) {
		c.r.Dispatches++
		for ; want < n; want++ {
			gone, err := c.missing(ctx, record.ClaimKey(w.id, want))
			if err != nil {
				return err
			}
			if !gone {
				continue
			}
			c.find(record.ClaimKey(w.id, want), Claimed, "look at who can write to the bucket; the next launch takes the next number",
				"dispatch %d has no claim, but a later one has", want)
			break // one finding for a gap, however wide
		}
		want = n + 1
		var claim record.Claim
		key := record.ClaimKey(w.id, n)
		ok, err := c.decode(ctx, key, &claim, func() bool {
			return claim.Work == w.id && claim.Dispatch == n && claim.Protocol <= record.Protocol
		})
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if other, has := nonces[claim.Nonce]; has || claim.Nonce == "" {
			c.find(key, Claimed, doLook, "has no nonce of its own (dispatch %d has the same)", other)
		}
		nonces[claim.Nonce] = n
	}
	for _, n := range slices.Sorted(maps.Keys(w.extras)) {
		if err := c.checkAnswers(ctx, w, n); err != nil {
			return err
		}
		if w.claims[n] {
			continue
		}
		gone, err := c.missing(ctx, record.ClaimKey(w.id, n))
		if err != nil {
			return err
		}
		if gone {
			c.find(record.ClaimKey(w.id, n), Claimed, doLook, "dispatch %d has an answer of a platform, but no claim", n)
		}
	}
	return nil
}

// checkAnswers: what a platform answered can be read. Only a deep check asks for it, since it is a request for each.
func (c *check) checkAnswers(ctx context.Context, w *work, n int64) error {
	if !c.o.Deep {
		return nil
	}
	for _, key := range w.extras[n] {
		var rc record.Receipt
		var rl record.Release
		v, ours := any(&rl), func() bool { return rl.Work == w.id && rl.Dispatch == n && rl.Protocol <= record.Protocol }
		if key == record.ReceiptKey(w.id, n) {
			v, ours = &rc, func() bool { return rc.Work == w.id && rc.Dispatch == n && rc.Protocol <= record.Protocol }
		}
		if _, err := c.decode(ctx, key, v, ours); err != nil {
			return err
		}
	}
	return nil
}

// checkAttempts: who wrote under a prefix has reserved it, once, for a claimed dispatch.
func (c *check) checkAttempts(ctx context.Context, w *work) error {
	holders := map[string]int64{}
	for _, n := range slices.Sorted(maps.Keys(w.attempts)) {
		c.r.Attempts++
		a, key := w.attempts[n], record.OpenKey(w.id, n)
		if !a.open {
			gone, err := c.missing(ctx, key)
			if err != nil {
				return err
			}
			if gone {
				c.find(cmp.Or(a.data, key), OneWriter, doLook, "attempt %d has written without reserving its prefix (no open.json)", n)
				continue
			}
		}
		var o record.Open
		ok, err := c.decode(ctx, key, &o, func() bool { return o.Work == w.id && o.Attempt == n && o.Protocol <= record.Protocol })
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		a.by = &o
		if other, has := holders[o.Holder]; has || o.Holder == "" {
			c.find(key, OneHolder, doLook, "attempt %d has no holder of its own (attempt %d has the same)", n, other)
		}
		holders[o.Holder] = n
		if !w.claims[o.Dispatch] {
			c.find(key, Claimed, doLook, "attempt %d belongs to dispatch %d, which has no claim", n, o.Dispatch)
		}
		if a.end {
			var e record.End
			if _, err := c.decode(ctx, record.EndKey(w.id, n), &e, func() bool { return e.Work == w.id && e.Attempt == n && e.Protocol <= record.Protocol }); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkWitness reads the witness, last, and holds the rest of the work against it.
func (c *check) checkWitness(ctx context.Context, w *work) error {
	key := record.WitnessKey(w.id)
	highest := int64(0)
	for n := range w.attempts {
		highest = max(highest, n)
	}
	b, big, err := c.get(ctx, key, witness.MaxRecord)
	if err != nil {
		return err
	}
	if b == nil {
		if highest > 0 {
			c.find(key, OneWriter, doWitness, "there is no witness, but attempt %d has written: it was deleted, and no launch can capture", highest)
		}
		return nil
	}
	c.r.Witnesses++
	if big {
		c.find(key, Format, doLook, "is too big for a witness")
		return nil
	}
	r, err := witness.Decode(w.id, b)
	if err != nil {
		c.find(key, Format, doLook, "%v", err)
		return nil
	}
	if highest > r.Attempt {
		if r.State == witness.Finished {
			c.find(key, Terminal, doWitness, "attempt %d has written, but attempt %d had finished the work", highest, r.Attempt)
		} else {
			c.find(key, OneWriter, doWitness, "attempt %d has written, but the witness is at attempt %d: it was rolled back", highest, r.Attempt)
		}
	}
	if r.Dispatch > 0 && !w.claims[r.Dispatch] {
		gone, err := c.missing(ctx, record.ClaimKey(w.id, r.Dispatch))
		if err != nil {
			return err
		}
		if gone {
			c.find(key, Claimed, doLook, "was captured for dispatch %d, which has no claim", r.Dispatch)
		}
	}
	if a := w.attempts[r.Attempt]; r.State == witness.Held && a != nil && a.by != nil && a.by.Holder != r.Holder {
		c.find(record.OpenKey(w.id, r.Attempt), OneHolder, doWitness, "attempt %d was reserved by another holder than the one in the witness", r.Attempt)
	}
	if err := c.checkChain(ctx, w, r.Resume); err != nil {
		return err
	}
	if r.State == witness.Finished {
		c.r.Finished++
		return c.checkResult(ctx, w, &r)
	}
	return nil
}
