package audit

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// work is what one work has in the store, by its listing.
type work struct {
	id       string
	spec     bool
	claims   map[int64]bool     // dispatch number → its claim is there
	nonces   map[int64]string   // dispatch number → the claim's nonce, where it could be read
	extras   map[int64][]string // dispatch number → keys of its receipt and releases
	attempts map[int64]*attempt
	chain    []record.Pointer // what the pointer leads back to, newest first
	gone     *record.Trim     // where retention ended the chain; nil: it did not

	finished, held bool // by its witness, as read before the claims are judged
}

type attempt struct {
	open bool
	end  bool
	data string       // first key that is not open.json
	last string       // manifest of its newest milestone, by the listing
	by   *record.Open // as read; nil: absent or undecodable
	went *record.End  // likewise
}

// sentences that several findings share: what to do.
const (
	doLook  = "look at the object and at who can write to the bucket, and restore it from a backup of the bucket; nothing of headway's writes over it"
	doNewer = "look at it with a newer version of headway: this one only reads what it understands"
	doNote  = "delete it if there is no backup of the bucket to restore it from: it is an account of what happened, and nothing depends on it"
)

// work checks one work: takes its keys from the listing, reads its records, then its witness.
func (c *check) work(ctx context.Context, id string, keys *listing) error {
	return c.twice(func() error { return c.look(ctx, id, keys) }, func() error { return c.look(ctx, id, c.list(record.WorkPrefix(id))) })
}

func newWork(id string) *work {
	return &work{id: id, claims: map[int64]bool{}, nonces: map[int64]string{}, extras: map[int64][]string{}, attempts: map[int64]*attempt{}}
}

func (c *check) look(ctx context.Context, id string, keys *listing) error {
	w := newWork(id)
	found := false
	for {
		it, err := keys.peek(ctx)
		if err != nil {
			return err
		}
		if it == nil || !strings.HasPrefix(it.Key, record.WorkPrefix(id)) {
			if it != nil && !found && !strings.Contains(strings.TrimPrefix(it.Key, "work/"), "/") {
				keys.next() // an object in the place of a folder
			}
			break
		}
		found = true
		c.sort(w, it.Key)
		keys.next()
	}
	if !hexDigits(id, 64) {
		key := "work/" + id
		if gone, err := c.missing(ctx, record.WitnessKey(id)); err != nil && !bucket.Is(err, bucket.BadKey) {
			return err
		} else if err == nil && !gone {
			key = record.WitnessKey(id)
		}
		c.find(key, Format, doStrange, "no key of headway: a work is named by 64 hex digits")
		return nil
	}
	c.r.Works++
	for _, step := range []func(context.Context, *work) error{c.checkSpec, c.checkAttempts, c.checkWitness, c.checkClaims} {
		if err := step(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

// sort puts one listed key where it belongs.
func (c *check) sort(w *work, key string) {
	p, ok := record.Parse(key)
	switch {
	case ok && key == record.SpecKey(w.id):
		w.spec = true
		return
	case ok && p.Dispatch > 0 && key == record.ClaimKey(w.id, p.Dispatch):
		w.claims[p.Dispatch] = true
		return
	case ok && p.Dispatch > 0 && answers(w.id, p.Dispatch, key, p.Rest):
		w.extras[p.Dispatch] = append(w.extras[p.Dispatch], key)
		return
	case ok && p.Attempt > 0 && strings.HasPrefix(key, record.AttemptPrefix(w.id, p.Attempt)):
		a := w.attempts[p.Attempt]
		if a == nil {
			a = &attempt{}
			w.attempts[p.Attempt] = a
		}
		if a.sort(w.id, p.Attempt, key, p.Rest) {
			return
		}
	}
	c.find(key, Format, doStrange, "no key of headway: nothing of this name belongs under a work")
}

// answers reports whether a key is the receipt or a release of a dispatch, or its worker's refusal.
func answers(work string, n int64, key, rest string) bool {
	if key == record.ReceiptKey(work, n) || key == record.RefusalKey(work, n) {
		return true
	}
	k, ok := record.ReleaseNumber(rest)
	return ok && key == record.ReleaseKey(work, n, k)
}

// sort notes one key below an attempt's prefix; false: no attempt has such a key.
func (a *attempt) sort(work string, n int64, key, rest string) bool {
	if rest == "open.json" {
		a.open = true
		return true
	}
	if a.data == "" {
		a.data = key
	}
	kind, below, _ := strings.Cut(rest, "/")
	switch {
	case rest == "end.json":
		a.end = true
	case kind == "log" || kind == "events":
		off, ok := record.SegmentOffset(key)
		return ok && key == record.SegmentKey(record.AttemptPrefix(work, n)+kind+"/", off)
	case kind == "result":
		return below != ""
	case kind == "milestone":
		num, file, _ := strings.Cut(below, "/")
		m, err := strconv.ParseInt(num, 10, 64)
		if err != nil || m < 1 || file == "" || !strings.HasPrefix(key, record.MilestonePrefix(work, n, m)) {
			return false
		}
		if key == record.MilestoneManifestKey(work, n, m) {
			a.last = key
		}
	default:
		return false
	}
	return true
}

// missing asks again, directly, for what a listing did not show: pages are read one after the other, and what a later
// page or the witness speaks of may have been written since.
func (c *check) missing(ctx context.Context, key string) (bool, error) {
	b, big, err := c.get(ctx, key, record.MaxRecord)
	return err == nil && b == nil && !big, err
}

// decode reads one small record that was listed; false: it was reported, or is gone.
func (c *check) decode(ctx context.Context, key, do string, v any, ours func() (protocol int, ok bool)) (bool, error) {
	b, why, err := c.small(ctx, key, record.MaxRecord, v)
	switch {
	case err != nil:
		return false, err
	case b == nil:
		return false, nil // tidied away since it was listed; where it must be there, that is asked elsewhere
	case why != "":
		c.find(key, Format, do, "%s", why)
		return false, nil
	}
	protocol, ok := ours()
	switch {
	case protocol > record.Protocol:
		c.find(key, Format, doNewer, "is written in protocol %d, this program knows %d", protocol, record.Protocol)
	case !ok || protocol < 1:
		c.find(key, Format, do, "names another work or number than its key does, or no protocol (copied from elsewhere?)")
	}
	return ok && protocol >= 1 && protocol <= record.Protocol, nil
}

// checkSpec: the work is what its identity hashes to.
func (c *check) checkSpec(ctx context.Context, w *work) error {
	const do = "restore the spec from a backup of the bucket, or delete it: the next launch writes it again from the plan; until then no worker takes the work"
	key := record.SpecKey(w.id)
	if !w.spec {
		if len(w.claims)+len(w.attempts) == 0 {
			return nil
		}
		gone, err := c.missing(ctx, key)
		if gone {
			c.find(key, Identity, "restore the spec from a backup of the bucket, or let the next launch write it again from the plan: headway apply",
				"there are claims or attempts, but no spec: it is written before the first claim")
		}
		return err
	}
	var s record.Spec
	ok, err := c.decode(ctx, key, do, &s, func() (int, bool) { return s.Protocol, s.Work == w.id })
	if !ok {
		return err
	}
	if err := record.CheckIdentity(s); err != nil { // every worker refuses such a spec
		c.find(key, Identity, do+"; look at who can write to the bucket", "is not what the work stands for: %v", err)
	}
	return nil
}

// checkClaims: numbers without a gap, each record in its place, nothing said of a dispatch that was never claimed. Of a
// work that is finished they may be tidied away: then only what is left is read.
func (c *check) checkClaims(ctx context.Context, w *work) error {
	want := int64(1)
	nonces := map[string]int64{}
	for _, n := range slices.Sorted(maps.Keys(w.claims)) {
		c.r.Dispatches++
		if want < n { // one finding for a gap, however wide
			if err := c.unclaimed(ctx, w, want, record.ClaimKey(w.id, want), "dispatch %d has no claim, but a later one has", want); err != nil {
				return err
			}
		}
		want = n + 1
		var claim record.Claim
		key := record.ClaimKey(w.id, n)
		ok, err := c.decode(ctx, key, doClaim, &claim, func() (int, bool) { return claim.Protocol, claim.Work == w.id && claim.Dispatch == n })
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if other, has := nonces[claim.Nonce]; claim.Nonce == "" {
			c.find(key, Claimed, doClaim, "has no nonce: two dispatchers could both take it for theirs")
		} else if has {
			c.find(key, Claimed, doClaim, "has no nonce of its own: dispatch %d has the same", other)
		}
		nonces[claim.Nonce], w.nonces[n] = n, claim.Nonce
	}
	for _, n := range slices.Sorted(maps.Keys(w.extras)) {
		if err := c.checkAnswers(ctx, w, n); err != nil {
			return err
		}
		if err := c.unclaimed(ctx, w, n, record.ClaimKey(w.id, n), "dispatch %d has an answer of a platform, but no claim", n); err != nil {
			return err
		}
	}
	for _, n := range slices.Sorted(maps.Keys(w.attempts)) {
		if o := w.attempts[n].by; o != nil {
			if err := c.unclaimed(ctx, w, o.Dispatch, record.OpenKey(w.id, n), "attempt %d belongs to dispatch %d, which has no claim", n, o.Dispatch); err != nil {
				return err
			}
		}
	}
	return nil
}

// doClaim is what to do where a claim is missing or is not what it should be. Nobody writes it a second time.
const doClaim = "look at who can write to the bucket, and restore the claim from a backup of it; without one leave it: the next launch takes the next number"

// unclaimed finds fault with an object that needs the claim of dispatch n, where there is none.
func (c *check) unclaimed(ctx context.Context, w *work, n int64, key, format string, args ...any) error {
	if w.finished || w.claims[n] {
		return nil
	}
	gone, err := c.missing(ctx, record.ClaimKey(w.id, n))
	if gone {
		c.find(key, Claimed, doClaim, format, args...)
	}
	return err
}

// checkAnswers: what a platform answered, and why a worker left before its capture, can be read. Only a deep check asks for it, since it is a request for each.
func (c *check) checkAnswers(ctx context.Context, w *work, n int64) error {
	if !c.o.Deep {
		return nil
	}
	for _, key := range w.extras[n] {
		if key == record.RefusalKey(w.id, n) {
			var r record.Refusal
			if _, err := c.decode(ctx, key, doNote, &r, func() (int, bool) { return r.Protocol, r.Work == w.id && r.Dispatch == n }); err != nil {
				return err
			}
			continue
		}
		if key != record.ReceiptKey(w.id, n) {
			var r record.Release
			ok, err := c.decode(ctx, key, doNote, &r, func() (int, bool) { return r.Protocol, r.Work == w.id && r.Dispatch == n })
			if err != nil {
				return err
			}
			if ok && r.Settlement != "pending" && r.Settlement != "bounded" && r.Settlement != "closed" {
				c.find(key, Format, doNote, "says %q; a platform answers pending, bounded or closed", r.Settlement)
			}
			continue
		}
		var r record.Receipt
		ok, err := c.decode(ctx, key, doNote, &r, func() (int, bool) { return r.Protocol, r.Work == w.id && r.Dispatch == n })
		if err != nil {
			return err
		}
		if claim, known := w.nonces[n]; ok && known && r.Nonce != claim {
			c.find(key, Claimed, doNote, "is the answer to another claim than the one of dispatch %d: its nonce differs", n)
		}
	}
	return nil
}

// checkAttempts: who wrote under a prefix has reserved it, once.
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
				c.find(cmp.Or(a.data, key), OneWriter, doLook, "attempt %d has written without reserving its prefix: there is no %s", n, key)
				continue
			}
		}
		var o record.Open
		ok, err := c.decode(ctx, key, doLook, &o, func() (int, bool) { return o.Protocol, o.Work == w.id && o.Attempt == n })
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		a.by = &o
		if other, has := holders[o.Holder]; !hexDigits(o.Holder, 32) {
			c.find(key, OneHolder, doLook, "attempt %d names no holder: a holder is 32 hex digits", n)
		} else if has {
			c.find(key, OneHolder, doLook, "attempt %d has no holder of its own: attempt %d has the same", n, other)
		}
		holders[o.Holder] = n
		if !a.end {
			continue
		}
		var e record.End
		ok, err = c.decode(ctx, record.EndKey(w.id, n), doNote, &e, func() (int, bool) { return e.Protocol, e.Work == w.id && e.Attempt == n })
		if err != nil {
			return err
		}
		if ok {
			a.went = &e
		}
	}
	return nil
}
