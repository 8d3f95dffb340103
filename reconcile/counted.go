package reconcile

import (
	"context"
	"sync/atomic"

	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
)

// Verbs is store requests by what they ask, since stores charge for them apart: a PUT or a LIST costs about twelve GETs.
type Verbs struct{ Gets, Lists, Puts, Deletes int64 }

// meter counts store requests.
type meter struct{ gets, lists, puts, deletes atomic.Int64 }

// Load is their sum.
func (m *meter) Load() int64 {
	return m.gets.Load() + m.lists.Load() + m.puts.Load() + m.deletes.Load()
}

func (m *meter) verbs() Verbs {
	return Verbs{m.gets.Load(), m.lists.Load(), m.puts.Load(), m.deletes.Load()}
}

// less is what was asked between an earlier count and this one.
func (v Verbs) less(earlier Verbs) Verbs {
	return Verbs{v.Gets - earlier.Gets, v.Lists - earlier.Lists, v.Puts - earlier.Puts, v.Deletes - earlier.Deletes}
}

func (v Verbs) sum() int64 { return v.Gets + v.Lists + v.Puts + v.Deletes }

// counted counts the requests to a store.
type counted struct {
	bucket.Bucket
	n *meter
}

func (c counted) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	c.n.gets.Add(1)
	return c.Bucket.Get(ctx, key, r)
}

// Put sends nothing once the deadline of ctx has passed, whether or not its timer was heard yet: a process that was
// stopped must not write first and find out afterwards.
func (c counted) Put(ctx context.Context, key string, body bucket.Body, cond bucket.Cond) (bucket.Version, error) {
	if until, ok := ctx.Deadline(); ok && runners.Passed(until) {
		return "", &bucket.Error{Op: "put", Key: key, Code: bucket.Unknown, Hint: "nothing was sent", Err: context.DeadlineExceeded}
	}
	c.n.puts.Add(1)
	return c.Bucket.Put(ctx, key, body, cond)
}

func (c counted) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	c.n.lists.Add(1)
	return c.Bucket.List(ctx, prefix, after, limit)
}

func (c counted) Delete(ctx context.Context, key string) error {
	c.n.deletes.Add(1)
	return c.Bucket.Delete(ctx, key)
}
