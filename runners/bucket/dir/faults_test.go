package dir_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/dir"
)

// every sends each verb and wants the same refusal, with a hint.
func every(t *testing.T, b bucket.Bucket, code bucket.Code, hint string) {
	t.Helper()
	_, getErr := b.Get(t.Context(), "a/k", bucket.Range{})
	_, listErr := b.List(t.Context(), "a/", "", 0)
	_, putErr := b.Put(t.Context(), "a/k", strings.NewReader("x"), bucket.Always())
	_, createErr := b.Put(t.Context(), "a/k", strings.NewReader("x"), bucket.IfAbsent())
	_, swapErr := b.Put(t.Context(), "a/k", strings.NewReader("x"), bucket.IfIs("00"))
	deleteErr := b.Delete(t.Context(), "a/k")
	for verb, err := range map[string]error{"get": getErr, "list": listErr, "put": putErr, "create": createErr, "swap": swapErr, "delete": deleteErr} {
		if !bucket.Is(err, code) || !strings.Contains(err.Error(), hint) {
			t.Errorf("%s: got %v; want %s and %q", verb, err, code, hint)
		}
	}
}

func TestMissingFolder(t *testing.T) {
	root := filepath.Join(t.TempDir(), "store")
	for name, path := range map[string]string{"absent": root, "empty, as a share that is not mounted": t.TempDir(), "relative": "store"} {
		if _, err := dir.Open(path, dir.Options{}); !bucket.Is(err, bucket.NoBucket) {
			t.Errorf("%s: got %v, want NoBucket", name, err)
		}
	}
	b := open(t, root, dir.Options{Create: true})
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	every(t, b, bucket.NoBucket, "is the disk or share mounted?")
	if _, err := os.Stat(root); err == nil {
		t.Error("a store that vanished was made anew")
	}
}

func TestFileInsteadOfFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, o := range []dir.Options{{}, {Create: true}} {
		if _, err := dir.Open(file, o); err == nil {
			t.Errorf("%+v: a file was opened as a store", o)
		}
	}
}

func TestStaleTempsAreSwept(t *testing.T) {
	root := t.TempDir()
	open(t, root, dir.Options{Create: true})
	old, young := filepath.Join(root, "tmp", "put-1"), filepath.Join(root, "tmp", "put-2")
	for _, f := range []string{old, young} {
		if err := os.WriteFile(f, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(old, time.Time{}, time.Now().Add(-25*time.Hour)); err != nil {
		t.Fatal(err)
	}
	open(t, root, dir.Options{})
	if _, err := os.Stat(old); err == nil {
		t.Error("an unfinished write of yesterday is still there")
	}
	if _, err := os.Stat(young); err != nil {
		t.Error("an unfinished write that may have a living writer was swept")
	}
}

// TestStoppedHolder: whoever waits for a lock past his deadline has surely written nothing.
func TestStoppedHolder(t *testing.T) {
	root := t.TempDir()
	b := open(t, root, dir.Options{Create: true})
	v, err := b.Put(t.Context(), "k", strings.NewReader("old"), bucket.IfAbsent())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 256 {
		f, err := os.OpenFile(filepath.Join(root, "locks", fmt.Sprintf("%02x", i)), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := b.Put(ctx, "k", strings.NewReader("new"), bucket.IfIs(v)); !bucket.Is(err, bucket.Throttled) {
		t.Errorf("got %v, want Throttled", err)
	}
	o, err := b.Get(t.Context(), "k", bucket.Range{})
	if err != nil || o.Version != v {
		t.Errorf("the key holds %+v, %v", o, err)
	}
}

// TestStampsMoveForward: overwrites in one tick of the clock still have distinct change times, on which the versions of
// large objects and the remembered hashes rest.
func TestStampsMoveForward(t *testing.T) {
	b := open(t, t.TempDir(), dir.Options{Create: true, NoSync: true})
	big := strings.Repeat("x", 2<<20)
	seen := map[bucket.Version]bool{}
	var last time.Time
	for range 30 {
		v, err := b.Put(t.Context(), "k", strings.NewReader(big), bucket.Always())
		if err != nil {
			t.Fatal(err)
		}
		o, err := b.Get(t.Context(), "k", bucket.Range{})
		if err != nil {
			t.Fatal(err)
		}
		_ = o.Body.Close()
		if seen[v] || o.Version != v || !o.Modified.After(last) {
			t.Fatalf("version %s (seen: %v), read %s, modified %v after %v", v, seen[v], o.Version, o.Modified, last)
		}
		seen[v], last = true, o.Modified
	}
}

// TestRememberedHashes: a listing that remembers still sees a change that keeps size and inode's neighbourhood.
func TestRememberedHashes(t *testing.T) {
	root := t.TempDir()
	writer, reader := open(t, root, dir.Options{Create: true, NoSync: true}), open(t, root, dir.Options{})
	v, err := writer.Put(t.Context(), "k", strings.NewReader("0000"), bucket.IfAbsent())
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(root, "objects", "k"), time.Time{}, old); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		for range 2 { // the second is from memory
			p, err := reader.List(t.Context(), "", "", 0)
			if err != nil || len(p.Items) != 1 || p.Items[0].Version != v {
				t.Fatalf("round %d: list shows %+v, %v; want %s", i, p, err, v)
			}
		}
		if v, err = writer.Put(t.Context(), "k", strings.NewReader(fmt.Sprintf("%04d", i+1)), bucket.IfIs(v)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRememberedNames: a reader that remembers a big folder's names sees at once what another writer made, swapped or
// took away, and every page is what it would have been without a memory.
func TestRememberedNames(t *testing.T) {
	root := t.TempDir()
	writer, reader := open(t, root, dir.Options{Create: true, NoSync: true}), open(t, root, dir.Options{})
	var keys []string
	put := func(key string) {
		if _, err := writer.Put(t.Context(), key, strings.NewReader(key), bucket.IfAbsent()); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	for i := range 600 {
		put(fmt.Sprintf("w/%04d", 2*i))
	}
	put("w/0700.d/x")
	put("w/0700-z")
	list := func(prefix string, limit int) (got []string) {
		for after, more := "", true; more; {
			p, err := reader.List(t.Context(), prefix, after, limit)
			if err != nil {
				t.Fatal(err)
			}
			for _, it := range p.Items {
				got, after = append(got, it.Key), it.Key
			}
			more = p.More
		}
		return got
	}
	old := time.Now().Add(-time.Hour)
	for round := range 20 {
		old = old.Add(time.Second)
		if err := os.Chtimes(filepath.Join(root, "objects", "w"), time.Time{}, old); err != nil {
			t.Fatal(err)
		}
		for _, prefix := range []string{"w/", "", "w/07", "w/0700", "w/0700.", "w/0700.d/", "w/9", "w/0700.d/x", "v", "x"} {
			var want []string
			for _, k := range slices.Sorted(slices.Values(keys)) {
				if strings.HasPrefix(k, prefix) {
					want = append(want, k)
				}
			}
			for _, limit := range []int{0, 97} {
				if d := cmp.Diff(want, list(prefix, limit)); d != "" {
					t.Fatalf("round %d, prefix %q (-want +got):\n%s", round, prefix, d)
				}
			}
		}
		put(fmt.Sprintf("w/%04d", 2*round+1))
		if err := writer.Delete(t.Context(), keys[round]); err != nil {
			t.Fatal(err)
		}
		keys = slices.Delete(keys, round, round+1)
	}
}

func TestErrorsOfTheFileSystem(t *testing.T) {
	for err, want := range map[error]bucket.Code{syscall.ENOSPC: bucket.Full, syscall.EDQUOT: bucket.Full, syscall.EFBIG: bucket.Full, syscall.EROFS: bucket.Denied, syscall.EACCES: bucket.Denied, syscall.ENAMETOOLONG: bucket.BadKey, syscall.EIO: bucket.Unknown} {
		if got := dir.Classify(err); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}
