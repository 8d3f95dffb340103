package reconcile

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// A page of a listing holds pageSize keys; listsAtOnce pages are asked for side by side.
const (
	pageSize    = 1000
	listsAtOnce = 8
)

// span is a part of the leases: keys greater than after, up to upTo ("": to the end).
type span struct{ after, upTo string }

// spans cuts the leases where pages end if the store holds no others than those asked for: so many pages side by side
// cost no request more than one after the other. keys are sorted.
func spans(keys []string) []span {
	var out []span
	after := ""
	for len(keys) > pageSize {
		upTo := keys[pageSize-1]
		out = append(out, span{after, upTo})
		after, keys = upTo, keys[pageSize:]
	}
	return append(out, span{after: after})
}

// listing looks at leases by listing them.
type listing struct {
	r     *Reconciler
	get   *getter
	mu    sync.Mutex // guards what follows, and the reconciler's looks while pages come in
	want  map[string]plan.Digest
	pages int
	err   error
}

// list looks at all leases by listing them, and gets those that changed while the listing goes on.
func (r *Reconciler) list(ctx context.Context, ask []plan.Digest) error {
	l := &listing{r: r, want: make(map[string]plan.Digest, len(ask)), get: r.getter(ctx, atOnce)}
	defer l.get.take()
	keys := make([]string, len(ask))
	for i, w := range ask {
		keys[i] = record.WitnessKey(string(w))
		l.want[keys[i]] = w
	}
	slices.Sort(keys)
	began := time.Now()
	parts := spans(keys)
	if len(parts) == 1 {
		l.span(ctx, parts[0])
	} else {
		slots := make(chan struct{}, listsAtOnce)
		var wg sync.WaitGroup
		for _, s := range parts {
			slots <- struct{}{}
			wg.Go(func() {
				l.span(ctx, s)
				<-slots
			})
		}
		wg.Wait()
	}
	if l.err != nil {
		return l.err
	}
	r.pages = l.pages
	for _, key := range keys {
		w, missing := l.want[key]
		if !missing {
			continue
		}
		if k := r.looks[w]; k == nil || k.seen == nil && k.bad == "" && k.err == nil && !k.unlisted {
			r.looks[w] = &look{} // absent; whoever launches asks once more by GET
			r.silence.Idle(key, began)
		} else {
			l.get.works <- w // it vanished from the listing, which a GET has to confirm
		}
	}
	return nil
}

// span lists one part, page by page.
func (l *listing) span(ctx context.Context, s span) {
	err := eachPage(ctx, l.r.b, s, func(p *bucket.Page, now time.Time) {
		for _, w := range l.page(p, s.upTo, now) {
			l.get.works <- w
		}
	})
	if err != nil {
		l.mu.Lock()
		l.err = err
		l.mu.Unlock()
	}
}

// eachPage lists one part of the leases, page by page; now is when a page was there.
func eachPage(ctx context.Context, b bucket.Bucket, s span, take func(p *bucket.Page, now time.Time)) error {
	for after := s.after; ; {
		p, err := b.List(ctx, record.WitnessPrefix, after, pageSize)
		if err != nil {
			return err
		}
		take(p, time.Now())
		if !p.More || len(p.Items) == 0 {
			return nil
		}
		if after = p.Items[len(p.Items)-1].Key; s.upTo != "" && after >= s.upTo {
			return nil
		}
	}
}

// page takes one page, and returns the works whose lease is another one than was known.
func (l *listing) page(p *bucket.Page, upTo string, now time.Time) (changed []plan.Digest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pages++
	for _, it := range p.Items {
		w, wanted := l.want[it.Key]
		if !wanted || upTo != "" && it.Key > upTo {
			continue
		}
		delete(l.want, it.Key)
		if k := l.r.looks[w]; k != nil && k.version == it.Version && k.err == nil {
			l.r.saw(w, k, witness.Sight{Version: it.Version, Modified: it.Modified, Date: p.Date, Now: now})
		} else {
			changed = append(changed, w)
		}
	}
	return changed
}
