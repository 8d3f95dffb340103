package judge

import (
	"bytes"

	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/runners/record"
)

// immutable judges a write under work/.
func (j *Judge) immutable(e *history.Entry, p record.ParsedKey) {
	w := j.work(p.Work)
	old := j.objects[e.Key]
	if old != nil {
		j.again(w, e, old)
	}
	switch {
	case p.Attempt > 0:
		j.owned(w, e, p)
	case p.Dispatch > 0 && p.Rest == "json":
		j.claimed(w, e, p.Dispatch)
	case p.Dispatch > 0 && p.Rest == "receipt.json":
		j.answered(w, e, p.Dispatch)
	case p.Rest == "spec.json":
		var s record.Spec
		if record.Decode(e.Body, record.MaxRecord, &s) == nil && s.CodeTree != "" && w.code == "" {
			w.code = record.CodeKey(s.CodeTree)
			j.users[w.code] = append(j.users[w.code], w)
		}
	}
	if old != nil {
		old.body, old.sum = e.Body, ""
		return
	}
	j.objects[e.Key] = &object{body: e.Body, by: e.Actor}
}

// again: nothing under work/ is ever overwritten. The same bytes by the same actor are one write that arrived twice.
func (j *Judge) again(w *work, e *history.Entry, old *object) {
	same := bytes.Equal(old.body, e.Body)
	switch {
	case old.named && !same:
		j.fail("I1b", w, e.Key, "%s changed %s (by %s) after a witness had named it", who(e.Actor), history.Name(e.Key), who(old.by))
	case old.by != e.Actor:
		j.fail("I1", w, e.Key, "%s was written by %s and by %s", history.Name(e.Key), who(old.by), who(e.Actor))
	case !same:
		j.fail("I1", w, e.Key, "%s wrote %s twice, with different bytes", who(e.Actor), history.Name(e.Key))
	}
}

// owned judges a write under attempt/<n>/: the prefix belongs to whoever captured attempt n and reserved it.
func (j *Judge) owned(w *work, e *history.Entry, p record.ParsedKey) {
	n, name := p.Attempt, history.Name(e.Key)
	owner, has := w.owners[n]
	switch {
	case !has:
		w.owners[n] = e.Actor
	case owner != e.Actor:
		j.fail("I1", w, e.Key, "%s wrote %s, but the prefix of attempt %d belongs to %s", who(e.Actor), name, n, who(owner))
		return
	}
	if p.Rest == "open.json" {
		j.reserved(w, e, n)
		return
	}
	if !w.opened[n] {
		j.fail("OPEN", w, e.Key, "%s wrote %s before attempt %d was reserved by open.json", who(e.Actor), name, n)
	}
	if has {
		return
	}
	for _, c := range w.captures[n] {
		if c.actor == e.Actor {
			return
		}
	}
	j.fail("I1", w, e.Key, "%s wrote %s and never captured attempt %d", who(e.Actor), name, n)
}

// reserved judges an open.json.
func (j *Judge) reserved(w *work, e *history.Entry, n int64) {
	w.opened[n] = true
	var o record.Open
	name := history.Name(e.Key)
	if err := record.Decode(e.Body, record.MaxRecord, &o); err != nil || o.Work != w.id || o.Attempt != n {
		j.fail("FORMAT", w, e.Key, "%s wrote %s, which is no open record of this attempt (%v)", who(e.Actor), name, err)
		return
	}
	for _, c := range w.captures[n] {
		if c.holder != o.Holder {
			continue
		}
		if c.actor != e.Actor {
			j.fail("I1", w, e.Key, "%s wrote %s with the nonce of the capture of %s", who(e.Actor), name, who(c.actor))
		}
		if c.dispatch != o.Dispatch {
			j.fail("I8", w, e.Key, "%s wrote %s for dispatch %d, but captured for dispatch %d", who(e.Actor), name, o.Dispatch, c.dispatch)
		}
		if !same(o.Resume, c.from) {
			j.fail("I4", w, e.Key, "%s says in %s that it starts from %s, but the pointer was at %s when it captured", who(e.Actor), name, place(o.Resume), place(c.from))
		}
		return
	}
	j.fail("I1", w, e.Key, "%s wrote %s with a nonce that never captured attempt %d", who(e.Actor), name, n)
}

// claimed judges dispatch/<n>.json. A number that was used stays used, also when its claim is gone.
func (j *Judge) claimed(w *work, e *history.Entry, n int64) {
	var c record.Claim
	if err := record.Decode(e.Body, record.MaxRecord, &c); err != nil || c.Work != w.id || c.Dispatch != n {
		j.fail("FORMAT", w, e.Key, "%s wrote %s, which is no claim of this number (%v)", who(e.Actor), history.Name(e.Key), err)
	}
	if before, used := w.claims[n]; used && (before.actor != e.Actor || before.nonce != c.Nonce) {
		j.fail("I8", w, e.Key, "%s was claimed by %s and by %s", history.Name(e.Key), who(before.actor), who(e.Actor))
	}
	w.claims[n] = claim{e.Actor, c.Nonce}
	w.lastClaim = max(w.lastClaim, n)
}

// answered judges a receipt: only who claimed a number has called the platform for it.
func (j *Judge) answered(w *work, e *history.Entry, n int64) {
	var r record.Receipt
	c, claimed := w.claims[n]
	switch err := record.Decode(e.Body, record.MaxRecord, &r); {
	case err != nil || r.Work != w.id || r.Dispatch != n:
		j.fail("FORMAT", w, e.Key, "%s wrote %s, which is no receipt of this number (%v)", who(e.Actor), history.Name(e.Key), err)
	case !claimed:
		j.fail("I8", w, e.Key, "%s wrote %s, which nobody claimed: the platform was called without a claim", who(e.Actor), history.Name(e.Key))
	case r.Nonce != c.nonce || e.Actor != c.actor:
		j.fail("I8", w, e.Key, "%s wrote %s, but %s claimed that number: one of the two calls had no claim", who(e.Actor), history.Name(e.Key), who(c.actor))
	}
}
