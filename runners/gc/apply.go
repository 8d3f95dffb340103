package gc

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// How deletes go out, and how often something is asked again.
const (
	lanes      = 16 // deletes at a time
	tries      = 5  // of one delete
	rounds     = 5  // of a decision whose witness moved, and of a trim record that others write
	firstPause = 50 * time.Millisecond
)

// apply deletes what was decided of a work: first what needs no note in its trim record, so that on a full store there
// is room for the note. What it still has no room for then waits until all else is done.
func (r *run) apply(ctx context.Context, v View, verdict Verdict) error {
	if err := r.pins.fresh(ctx); err != nil {
		return err
	}
	if r.pins.lane[v.Work] && !r.o.off.pins {
		r.rep.Pinned++
		return nil
	}
	for _, noted := range []bool{false, true} {
		if of(verdict, noted) == nil {
			continue
		}
		if err := r.carry(ctx, v, verdict, noted); err != nil {
			return err
		}
	}
	return nil
}

// of is the half of a verdict that needs a note, or the other one.
func of(v Verdict, noted bool) (out []Deletion) {
	for _, d := range v.Deletions {
		if d.Noted == noted {
			out = append(out, d)
		}
	}
	return out
}

// carry deletes one half of what was decided, once the work's witness, read again, still says the same. A witness that
// moved is decided on afresh, over the same listing: that one is older than every witness it is held against.
func (r *run) carry(ctx context.Context, v View, verdict Verdict, noted bool) error {
	for range rounds {
		if noted && verdict.Trim != (record.Trim{}) {
			if err := r.allow(ctx, v.Work, verdict.Trim); err != nil {
				return r.unnoted(ctx, v.Work, err)
			}
		}
		lost := r.read(ctx, &v)
		next := Decide(v, r.o)
		if next.Left != "" && lost != nil {
			r.noted(v.Work, next.Left, lost)
			return r.silent(ctx, lost)
		}
		if next.Left != "" {
			r.left(v.Work, next.Left)
			return nil
		}
		if ds := of(next, noted); len(ds) == 0 || reflect.DeepEqual(of(verdict, noted), ds) {
			return r.deletions(ctx, v.Work, ds)
		}
		verdict = next
	}
	r.left(v.Work, "its witness moved each time it was looked at: the next run looks again")
	return nil
}

// unnoted sees to a work whose trim record could not be written: what it was for stays. Where room was missing it is
// tried once more when all else is done.
func (r *run) unnoted(ctx context.Context, work string, err error) error {
	if bucket.Is(err, bucket.Full) && !r.late && ctx.Err() == nil {
		r.later = append(r.later, work)
		return nil
	}
	r.noted(work, err.Error(), err)
	switch bucket.CodeOf(err) {
	case bucket.Denied, bucket.Full, bucket.BadKey, bucket.Unsupported:
		return ctx.Err() // answered at once, and other works may have things that need no note
	case bucket.Unknown, bucket.NotFound, bucket.Condition, bucket.Raced, bucket.Gone, bucket.Throttled, bucket.NoBucket:
	}
	return r.silent(ctx, err)
}

// again looks once more at the works whose notes found no room: by now there may be some.
func (r *run) again(ctx context.Context) error {
	seen := r.rep
	r.late = true
	defer func() { // they were counted before
		r.rep.Works, r.rep.Objects, r.rep.Bytes, r.rep.Young, r.rep.Pinned = seen.Works, seen.Objects, seen.Bytes, seen.Young, seen.Pinned
	}()
	for i, work := range r.later {
		if r.full() {
			return nil
		}
		v := View{Work: work, Pinned: r.pins.lane[work] && !r.o.off.pins}
		for after := ""; ; {
			p, err := r.s.List(ctx, record.WorkPrefix(work), after, 0)
			if err != nil {
				return fmt.Errorf("list work %.12s again: %w", work, err)
			}
			for _, it := range p.Items {
				after = it.Key
				v.Objects = append(v.Objects, r.listed(it, p.Date))
			}
			if !p.More || len(p.Items) == 0 {
				break
			}
		}
		lost := r.read(ctx, &v)
		if verdict := Decide(v, r.o); lost != nil || verdict.Left != "" {
			r.noted(work, verdict.Left, lost)
		} else if err := r.apply(ctx, v, verdict); err != nil {
			r.first.Failed += len(r.later) - i - 1
			r.rep.Failed = r.first.Failed
			return err
		}
	}
	return nil
}

// deletions carries out what was decided, as far as the run's bounds allow. A thing of which something cannot be deleted
// keeps nobody else.
func (r *run) deletions(ctx context.Context, work string, ds []Deletion) error {
	for _, d := range ds {
		gone, err := r.deletion(ctx, work, d)
		switch {
		case gone == d.Objects:
			r.count(work, d.Reason, d.Prefix, gone, d.Bytes)
		case gone > 0:
			r.count(work, d.Reason, d.Prefix, gone, 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// deletion deletes one thing and says how many of its listed keys are surely gone. No phase begins before all of the
// one before it is gone.
func (r *run) deletion(ctx context.Context, work string, d Deletion) (gone int, err error) {
	if n, err := r.deleteAll(ctx, work, d.Unseen); err != nil || n < len(d.Unseen) {
		return 0, err
	}
	r.done -= len(d.Unseen) // they are hardly ever there, and a bound of one object would never get past them
	for _, keys := range d.Phases {
		n, err := r.deleteAll(ctx, work, keys)
		if gone += n; err != nil || n < len(keys) {
			return gone, err
		}
	}
	return gone, nil
}

// deleteAll deletes keys side by side, no more than the run may still delete, and says how many are surely gone. What
// cannot be deleted is noted; an error is the end of the run.
func (r *run) deleteAll(ctx context.Context, work string, keys []string) (gone int, err error) {
	for done := 0; done < len(keys); {
		if r.full() {
			return gone, nil
		}
		batch := keys[done:min(done+lanes, done+r.o.Max-r.done, len(keys))]
		n, err := r.settle(ctx, work, batch, r.side(ctx, batch, r.delete))
		done, gone = done+len(batch), gone+n
		if err != nil {
			return gone, err
		}
	}
	return gone, nil
}

// side deletes keys side by side; each error is of the key at its place.
func (r *run) side(ctx context.Context, keys []string, one func(context.Context, string) error) []error {
	began := time.Now()
	errs := make([]error, len(keys))
	var wg sync.WaitGroup
	for i, key := range keys {
		wg.Go(func() { errs[i] = one(ctx, key) })
	}
	wg.Wait()
	r.spent += time.Since(began)
	return errs
}

// settle counts what a batch of deletes came to. It is an error when no other delete will fare better: the run was
// ended, the bucket is gone, or nothing but refusals came for too many batches on end.
func (r *run) settle(ctx context.Context, work string, keys []string, errs []error) (gone int, end error) {
	var refused error
	for i, err := range errs {
		if err == nil {
			gone++
			continue
		}
		r.failed(work, keys[i], err)
		if !bucket.Is(err, bucket.BadKey) {
			refused = err
		}
		if ctx.Err() != nil || bucket.Is(err, bucket.NoBucket) {
			end = cmp.Or(end, err)
		}
	}
	r.done += gone
	switch {
	case gone > 0:
		r.barren = 0
	case refused != nil:
		if r.barren++; r.barren > mostSilent {
			end = cmp.Or(end, fmt.Errorf("nothing could be deleted %d times on end: %w", r.barren, refused))
		}
	}
	return gone, end
}

// failed notes a key that was due and could not be deleted.
func (r *run) failed(work, key string, err error) {
	why := err.Error()
	if e, is := errors.AsType[*bucket.Error](err); is { // it names the key as well, cut
		why = fmt.Sprint(e.Code)
		if e.Err != nil {
			why += ": " + e.Err.Error()
		}
	}
	r.noted(work, fmt.Sprintf("%s cannot be deleted (%s)", shown(key), why), err)
}

// noted counts something that was due and stayed.
func (r *run) noted(work, text string, err error) {
	r.left(work, text)
	if r.first.Failed++; r.first.First == "" {
		r.first.First, r.first.Err = printable(text, mostText), err
	}
	r.rep.Failed = r.first.Failed
}

// stuck notes the keys that no store deletes. A run that only looks promises nothing of them.
func (r *run) stuck(work string, keys []string) {
	for _, key := range keys {
		err := bucket.CheckKey("delete", key)
		if r.b != nil {
			r.failed(work, key, err)
			continue
		}
		r.left(work, fmt.Sprintf("%s cannot be deleted by headway (an odd key): remove it by hand in the store itself", shown(key)))
	}
}

// delete removes one key. An answer that was lost is asked for again: a delete of what is gone is no error.
func (r *run) delete(ctx context.Context, key string) (err error) {
	for try := range tries {
		if try > 0 {
			select {
			case <-ctx.Done():
				return errors.Join(err, ctx.Err())
			case <-time.After(firstPause << try):
			}
		}
		if err = r.once(ctx, key); err == nil || !passes(err) {
			return err
		}
	}
	return err
}

// once asks for one delete once.
func (r *run) once(ctx context.Context, key string) error {
	r.asked.Add(1)
	err := r.b.Delete(ctx, key)
	if bucket.Is(err, bucket.NotFound) || bucket.Is(err, bucket.Gone) {
		return nil
	}
	return err
}

// passes reports a failure that may be over when the same is asked again.
func passes(err error) bool {
	switch bucket.CodeOf(err) {
	case bucket.Unknown, bucket.Throttled, bucket.Raced:
		return true
	case bucket.NotFound, bucket.Gone, bucket.Condition, bucket.Denied, bucket.NoBucket, bucket.Full, bucket.BadKey, bucket.Unsupported:
	}
	return false
}

// trim reads what retention has taken from a work before, with its version; "": there is no record.
func (r *run) trim(ctx context.Context, work string) (t record.Trim, v bucket.Version, err error) {
	b, v, err := whole(ctx, r.s, record.TrimKey(work), record.MaxRecord)
	if bucket.Is(err, bucket.NotFound) {
		return record.Trim{}, "", nil
	}
	if err != nil && !errors.Is(err, errBig) {
		return t, "", err
	}
	if err != nil || record.Decode(b, record.MaxRecord, &t) != nil || t.Work != work || t.Protocol > record.Protocol {
		return t, "", fmt.Errorf("%s is no trim record of this work that this version reads: remove it by hand, and headway doctor --deep shows what it allowed", record.TrimKey(work))
	}
	return t, v, nil
}

// allow sees to it that the work's trim record allows what is about to go, before it goes.
func (r *run) allow(ctx context.Context, work string, want record.Trim) (err error) {
	for range rounds {
		old, version, rerr := r.trim(ctx, work)
		if rerr != nil {
			return rerr
		}
		if version != "" && old.Covers(want) {
			return nil
		}
		next := old.Join(want)
		next.Protocol, next.Work, next.Write, next.Time = record.Protocol, work, record.Nonce(), time.Now().UTC().Format(time.RFC3339)
		body, eerr := record.Encode(next)
		if eerr != nil {
			return eerr
		}
		cond := bucket.IfAbsent()
		if version != "" {
			cond = bucket.IfIs(version)
		}
		r.asked.Add(1)
		if _, err = r.b.Put(ctx, record.TrimKey(work), bytes.NewReader(body), cond); err == nil {
			return nil
		}
		switch code := bucket.CodeOf(err); code {
		case bucket.Denied, bucket.NoBucket, bucket.Full, bucket.BadKey, bucket.Unsupported:
			return noNote(work, err)
		case bucket.Unknown, bucket.NotFound, bucket.Condition, bucket.Raced, bucket.Gone, bucket.Throttled:
		}
		// Whatever the answer was, what lies there now says whether this write, or another's as good, has landed.
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(firstPause):
		}
	}
	return noNote(work, err)
}

func noNote(work string, err error) error {
	hint := ""
	if bucket.Is(err, bucket.Full) {
		hint = "; all that needs no note is deleted first, and made too little room: make some by hand, and run gc again"
	}
	return fmt.Errorf("note what retention lets go of work %.12s: %w%s", work, err, hint)
}
