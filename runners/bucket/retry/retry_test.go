package retry_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/buckettest"
	"github.com/headway-run/headway/runners/bucket/counting"
	"github.com/headway-run/headway/runners/bucket/faulty"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/bucket/retry"
)

func TestConformance(t *testing.T) {
	buckettest.Run(t, func(*testing.T) bucket.Bucket { return retry.New(mem.New(), retry.Options{}) })
}

func TestReadsAreRepeatedAndWritesAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for code, gets := range map[bucket.Code]int64{bucket.Unknown: 5, bucket.Throttled: 5, bucket.NotFound: 1, bucket.Denied: 1} {
			f := faulty.New(mem.New(), 1, faulty.Rule{Effect: faulty.Refuse, Code: code})
			c := counting.New(f)
			b := retry.New(c, retry.Options{})
			_, getErr := b.Get(t.Context(), "k", bucket.Range{})
			_, listErr := b.List(t.Context(), "", "", 0)
			_, putErr := b.Put(t.Context(), "k", strings.NewReader("x"), bucket.Always())
			n := c.Counts()
			if n.Get != gets || n.List != gets || n.Put != 1 || !bucket.Is(getErr, code) || !bucket.Is(listErr, code) || !bucket.Is(putErr, code) {
				t.Errorf("%s: %s; %v, %v, %v", code, n, getErr, listErr, putErr)
			}
		}
	})
}

func TestRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := faulty.New(mem.New(), 1, faulty.Rule{Name: "twice", Op: "list", Times: 2, Effect: faulty.Refuse})
		if _, err := retry.New(f, retry.Options{}).List(t.Context(), "", "", 0); err != nil || f.Fired("twice") != 2 {
			t.Errorf("%v, fired %d", err, f.Fired("twice"))
		}
	})
}

func TestEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := faulty.New(mem.New(), 1, faulty.Rule{Effect: faulty.Refuse})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := retry.New(f, retry.Options{Attempts: 1 << 30}).Get(ctx, "k", bucket.Range{})
		if !bucket.Is(err, bucket.Unknown) || time.Since(began) != time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}
