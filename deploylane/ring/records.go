package ring

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/witness"
)

// ErrTaken says that a record which is created once was created by another process: a second releaser. Nothing was
// written, and nothing more may be done.
var ErrTaken = errors.New("another process has created this record: a second releaser is at this ring")

// Records is what the lane's store holds of one ring: lane/<model>/ring/<ring>/….
type Records struct {
	Store witness.Store
	Model string
	Ring  string
}

func (r Records) prefix() string { return "lane/" + r.Model + "/ring/" + r.Ring + "/" }

// loadPrefix holds the loads; generations are padded, so that a listing is in their order.
func (r Records) loadPrefix() string { return r.prefix() + "load/" }

// IntentKey is the record of a load.
func (r Records) IntentKey(generation uint64) string {
	return fmt.Sprintf("%s%016d.json", r.loadPrefix(), generation)
}

// EventKey is the k-th event of a load.
func (r Records) EventKey(generation uint64, k int) string {
	return fmt.Sprintf("%s%016d/event/%08d.json", r.loadPrefix(), generation, k)
}

// Clock is the store's own, milliseconds; 0: it has none.
func (r Records) Clock(ctx context.Context) (uint64, error) {
	page, err := r.Store.List(ctx, r.loadPrefix(), "", 1)
	if err != nil {
		return 0, err
	}
	if page.Date.IsZero() || page.Date.UnixMilli() < 0 {
		return 0, nil
	}
	return uint64(page.Date.UnixMilli()), nil
}

// create writes a record that must not exist. An answer that was lost is settled by a look: its own bytes there are
// success, others are ErrTaken.
func (r Records) create(ctx context.Context, key string, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	const tries = 4
	for try := range tries {
		if try > 0 {
			if err := pause(ctx, time.Duration(try)*time.Second); err != nil {
				break
			}
		}
		if _, err = r.Store.Put(ctx, key, bytes.NewReader(body), bucket.IfAbsent()); err == nil {
			return nil
		}
		found, lookErr := r.get(ctx, key, int64(len(body))+maxIntent)
		switch {
		case lookErr == nil && bytes.Equal(found, body):
			return nil
		case lookErr == nil:
			return fmt.Errorf("%s: %w", key, ErrTaken)
		}
	}
	return fmt.Errorf("%s could not be written: %w", key, err)
}

func (r Records) get(ctx context.Context, key string, most int64) ([]byte, error) {
	o, err := r.Store.Get(ctx, key, bucket.Range{})
	if err != nil {
		return nil, err
	}
	defer o.Body.Close()
	if o.Size > most {
		return nil, fmt.Errorf("%s has %d bytes, at most %d", key, o.Size, most)
	}
	b, err := io.ReadAll(io.LimitReader(o.Body, most+1))
	if err == nil && int64(len(b)) != o.Size {
		err = fmt.Errorf("%s: %d of %d bytes came", key, len(b), o.Size)
	}
	return b, err
}

// Loads reads every load of the ring, the oldest first. An event that is missing in the middle, and a record that cannot
// be read, are errors: what is not known may be a loaded stage.
func (r Records) Loads(ctx context.Context) ([]Load, error) {
	events := map[uint64]int{}
	var generations []uint64
	after := ""
	for {
		page, err := r.Store.List(ctx, r.loadPrefix(), after, 0)
		if err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			g, k, err := r.parse(item.Key)
			if err != nil {
				return nil, err
			}
			if after = item.Key; k == 0 {
				generations = append(generations, g)
			} else if events[g]++; events[g] != k || k > maxEvents {
				return nil, fmt.Errorf("%s: event %d was expected: one is missing", item.Key, events[g])
			}
		}
		if !page.More {
			break
		}
	}
	slices.Sort(generations)
	var out []Load
	for _, g := range generations {
		l, err := r.load(ctx, g, events[g])
		if err != nil {
			return nil, err
		}
		delete(events, g)
		out = append(out, l)
	}
	for g := range events {
		return nil, fmt.Errorf("%s: there are events and no record of the load itself: a person has to look", r.IntentKey(g))
	}
	return out, nil
}

// parse reads generation and event number (0: the intent) back from a key.
func (r Records) parse(key string) (g uint64, k int, err error) {
	rest := strings.TrimPrefix(key, r.loadPrefix())
	num, event, has := strings.Cut(rest, "/event/")
	if !has {
		num = strings.TrimSuffix(rest, ".json")
	}
	g, err = strconv.ParseUint(num, 10, 64)
	if err == nil && has {
		k, err = strconv.Atoi(strings.TrimSuffix(event, ".json"))
	}
	if err != nil || has && key != r.EventKey(g, k) || !has && key != r.IntentKey(g) {
		return 0, 0, fmt.Errorf("%s: no record of ours", key)
	}
	return g, k, nil
}

func (r Records) load(ctx context.Context, g uint64, events int) (Load, error) {
	b, err := r.get(ctx, r.IntentKey(g), maxIntent)
	if err != nil {
		return Load{}, err
	}
	l := Load{}
	if l.Intent, err = DecodeIntent(b); err != nil {
		return Load{}, fmt.Errorf("%s: %w", r.IntentKey(g), err)
	}
	if l.Intent.Generation != g || l.Intent.Ring != r.Ring || l.Intent.Model != r.Model {
		return Load{}, fmt.Errorf("%s: it is the record of generation %d of ring %q", r.IntentKey(g), l.Intent.Generation, clip(l.Intent.Ring))
	}
	for k := 1; k <= events; k++ {
		if b, err = r.get(ctx, r.EventKey(g, k), maxEvent); err != nil {
			return Load{}, err
		}
		e, err := DecodeLoadEvent(b)
		if err != nil {
			return Load{}, fmt.Errorf("%s: %w", r.EventKey(g, k), err)
		}
		if e.Generation != g || e.Number != k {
			return Load{}, fmt.Errorf("%s: it is event %d of generation %d", r.EventKey(g, k), e.Number, e.Generation)
		}
		l.Events = append(l.Events, e)
	}
	l.Ledger = Fold(l.Events)
	return l, nil
}

// pause waits, or ends with the context.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
