package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/headway-run/headway/runners/bucket"
)

// stall is how long a store may keep silent before an answer or in the middle of a body; then the request is given up
// and asked again. A download may take as long as bytes come.
const stall = time.Minute

var errStalled = errors.New("the store kept silent")

// get opens an object whose body cannot hang for longer than stall.
func get(ctx context.Context, s Store, key string) (*bucket.Object, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	b := &lively{ctx: ctx, key: key, cancel: cancel}
	b.timer = time.AfterFunc(stall, func() { cancel(errStalled) })
	o, err := s.Get(ctx, key, bucket.Range{})
	b.timer.Stop()
	if err != nil {
		cancel(nil)
		return nil, b.why(err)
	}
	out := *o
	b.body, out.Body = o.Body, b
	return &out, nil
}

// lively is a body on a leash: each read of it must bring something in time.
type lively struct {
	ctx    context.Context
	key    string
	cancel context.CancelCauseFunc
	timer  *time.Timer
	body   io.ReadCloser
}

// Read implements io.Reader.
func (b *lively) Read(p []byte) (int, error) {
	b.timer.Reset(stall)
	n, err := b.body.Read(p)
	b.timer.Stop()
	if err != nil && err != io.EOF {
		err = b.why(err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *lively) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	return b.body.Close()
}

// why makes a request that was given up an answer that may be asked for again.
func (b *lively) why(err error) error {
	if !errors.Is(context.Cause(b.ctx), errStalled) {
		return err
	}
	return &bucket.Error{Op: "get", Key: b.key, Code: bucket.Unknown, Err: fmt.Errorf("%w for %s", errStalled, stall), Hint: "look whether the store is up"}
}
