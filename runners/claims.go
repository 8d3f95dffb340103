package runners

import (
	"context"
	"errors"
	"fmt"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// MaxDispatch is the highest dispatch number: keys are padded to eight digits.
const MaxDispatch = 99_999_999

// Dispatch is what the store holds of one dispatch number.
type Dispatch struct {
	N       int64
	Claim   record.Claim
	Receipt *record.Receipt // nil: none yet, or the dispatcher died between claim and receipt
	Release *record.Release // the last answer to "is it closed?"; nil: never asked
	Refusal *record.Refusal // nil: none; why its worker left before it took the lease
	Answers int64           // how many release answers there are
	// Bad says why a record of this number could not be read (foreign or damaged bytes); such a record counts as
	// present and is not interpreted. Empty: all are well.
	Bad string
}

// behind is a key that sorts after every record of dispatch n and before those of n+1.
func behind(work string, n int64) string {
	if n < 1 {
		return record.DispatchPrefix(work)
	}
	return record.ClaimKey(work, n)[:len(record.ClaimKey(work, n))-len(".json")] + ".~"
}

// LastDispatch returns the highest dispatch number of a work, 0 when there is none. known is a number that the caller
// knows to exist, or 0: the nearer it is to the last one, the fewer requests. One list request when at most a few
// dispatches lie behind known, else about 2·log2 of their number, however many there are.
func LastDispatch(ctx context.Context, b bucket.Bucket, work string, known int64) (int64, error) {
	next := func(n int64, limit int) (last int64, more bool, err error) {
		page, err := b.List(ctx, record.DispatchPrefix(work), behind(work, n), limit)
		if err != nil {
			return 0, false, err
		}
		for _, it := range page.Items {
			// A number that is not padded sorts elsewhere than it counts: none of ours, passed over.
			if p, ok := record.Parse(it.Key); ok && p.Dispatch > n {
				last = max(last, p.Dispatch)
			}
		}
		return last, page.More, nil
	}
	last, more, err := next(max(known, 0), 24)
	if err != nil {
		return 0, err
	}
	low := max(last, known, 0)
	if !more {
		return low, nil
	}
	for step := int64(1); ; step *= 2 {
		probe := min(low+step, MaxDispatch)
		at, _, err := next(probe, 1)
		if err != nil {
			return 0, err
		}
		if at >= MaxDispatch {
			return at, nil // of a stranger's key: there is none behind the last
		}
		if at > 0 {
			low = at
			continue
		}
		return lastBetween(low, probe, func(n int64) (int64, error) {
			at, _, err := next(n, 1)
			return at, err
		})
	}
}

// lastBetween finds the highest number, given that low exists and none lies above high. after answers the lowest
// number above n, or 0.
func lastBetween(low, high int64, after func(int64) (int64, error)) (int64, error) {
	for low < high {
		mid := low + (high-low)/2
		at, err := after(mid)
		switch {
		case err != nil:
			return 0, err
		case at > 0:
			low = at
		default:
			high = mid
		}
	}
	return low, nil
}

// NextDispatch returns the number that the next claim of a work takes: one more than the last. It is a hint until
// the claim is won.
func (d Dispatcher) NextDispatch(ctx context.Context, work string, known int64) (int64, error) {
	last, err := LastDispatch(ctx, d.Bucket, work, known)
	if err != nil {
		return 0, fmt.Errorf("number of the next dispatch of work %s: %w", short(work), err)
	}
	if last >= MaxDispatch {
		return 0, fmt.Errorf("work %s has used all %d dispatch numbers: give the job another seed or replica", short(work), MaxDispatch)
	}
	return last + 1, nil
}

// ReadClaims returns at most limit (1..100) dispatches of a work whose number is greater than after, lowest first.
// The number of requests is bounded by limit, whatever the work's history: about one list and three gets for each.
func (d Dispatcher) ReadClaims(ctx context.Context, work string, after int64, limit int) ([]Dispatch, error) {
	limit = min(max(limit, 1), 100)
	var out []Dispatch
	from := behind(work, after)
	for {
		page, err := d.Bucket.List(ctx, record.DispatchPrefix(work), from, min(1000, 4*(limit+1)))
		if err != nil {
			return nil, fmt.Errorf("list dispatches of work %s: %w", short(work), err)
		}
		for _, it := range page.Items {
			from = it.Key
			p, ok := record.Parse(it.Key)
			if !ok || p.Work != work {
				continue
			}
			if len(out) == 0 || out[len(out)-1].N != p.Dispatch {
				if len(out) == limit {
					return d.fill(ctx, work, out)
				}
				out = append(out, Dispatch{N: p.Dispatch})
			}
			out[len(out)-1].seen(work, p)
		}
		if !page.More || len(page.Items) == 0 {
			return d.fill(ctx, work, out)
		}
	}
}

// seen notes that a record of this dispatch is listed.
func (e *Dispatch) seen(work string, p record.ParsedKey) {
	switch k, isRelease := record.ReleaseNumber(p.Rest); {
	case isRelease:
		e.Answers = max(e.Answers, k)
	case p.Rest == "receipt.json":
		e.Receipt = &record.Receipt{}
	case p.Rest == "refused.json":
		e.Refusal = &record.Refusal{}
	case p.Rest == "json":
		e.Claim.Work = work
	default:
		e.Bad = fmt.Sprintf("unexpected record %s", Sanitize([]byte(Bound(p.Rest, 100))))
	}
}

// fill reads the records that were listed.
func (d Dispatcher) fill(ctx context.Context, work string, list []Dispatch) ([]Dispatch, error) {
	for i := range list {
		if err := d.read(ctx, work, &list[i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (d Dispatcher) read(ctx context.Context, work string, e *Dispatch) error {
	get := func(key string, v any, check func() bool) error {
		found, err := readJSON(ctx, d.Bucket, key, v)
		switch {
		case err != nil && bucketError(err):
			return err
		case err != nil:
			e.Bad = Bound(err.Error(), maxText)
		case !found:
			e.Bad = key + " is listed and not there"
		case !check():
			e.Bad = key + " names another work or dispatch, or a newer protocol"
		}
		return nil
	}
	if e.Claim.Work == "" {
		e.Bad = fmt.Sprintf("dispatch %d has no claim", e.N)
	} else if err := get(record.ClaimKey(work, e.N), &e.Claim, func() bool {
		return e.Claim.Work == work && e.Claim.Dispatch == e.N && e.Claim.Protocol <= record.Protocol
	}); err != nil {
		return err
	}
	if e.Receipt != nil {
		if err := get(record.ReceiptKey(work, e.N), e.Receipt, func() bool {
			return e.Receipt.Work == work && e.Receipt.Dispatch == e.N && e.Receipt.Protocol <= record.Protocol
		}); err != nil {
			return err
		}
	}
	if e.Refusal != nil {
		if err := get(record.RefusalKey(work, e.N), e.Refusal, func() bool {
			return e.Refusal.Work == work && e.Refusal.Dispatch == e.N && e.Refusal.Protocol <= record.Protocol
		}); err != nil {
			return err
		}
	}
	if e.Answers > 0 {
		e.Release = &record.Release{}
		return get(record.ReleaseKey(work, e.N, e.Answers), e.Release, func() bool {
			return e.Release.Work == work && e.Release.Dispatch == e.N && e.Release.Protocol <= record.Protocol
		})
	}
	return nil
}

// bucketError tells an answer of the store (which may be other the next time) from bytes that cannot be read as a
// record (which stay what they are).
func bucketError(err error) bool {
	_, ok := errors.AsType[*bucket.Error](err)
	return ok
}
