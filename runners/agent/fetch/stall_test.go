package fetch

import (
	"bytes"
	"context"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// mute is a store that hangs: before the answer, or after the first bytes of a body. mend: the how-manieth request is
// served as it should be; 0: none.
type mute struct {
	body  []byte
	begin bool // the body begins before it hangs
	mend  int
	asked int
}

func (m *mute) Get(ctx context.Context, key string, _ bucket.Range) (*bucket.Object, error) {
	m.asked++
	o := &bucket.Object{}
	o.Size = int64(len(m.body))
	if m.asked == m.mend {
		o.Body = io.NopCloser(bytes.NewReader(m.body))
		return o, nil
	}
	if m.begin {
		o.Body = io.NopCloser(io.MultiReader(bytes.NewReader(m.body[:1]), hang{ctx}))
		return o, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

type hang struct{ ctx context.Context }

func (h hang) Read([]byte) (int, error) {
	<-h.ctx.Done()
	return 0, h.ctx.Err()
}

// TestASilentStoreIsNotWaitedForForEver: each kind of download is given up after some minutes, as an answer that may
// pass, and one that comes in the end is taken.
func TestASilentStoreIsNotWaitedForForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := []byte(`{"protocol":1}`)
		for what, f := range map[string]func(s Store) error{
			"record": func(s Store) error { return JSON(t.Context(), s, "k", 1000, &record.Spec{}) },
			"bundle": func(s Store) error {
				return Bundle(t.Context(), s, "0772f0fae89c909c38d386d35cc2593db6d3d606", t.TempDir(), nil)
			},
			"file": func(s Store) error {
				root, err := os.OpenRoot(t.TempDir())
				if err != nil {
					return err
				}
				defer root.Close()
				return file(t.Context(), s, "k", record.File{Path: "f", Size: int64(len(body)), SHA256: record.Hash(body)}, root, "f", nil)
			},
		} {
			for _, begin := range []bool{false, true} {
				began := time.Now()
				err := f(&mute{body: body, begin: begin})
				if took := time.Since(began); !bucket.Is(err, bucket.Unknown) || took < 4*time.Minute || took > 5*time.Minute {
					t.Errorf("%s, body begun %v: %v after %s", what, begin, err, took)
				}
				if what != "bundle" {
					if err := f(&mute{body: body, begin: begin, mend: 3}); err != nil {
						t.Errorf("%s, body begun %v: the third try: %v", what, begin, err)
					}
				}
			}
		}
	})
}
