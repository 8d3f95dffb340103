package courier

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "small-disk" {
		os.Exit(smallDisk(os.Args[2]))
	}
	goleak.VerifyTestMain(m)
}

var work = strings.Repeat("ab", 32)

// The courier's store has one method: nothing in this package can renew, advance, read or list.
var _ interface {
	Put(context.Context, string, bucket.Body, bucket.Cond) (bucket.Version, error)
} = Store(nil)

// gate is a store that lets puts through one at a time when told to, and fails or panics on demand.
type gate struct {
	Store
	mu    sync.Mutex
	hold  chan struct{} // nil: open
	fault func(key string) error
	keys  []string
}

func (g *gate) Put(ctx context.Context, key string, b bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if g.hold != nil {
		select {
		case <-g.hold:
		case <-ctx.Done():
			return "", &bucket.Error{Op: "put", Key: key, Code: bucket.Unknown, Err: ctx.Err()}
		}
	}
	if g.fault != nil {
		if err := g.fault(key); err != nil {
			return "", err
		}
	}
	g.mu.Lock()
	g.keys = append(g.keys, strings.TrimPrefix(key, record.AttemptPrefix(work, 1)))
	g.mu.Unlock()
	return g.Store.Put(ctx, key, b, c)
}

type reports struct {
	mu   sync.Mutex
	list []Report
}

func (r *reports) add(x Report) { r.mu.Lock(); r.list = append(r.list, x); r.mu.Unlock() }

func folder(t *testing.T, contents map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for p, s := range contents {
		full := filepath.Join(dir, p)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFilesThenManifestLast(t *testing.T) {
	src, priv := folder(t, map[string]string{"a": "1", "b/c": "22"}), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		g, got := &gate{Store: mem.New()}, &reports{}
		k := New(t.Context(), Config{Store: g, Work: work, Attempt: 1, Dir: priv, Report: got.add})
		defer k.Close()
		n, err := k.Stage(src, "", false, 10)
		if n != 1 || err != nil {
			t.Fatal(n, err)
		}
		synctest.Wait()
		if len(got.list) != 1 || got.list[0].Err != nil {
			t.Fatalf("reports %+v", got.list)
		}
		last := g.keys[len(g.keys)-1]
		if len(g.keys) != 3 || last != "milestone/00000001/manifest.json" {
			t.Errorf("written in the order %v", g.keys)
		}
		if left, _ := os.ReadDir(priv); len(left) != 0 {
			t.Errorf("the private copy is still there: %v", left)
		}
	})
}

// A slow store skips the milestones between the one that goes up and the newest, and the chain of parents holds.
func TestNewestWins(t *testing.T) {
	src, priv := folder(t, map[string]string{"a": "1"}), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		g, got := &gate{Store: b, hold: make(chan struct{})}, &reports{}
		from := &record.Pointer{Attempt: 1, Milestone: 7, Step: 5, Manifest: "m", SHA256: "h"}
		k := New(t.Context(), Config{Store: g, Work: work, Attempt: 1, Dir: priv, From: from, Report: got.add})
		defer k.Close()
		for step := int64(10); step <= 13; step++ {
			if _, err := k.Stage(src, "", false, step); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		close(g.hold)
		synctest.Wait()
		var steps []int64
		for _, r := range got.list {
			if r.Err == nil {
				steps = append(steps, r.Pointer.Step)
			} else if !errors.Is(r.Err, ErrSkipped) {
				t.Error(r.Err)
			}
		}
		if d := cmp.Diff([]int64{10, 13}, steps); d != "" || len(got.list) != 4 {
			t.Errorf("%d reports, acknowledged steps %v", len(got.list), steps)
		}
		var m record.Manifest
		o, err := b.Get(t.Context(), got.list[3].Pointer.Manifest, bucket.Range{})
		if err != nil {
			t.Fatal(err)
		}
		raw := make([]byte, o.Size)
		_, _ = o.Body.Read(raw)
		if err := record.Decode(raw, record.MaxManifest, &m); err != nil || m.Parent == nil || m.Parent.Step != 10 {
			t.Errorf("the last one grew from %+v (%v), want the one at step 10", m.Parent, err)
		}
	})
}

func TestFailedAndRepeatedUploads(t *testing.T) {
	src, priv := folder(t, map[string]string{"a": "1"}), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		got, fired := make(chan Report, 2), 0 // one file at a time: the faults come in order
		g := &gate{Store: mem.New(), fault: func(key string) error {
			switch fired++; {
			case fired == 1:
				return &bucket.Error{Op: "put", Key: key, Code: bucket.Denied}
			case fired < 5: // lost answers: the same bytes again
				return &bucket.Error{Op: "put", Key: key, Code: bucket.Unknown}
			}
			return nil
		}}
		k := New(t.Context(), Config{Store: g, Work: work, Attempt: 1, Dir: priv, Report: func(r Report) { got <- r }})
		defer k.Close()
		_, _ = k.Stage(src, "", false, 1)
		if r := <-got; !bucket.Is(r.Err, bucket.Denied) {
			t.Errorf("%+v", r)
		}
		_, _ = k.Stage(src, "", false, 2)
		if r := <-got; r.Err != nil || r.Took == 0 || fired < 5 {
			t.Errorf("%+v after %d faults", r, fired)
		}
	})
}

func TestPanicIsAReport(t *testing.T) {
	got := make(chan Report, 2)
	g := &gate{Store: mem.New(), fault: func(string) error { panic("a defect") }} // planted
	k := New(t.Context(), Config{Store: g, Work: work, Attempt: 1, Dir: t.TempDir(), Report: func(r Report) { got <- r }})
	defer k.Close()
	if _, err := k.Stage(folder(t, map[string]string{"a": "1"}), "", false, 1); err != nil {
		t.Fatal(err)
	}
	if r := <-got; r.Err == nil || !strings.Contains(r.Err.Error(), "a defect") {
		t.Errorf("reported %+v", r)
	}
}

func TestWhatCannotBeTaken(t *testing.T) {
	link := t.TempDir()
	if err := os.Symlink("/etc/passwd", filepath.Join(link, "x")); err != nil {
		t.Fatal(err)
	}
	from := &record.Pointer{Attempt: 1, Milestone: 1, Step: 5}
	k := New(t.Context(), Config{Store: mem.New(), Work: work, Attempt: 2, Dir: t.TempDir(), From: from, Report: func(Report) {}})
	defer k.Close()
	for name, c := range map[string]struct {
		path string
		step int64
	}{
		"absent":       {filepath.Join(link, "no"), 6},
		"a link":       {link, 6},
		"empty":        {t.TempDir(), 6},
		"the store's":  {folder(t, map[string]string{"manifest.json": "{}"}), 6},
		"behind":       {folder(t, map[string]string{"a": ""}), 4},
		"odd name":     {folder(t, map[string]string{"a\nb": ""}), 6},
		"device":       {"/dev/null", 6},
		"link as root": {filepath.Join(link, "x"), 6},
	} {
		_, err := k.Stage(c.path, "", false, c.step)
		if _, ok := errors.AsType[*Bad](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMove(t *testing.T) {
	src, priv, got := folder(t, map[string]string{"m.bin": "1"}), t.TempDir(), make(chan Report, 1)
	k := New(t.Context(), Config{Store: mem.New(), Work: work, Attempt: 1, Dir: priv, Report: func(r Report) { got <- r }})
	defer k.Close()
	if _, err := k.Stage(filepath.Join(src, "m.bin"), "", true, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(src, "m.bin")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the moved file is still there: %v", err)
	}
	if r := <-got; r.Err != nil || r.Bytes != 1 {
		t.Errorf("%+v", r)
	}
}
