package runners

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// Unsettled: a create-if-absent whose outcome could not be learned. The object may be there, or may still appear.
type Unsettled struct {
	Key string
	Err error // the last answer of the store
}

func (e *Unsettled) Error() string {
	return fmt.Sprintf("the store did not say whether %s was written (look again before writing it anew): %v", e.Key, e.Err)
}

// Unwrap returns the store's last answer.
func (e *Unsettled) Unwrap() error { return e.Err }

// How often a create is asked again, and the first pause between two tries; it doubles, with jitter.
const (
	createTries = 8
	firstPause  = 50 * time.Millisecond
)

// create writes body if key is absent, and settles a lost answer by reading: mine says whether the bytes that are
// there are this caller's. won is true when the object is in the store and ours. It repeats the same bytes under the
// same condition, so at most one of its requests can ever land.
func create(ctx context.Context, b bucket.Bucket, key string, body []byte, mine func([]byte) bool) (won bool, err error) {
	var last error
	for try := range createTries {
		if try > 0 {
			if err := pause(ctx, firstPause<<(try-1), body); err != nil {
				return false, &Unsettled{Key: key, Err: last}
			}
		}
		_, err := b.Put(ctx, key, bytes.NewReader(body), bucket.IfAbsent())
		if err == nil {
			return true, nil
		}
		last = err
		switch bucket.CodeOf(err) {
		case bucket.Condition, bucket.Unknown:
			there, gerr := read(ctx, b, key, record.MaxRecord)
			if gerr == nil {
				return mine(there), nil
			}
			if !bucket.Is(gerr, bucket.NotFound) {
				last = gerr
			}
		case bucket.Raced, bucket.Throttled:
		case bucket.NotFound, bucket.Gone, bucket.Denied, bucket.NoBucket, bucket.Full, bucket.BadKey, bucket.Unsupported:
			return false, err
		}
	}
	return false, &Unsettled{Key: key, Err: last}
}

// pause waits about d (half to one and a half of it), or until ctx ends. The jitter comes from the bytes that are
// written: most hold a random nonce, so no two writers beat in phase, and a run with seeded nonces repeats itself.
func pause(ctx context.Context, d time.Duration, seed []byte) error {
	h := fnv.New64a()
	_, _ = h.Write(seed)
	_, _ = fmt.Fprint(h, d)
	t := time.NewTimer(d/2 + time.Duration(h.Sum64()%uint64(d)))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// read returns a whole object of at most limit bytes.
func read(ctx context.Context, b bucket.Bucket, key string, limit int) ([]byte, error) {
	o, err := b.Get(ctx, key, bucket.Range{})
	if err != nil {
		return nil, err
	}
	defer o.Body.Close()
	if o.Size > int64(limit) {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are read", key, o.Size, limit)
	}
	body, err := io.ReadAll(io.LimitReader(o.Body, int64(limit)+1))
	if err == nil && int64(len(body)) != o.Size {
		err = fmt.Errorf("got %d of %d bytes", len(body), o.Size)
	}
	if err != nil {
		return nil, &bucket.Error{Op: "get", Key: key, Code: bucket.Unknown, Hint: "try again", Err: err}
	}
	return body, nil
}

// readJSON decodes the record at key into v. found is false when the key is absent.
func readJSON(ctx context.Context, b bucket.Bucket, key string, v any) (found bool, err error) {
	body, err := read(ctx, b, key, record.MaxRecord)
	if bucket.Is(err, bucket.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := record.Decode(body, record.MaxRecord, v); err != nil {
		return true, fmt.Errorf("%s: %w", key, err)
	}
	return true, nil
}

// WriteSpec creates a work's spec.json if it is absent. One that is there is left alone and is fine when it is of the
// same work: what is no identity may be of an earlier day. A spec that names another work, or whose fields are not those
// of the work's digest, is refused: a worker would refuse it, and nothing must be launched on it.
func WriteSpec(ctx context.Context, b bucket.Bucket, s record.Spec) error {
	body, err := record.Encode(s)
	if err != nil {
		return err
	}
	key := record.SpecKey(s.Work)
	var bad error
	won, err := create(ctx, b, key, body, func(there []byte) bool {
		bad = nil
		if !bytes.Equal(there, body) {
			bad = checkSpec(there, s.Work)
		}
		return bad == nil
	})
	if err != nil {
		return fmt.Errorf("spec of work %s: %w", short(s.Work), err)
	}
	if !won {
		return fmt.Errorf("%s is not the spec of this work (%w): look who wrote it, and remove it by hand", key, bad)
	}
	return nil
}

func checkSpec(body []byte, work string) error {
	var s record.Spec
	if err := record.Decode(body, record.MaxRecord, &s); err != nil {
		return err
	}
	if s.Work != work {
		return fmt.Errorf("it names work %s", Sanitize([]byte(Bound(s.Work, 64))))
	}
	return record.CheckIdentity(s)
}

// short is the form of a work that people see.
func short(work string) string { return work[:min(len(work), 12)] }
