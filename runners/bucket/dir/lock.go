package dir

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/headway-run/headway/runners/bucket"
)

// shards is how many lock files there are; keys are spread over them.
const shards = 256

// lock takes the lock of a key's shard, against goroutines and processes. The lock is the kernel's: it dies with its
// process. A holder that was stopped in the middle makes others wait until their context ends, and then they surely
// have written nothing.
func (b *Bucket) lock(ctx context.Context, op, key string) (unlock func(), err error) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	n := h.Sum32() % shards
	busy := func() error {
		return &bucket.Error{Op: op, Key: key, Code: bucket.Throttled, Err: fmt.Errorf("another writer holds the lock: %w", ctx.Err()),
			Hint: "is a headway process stopped or hanging on this store?"}
	}
	select {
	case b.locks[n] <- struct{}{}:
	case <-ctx.Done():
		return nil, busy()
	}
	leave := func() { <-b.locks[n] }
	f, err := os.OpenFile(filepath.Join(b.root, "locks", fmt.Sprintf("%02x", n)), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		leave()
		return nil, b.absent(op, key, bucket.NoBucket, err)
	}
	wait := 50 * time.Microsecond
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close(); leave() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = f.Close()
			leave()
			return nil, b.fail(op, key, err)
		}
		select {
		case <-time.After(wait):
			wait = min(wait*2, 5*time.Millisecond)
		case <-ctx.Done():
			_ = f.Close()
			leave()
			return nil, busy()
		}
	}
}

// fail turns an error of the file system into one of the port. All of them arise before the name is placed, except
// those that are Unknown.
func (b *Bucket) fail(op, key string, err error) error {
	if e, ok := errors.AsType[*bucket.Error](err); ok {
		return e
	}
	e := &bucket.Error{Op: op, Key: key, Code: bucket.Unknown, Err: err}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		e.Code, e.Hint = bucket.Full, "free some space in "+b.root
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		e.Code, e.Hint = bucket.Denied, "this user must be able to write in "+b.root
	case errors.Is(err, syscall.ENAMETOOLONG):
		e.Code = bucket.BadKey
	}
	return e
}
