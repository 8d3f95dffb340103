package bucket_test

import (
	"path"
	"strings"
	"testing"

	"github.com/headway-run/headway/runners/bucket"
)

// FuzzKey: whatever is accepted stays inside its folder, is clean, and short.
func FuzzKey(f *testing.F) {
	for _, k := range []string{"a", "a/b", "", "/", "..", "a/../b", "a//b", "a/.", "a\x00", "witness/0123", "\xff", "a\\b", strings.Repeat("a", 300)} {
		f.Add(k)
	}
	f.Fuzz(func(t *testing.T, k string) {
		err := bucket.CheckKey("get", k)
		if err != nil {
			if !bucket.Is(err, bucket.BadKey) || len(err.Error()) > 1_000 || strings.ContainsAny(err.Error(), "\x00\n\x1b") {
				t.Errorf("refusal of %q: %q", k, err)
			}
			return
		}
		if path.Clean("/base/"+k) != "/base/"+k || len(k) > bucket.MaxKey || strings.ContainsRune(k, 0) {
			t.Errorf("%q was accepted", k)
		}
		for i := range k {
			if err := bucket.CheckPrefix(k[:i]); err != nil && i > 0 && len(k) < 200 {
				t.Errorf("key %q is accepted, its prefix %q is not: %v", k, k[:i], err)
			}
		}
	})
}

func TestRange(t *testing.T) {
	for _, c := range []struct {
		r       bucket.Range
		size    int64
		off, n  int64
		allowed bool
	}{
		{bucket.Range{}, 0, 0, 0, true}, {bucket.Range{}, 10, 0, 10, true}, {bucket.Range{Offset: 3}, 10, 3, 7, true}, {bucket.Range{Offset: 3, Length: 100}, 10, 3, 7, true},
		{bucket.Range{Offset: 10}, 10, 0, 0, false}, {bucket.Range{Offset: -1}, 10, 0, 0, false}, {bucket.Range{Length: -1}, 10, 0, 0, false}, {bucket.Range{Offset: 1 << 62, Length: 1 << 62}, 10, 0, 0, false},
	} {
		if off, n, ok := c.r.Bounds(c.size); off != c.off || n != c.n || ok != c.allowed {
			t.Errorf("%+v of %d: %d, %d, %v", c.r, c.size, off, n, ok)
		}
	}
}

func TestCodes(t *testing.T) {
	for c := bucket.Unknown; c <= bucket.Unsupported; c++ {
		if strings.HasPrefix(c.String(), "Code(") || c.Certain() != (c != bucket.Unknown) {
			t.Errorf("code %d: %s, certain %v", uint8(c), c, c.Certain())
		}
	}
	e := &bucket.Error{Op: "put", Key: "k", Code: bucket.Full, Err: bucket.CheckKey("get", ""), Hint: "do this"}
	if !strings.HasPrefix(e.Error(), "store: put k: Full: ") || !strings.HasSuffix(e.Error(), "(do this)") || bucket.CodeOf(e) != bucket.Full || bucket.CodeOf(path.ErrBadPattern) != bucket.Unknown {
		t.Errorf("%v", e)
	}
}
