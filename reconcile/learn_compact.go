package reconcile

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headway-run/headway/reconcile/goodput"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// When raw observations are folded into the compact form of their key.
const (
	foldFrom  = 64        // so many are there
	foldAfter = time.Hour // or the oldest has waited so long since its end
	foldMost  = 1000      // at a time
)

// compact folds what the last look has shown. What was folded is in the compact form before it is deleted, by name; whoever
// dies in between, or folds at the same time, counts nothing twice: a second fold of a name adds nothing.
func (l *learner) compact(ctx context.Context, f *looked) {
	if !f.listed {
		return
	}
	maps.Copy(l.raw, f.raw)
	maps.Copy(l.stored, f.stored)
	byKey := map[goodput.Key]bool{}
	for key, o := range l.raw {
		if f.keys[key] || f.raw[key].Work != "" {
			byKey[goodput.KeyOf(o)] = true
		} else {
			delete(l.raw, key) // gone
		}
	}
	keys := slices.SortedFunc(maps.Keys(byKey), func(a, b goodput.Key) int {
		return cmp.Or(cmp.Compare(a.Platform, b.Platform), cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.Mode, b.Mode))
	})
	for _, k := range keys {
		if err := l.fold(ctx, k, f); err != nil && f.err == nil {
			f.err = err
		}
	}
}

// fold folds and deletes the raw observations of one key, when there are enough of them.
func (l *learner) fold(ctx context.Context, k goodput.Key, f *looked) error {
	list := l.rawOf(k, keyed{})
	now, err := l.clock(ctx, k)
	if err != nil || len(list) == 0 {
		return err
	}
	oldest, err := time.Parse(time.RFC3339, list[0].Time)
	if err != nil || len(list) < foldFrom && (now.IsZero() || now.Sub(oldest) < foldAfter) {
		return nil
	}
	old, next, cond := l.stored[k], goodput.NewCompact(k), bucket.IfAbsent()
	if old.compact != nil {
		next, cond = old.compact.Clone(), bucket.IfIs(old.version)
	}
	whole := len(list) <= foldMost
	list = list[:min(len(list), foldMost)]
	added := 0
	for _, o := range list {
		if next.Fold(o.Observation) {
			added++
		}
	}
	if whole {
		next.Close(now)
	}
	if added > 0 {
		next.Rev, next.Write = next.Rev+1, record.Nonce()
		body, err := record.Encode(next)
		if err != nil {
			return err
		}
		if len(body) > goodput.MaxCompact && old.compact != nil {
			// A stranger's: nothing that is folded grows so far. What comes next is folded into an empty one in its place.
			f.stored[k] = storedBook{old.version, goodput.NewCompact(k)}
		}
		if len(body) > goodput.MaxCompact {
			return fmt.Errorf("the statistics of %s on %s would have %d bytes, at most %d are kept", k.GPU, shown(k.Platform, 60), len(body), goodput.MaxCompact)
		}
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		v, err := l.b.Put(ctx, record.CompactKey(k.Platform, k.GPU, k.Mode), bytes.NewReader(body), cond)
		if bucket.Is(err, bucket.Condition) || bucket.Is(err, bucket.Raced) || bucket.Is(err, bucket.Gone) {
			return nil // somebody else has folded; the next look shows what is left
		}
		if err != nil {
			return fmt.Errorf("write the statistics: %w", err) // if it landed after all, the names in it say so
		}
		f.stored[k] = storedBook{v, next}
	}
	var over []string
	for _, o := range list {
		if next.Has(o.Observation) {
			over = append(over, o.key)
			delete(f.keys, o.key)
			delete(f.raw, o.key)
		}
	}
	each(over, func(key string) {
		_ = l.b.Delete(ctx, key) // what is left over is deleted another time
	})
	return nil
}

// clock is the store's own time; zero: it tells none.
func (l *learner) clock(ctx context.Context, k goodput.Key) (time.Time, error) {
	p, err := l.b.List(ctx, record.CompactKey(k.Platform, k.GPU, k.Mode), "", 1)
	if err != nil {
		return time.Time{}, err
	}
	return p.Date, nil
}
