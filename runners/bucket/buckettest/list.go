package buckettest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/runners/bucket"
)

// all lists everything below a prefix in pages.
func (s store) all(t *testing.T, prefix, after string, limit int) []string {
	t.Helper()
	keys := []string{}
	for {
		p, err := s.List(t.Context(), prefix, after, limit)
		if err != nil {
			t.Fatalf("list %s after %s: %v", prefix, after, err)
		}
		for _, i := range p.Items {
			keys = append(keys, strings.TrimPrefix(i.Key, s.prefix))
			after = i.Key
		}
		if !p.More {
			return keys
		}
		if len(p.Items) == 0 {
			t.Fatalf("list %s: an empty page says that there is more", prefix)
		}
		if limit > 0 && len(p.Items) > limit {
			t.Fatalf("list %s: %d items, limit %d", prefix, len(p.Items), limit)
		}
	}
}

// listOrder: byte order of whole keys, in which "a.b" comes before "a/b" and "a0" after it.
func listOrder(t *testing.T, s store) {
	keys := []string{"a.b", "a/b", "a/b.c", "a/bb/c", "a0", "a-", "b/c/d/e", "A/x", "z z", "é", "a/bb.d", "x+y=&%41#?"}
	for _, k := range keys {
		s.must(t, k, k, bucket.Always())
	}
	slices.Sort(keys)
	for _, limit := range []int{0, 1, 2, 5} {
		if diff := cmp.Diff(keys, s.all(t, s.prefix, "", limit)); diff != "" {
			t.Errorf("limit %d (-want +got):\n%s", limit, diff)
		}
	}
	for _, prefix := range []string{"a", "a/", "a/b", "a/bb", "a/bb/", "b/c/", "b/c/d/e", "nothing", "nothing/", "a/b/", "A"} {
		for _, after := range []string{"", "a", "a/", "a/b", "a/b.", "a/bb/c", "a/c", "b/c/d", "b/c/d/f", "zzz"} {
			want := []string{}
			for _, k := range keys {
				if strings.HasPrefix(k, prefix) && k > after {
					want = append(want, k)
				}
			}
			from := after
			if after != "" {
				from = s.key(after)
			}
			if diff := cmp.Diff(want, s.all(t, s.key(prefix), from, 3)); diff != "" {
				t.Errorf("prefix %q after %q (-want +got):\n%s", prefix, after, diff)
			}
		}
	}
}

// listPages: a full page is 1,000 keys, whatever is asked for.
func listPages(t *testing.T, s store) {
	const n = 1_203
	keys := make([]string, n)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := g; i < n; i += 8 {
				keys[i] = fmt.Sprintf("flat/%06d", i)
				if _, err := s.Put(t.Context(), s.key(keys[i]), strings.NewReader("x"), bucket.IfAbsent()); err != nil {
					t.Errorf("put %s: %v", keys[i], err)
				}
			}
		})
	}
	wg.Wait()
	for _, limit := range []int{0, 5_000, -1, 1_000} {
		p, err := s.List(t.Context(), s.key("flat/"), "", limit)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Items) != 1_000 || !p.More {
			t.Errorf("limit %d: %d items, more: %v; want 1000 and more", limit, len(p.Items), p.More)
		}
	}
	if diff := cmp.Diff(keys, s.all(t, s.key("flat/"), "", 0)); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
	p, err := s.List(t.Context(), s.key("flat/"), s.key("flat/000202"), 1_000)
	if err != nil || len(p.Items) != 1_000 || p.Items[0].Key != s.key("flat/000203") { // More may be a false alarm
		t.Errorf("last full page: %d items, %v", len(p.Items), err)
	}
	if left := s.all(t, s.key("flat/"), s.key("flat/001202"), 0); len(left) > 0 {
		t.Errorf("after the last key there are %v", left)
	}
}

// listFresh: a listing right after a write shows it.
func listFresh(t *testing.T, s store) {
	v := s.must(t, "f/k", "0", bucket.IfAbsent())
	for i := 1; i <= 20; i++ {
		v = s.must(t, "f/k", fmt.Sprint(i), bucket.IfIs(v))
		p, err := s.List(t.Context(), s.key("f/"), "", 0)
		if err != nil || len(p.Items) != 1 || p.Items[0].Version != v {
			t.Fatalf("after swap %d the list shows %+v, %v; want version %s", i, p, err, v)
		}
	}
	if err := s.Delete(t.Context(), s.key("f/k")); err != nil {
		t.Fatal(err)
	}
	if left := s.all(t, s.key("f/"), "", 0); len(left) != 0 {
		t.Errorf("after delete the list shows %v", left)
	}
}

// hostileKeys are refused by every verb before anything happens, with the same code everywhere.
func hostileKeys(t *testing.T, s store) {
	for _, k := range []string{"", "/", "/etc/passwd", "a/", "a//b", ".", "..", "../x", "a/../b", "a/..", "a/./b", "./a", "a\x00b", "a\nb", "a\\b", "\xff\xfe", "\x7f",
		strings.Repeat("a", bucket.MaxKey+1), strings.Repeat("a", bucket.MaxPart+1), "a/" + strings.Repeat("é", 200)} {
		_, err := s.Put(t.Context(), k, strings.NewReader("x"), bucket.Always())
		want(t, fmt.Sprintf("put %.40q", k), err, bucket.BadKey)
		_, err = s.Get(t.Context(), k, bucket.Range{})
		want(t, fmt.Sprintf("get %.40q", k), err, bucket.BadKey)
		want(t, fmt.Sprintf("delete %.40q", k), s.Delete(t.Context(), k), bucket.BadKey)
	}
	for _, p := range []string{"/", "../", "a/../", "a//", "a\x00"} {
		_, err := s.List(t.Context(), p, "", 0)
		want(t, fmt.Sprintf("list %q", p), err, bucket.BadKey)
	}
	for _, k := range []string{"...", "..a/b..", "-", "~", "a b", "nul", "日本", "%2e%2e/%2f", ".hidden/.x"} {
		s.must(t, k, k, bucket.IfAbsent())
		if body, _ := s.read(t, k); body != k {
			t.Errorf("%q holds %q", k, body)
		}
	}
}

// folders: a key that is a folder of another may work (as on AWS) or is refused; it never harms the other.
func folders(t *testing.T, s store) {
	s.must(t, "a/b", "1", bucket.IfAbsent())
	for _, k := range []string{"a", "a/b/c"} {
		for _, c := range []bucket.Cond{bucket.IfAbsent(), bucket.Always()} {
			_, err := s.Put(t.Context(), s.key(k), strings.NewReader("2"), c)
			if err != nil && !bucket.Is(err, bucket.BadKey) && !bucket.Is(err, bucket.Condition) {
				t.Errorf("put %s beside a/b: %v, want success or BadKey", k, err)
			}
		}
	}
	if body, _ := s.read(t, "a/b"); body != "1" {
		t.Errorf("a/b holds %q", body)
	}
}
