package reconcile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// forceFormat is the version of inForce as it is stored.
const forceFormat = 1

// forcePrefix holds one record per plan repository on this store, written by compare-and-swap alone.
const forcePrefix = "accepted/"

// forceKey is where a root's plan in force lies.
func forceKey(root string) string {
	if root == "" {
		return forcePrefix + "-"
	}
	return forcePrefix + url.PathEscape(root)
}

// inForce is the plan that a store goes by for one root: what was accepted last, what is on its way out, and what was
// refused since.
type inForce struct {
	Format  int         `json:"format"`
	Rev     int64       `json:"rev"`
	Write   string      `json:"write"` // random, fresh on every write
	Clean   string      `json:"clean"` // last commit that was accepted without an error
	Leaving []departing `json:"leaving,omitempty"`
	Refused *refused    `json:"refused,omitempty"`
	// Limits says since when those of a work are what they are, by the store's time; one that is not named: from its first launch on.
	Limits map[plan.Digest]string `json:"limits,omitempty"`
	Plan   json.RawMessage        `json:"plan"` // plan.Accepted

	plan plan.Accepted
}

// refused is the last commit that was not followed, kept so that it is said once, whoever looks.
type refused struct {
	Commit string   `json:"commit"`
	Codes  []string `json:"codes"`
	Text   string   `json:"text"`
}

func (f *inForce) jobs() []plan.AcceptedJob {
	if f == nil {
		return nil
	}
	return f.plan.Jobs
}

func (f *inForce) empty() bool { return f == nil || len(f.plan.Jobs)+len(f.Leaving) == 0 }

func (f *inForce) commit() string {
	if f == nil {
		return ""
	}
	return f.plan.Commit
}

// equal compares what is in force, not how it is stored.
func (f *inForce) equal(o *inForce) bool {
	if f == nil || o == nil {
		return f == o
	}
	same := func(a, b plan.AcceptedJob) bool {
		return a.Name == b.Name && a.Group == b.Group && a.Work == b.Work && a.OnDelete == b.OnDelete &&
			bytes.Equal(a.Placement, b.Placement) && bytes.Equal(a.Metadata, b.Metadata)
	}
	gone := func(a, b departing) bool { return a.Work == b.Work && a.Waits == b.Waits && a.OnDelete == b.OnDelete }
	return f.Clean == o.Clean && f.plan.Commit == o.plan.Commit && f.plan.Root == o.plan.Root &&
		slices.EqualFunc(f.plan.Jobs, o.plan.Jobs, same) && slices.EqualFunc(f.Leaving, o.Leaving, gone)
}

// stored is one root's record with its version; a nil force is a record that is absent.
type stored struct {
	version bucket.Version
	force   *inForce
	date    time.Time // the store's, when it was asked last,
	heard   time.Time // and when its answer was there
}

// now is the store's time; zero: it was not heard.
func (s stored) now() time.Time {
	if s.date.IsZero() {
		return time.Time{}
	}
	return s.date.Add(time.Since(s.heard))
}

// Accepted reads the plan that is in force for a root (plan.Config.Name); nil: none was accepted yet. It writes
// nothing.
func (r *Reconciler) Accepted(ctx context.Context, root string) (*plan.Accepted, error) {
	if err := r.enter(ctx); err != nil {
		return nil, err
	}
	defer r.leave()
	s, err := r.loadForce(ctx, root)
	if err != nil || s.force == nil {
		return nil, err
	}
	a := s.force.plan
	return &a, nil
}

// loadForce reads what is in force; it costs one small request while nothing changed, however large the plan is.
func (r *Reconciler) loadForce(ctx context.Context, root string) (stored, error) {
	key := forceKey(root)
	p, err := r.b.List(ctx, key, "", 1)
	if err != nil {
		return stored{}, fmt.Errorf("read the accepted plan: %w", err)
	}
	s, heard := stored{}, time.Now()
	if len(p.Items) > 0 && p.Items[0].Key == key {
		s, err = r.getForce(ctx, key, p.Items[0].Version)
	}
	s.date, s.heard = p.Date, heard
	return s, err
}

// getForce gets a record unless the version at hand is the one that was listed.
func (r *Reconciler) getForce(ctx context.Context, key string, listed bucket.Version) (stored, error) {
	if s, ok := r.forces[key]; ok && s.version == listed {
		return s, nil
	}
	b, o, err := whole(ctx, r.b, key, plan.MaxAccepted)
	if bucket.Is(err, bucket.NotFound) {
		return stored{}, nil
	}
	if err != nil {
		return stored{}, fmt.Errorf("read the accepted plan: %w", err)
	}
	f, err := decodeForce(b)
	if err != nil {
		return stored{}, fmt.Errorf("%s: %w; look who wrote it: nothing is decided without it", key, err)
	}
	s := stored{version: o.Version, force: f}
	r.forces[key] = s
	return s, nil
}

func decodeForce(b []byte) (*inForce, error) {
	var f inForce
	if err := record.Decode(b, plan.MaxAccepted, &f); err != nil {
		return nil, err
	}
	if f.Format != forceFormat {
		return nil, fmt.Errorf("the accepted plan has format %d, this program reads format %d", f.Format, forceFormat)
	}
	var err error
	f.plan, err = plan.DecodeAccepted(f.Plan)
	f.Plan = nil // it is made anew from plan when it is written
	return &f, err
}

// encodeForce is the stored form. The plan is its last field, and nearly all of it: it is put in as it is, while it is sent.
func encodeForce(f *inForce) (bucket.Body, error) {
	head := *f
	head.Plan = nil
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(&head); err != nil {
		return nil, fmt.Errorf("encode the accepted plan: %w", err)
	}
	start, ok := bytes.CutSuffix(b.Bytes(), []byte("null}\n"))
	if !ok {
		return nil, errors.New("encode the accepted plan: it does not end with the plan")
	}
	return plan.NewStoredAccepted(start, f.plan, "}\n"), nil
}

// saveForce writes next over what was read. moved: somebody else wrote in between, and next is not in force.
func (r *Reconciler) saveForce(ctx context.Context, root string, base stored, next *inForce) (s stored, moved bool, err error) {
	next.Rev, next.Write = 1, record.Nonce()
	cond := bucket.IfAbsent()
	if base.force != nil {
		next.Rev, cond = base.force.Rev+1, bucket.IfIs(base.version)
	}
	body, err := encodeForce(next)
	if err != nil {
		return base, false, err
	}
	key := forceKey(root)
	v, err := r.b.Put(ctx, key, body, cond)
	if err != nil {
		// Whatever the answer was: what lies there now says whether this write landed.
		there, gerr := r.getForce(ctx, key, "")
		there.date, there.heard = base.date, base.heard
		switch {
		case gerr != nil || there.force == nil:
			return base, false, fmt.Errorf("write the accepted plan: %w", err)
		case there.force.Write == next.Write:
			return there, false, nil
		case there.force.Rev > next.Rev-1:
			return there, true, nil
		}
		return base, false, fmt.Errorf("write the accepted plan: %w", err)
	}
	s = stored{v, next, base.date, base.heard}
	r.forces[key] = s
	return s, false, nil
}

// elsewhere lists the works that plans of other roots on this store name: what one repository drops, another may
// still want.
func (r *Reconciler) elsewhere(ctx context.Context, root string) (map[plan.Digest]string, error) {
	out, own, after := map[plan.Digest]string{}, forceKey(root), ""
	for {
		p, err := r.b.List(ctx, forcePrefix, after, 1000)
		if err != nil {
			return nil, fmt.Errorf("read the other accepted plans: %w", err)
		}
		for _, it := range p.Items {
			if after = it.Key; it.Key == own {
				continue
			}
			s, err := r.getForce(ctx, it.Key, it.Version)
			if err != nil {
				return nil, err
			}
			for _, j := range s.force.jobs() {
				out[j.Work] = strings.TrimPrefix(it.Key, forcePrefix)
			}
		}
		if !p.More || len(p.Items) == 0 {
			return out, nil
		}
	}
}
