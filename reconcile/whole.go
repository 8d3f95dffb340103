package reconcile

import (
	"context"
	"fmt"
	"io"

	"github.com/headway-run/headway/runners/bucket"
)

// whole reads an object of at most limit bytes.
func whole(ctx context.Context, b bucket.Bucket, key string, limit int64) ([]byte, *bucket.Object, error) {
	o, err := b.Get(ctx, key, bucket.Range{})
	if err != nil {
		return nil, nil, err
	}
	defer o.Body.Close()
	if o.Size > limit {
		return nil, o, &broken{key, fmt.Errorf("it has %d bytes, at most %d are read", o.Size, limit)}
	}
	data := make([]byte, max(o.Size, 0), max(o.Size, 0)+1) // the one more would show that there is more
	n, err := io.ReadFull(o.Body, data[:cap(data)])
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, o, fmt.Errorf("read %s: %w", key, err)
	}
	if int64(n) != o.Size {
		return nil, o, fmt.Errorf("read %s: got %d of %d bytes", key, n, o.Size)
	}
	return data, o, nil
}

// broken is bytes that are no record: they stay what they are, unlike an answer of the store.
type broken struct {
	key string
	err error
}

func (e *broken) Error() string { return fmt.Sprintf("%s is damaged: %v", e.key, e.err) }
func (e *broken) Unwrap() error { return e.err }
