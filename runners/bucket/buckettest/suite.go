// Package buckettest is the one conformance suite of the store port: every adapter and every decorator passes it, over
// goroutines, and over processes where there are some. What it asks for is what witness and record rely on, and
// nothing else.
package buckettest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/runners/bucket"
)

// store is an open bucket and a prefix of its own in it, since the bucket may be shared and full of other things.
type store struct {
	bucket.Bucket
	prefix string
}

// Run runs the suite. open is called once for each part; it may return the same bucket each time.
func Run(t *testing.T, open func(t *testing.T) bucket.Bucket) {
	parts := []struct {
		name string
		run  func(t *testing.T, s store)
	}{
		{"round trip", roundTrip}, {"create once", createOnce}, {"swap", swap}, {"swap of an absent key", swapAbsent},
		{"equal bytes", equalBytes}, {"delete", deletes}, {"range", ranges}, {"stamps", stamps},
		{"list order", listOrder}, {"list pages", listPages}, {"list is fresh", listFresh},
		{"hostile keys", hostileKeys}, {"folders", folders}, {"cut upload", cutUpload}, {"large object", largeObject},
		{"ended context", endedContext}, {"presign", presign},
		{"create race", createRace}, {"swap race", swapRace}, {"counter", counter}, {"counter with lost answers", lossyCounter},
		{"readers see whole objects", wholeObjects},
	}
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) {
			p.run(t, store{Bucket: open(t), prefix: "t/" + nonce() + "/"})
		})
	}
}

func nonce() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

func (s store) key(k string) string { return s.prefix + k }

// must puts and fails the test on any error.
func (s store) must(t *testing.T, key, body string, c bucket.Cond) bucket.Version {
	t.Helper()
	v, err := s.Put(t.Context(), s.key(key), strings.NewReader(body), c)
	if err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
	if v == "" {
		t.Fatalf("put %s: the version is empty", key)
	}
	return v
}

func (s store) read(t *testing.T, key string) (string, bucket.Info) {
	t.Helper()
	body, info, err := get(t.Context(), s, s.key(key), bucket.Range{})
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	return body, info
}

func get(ctx context.Context, b bucket.Bucket, key string, r bucket.Range) (string, bucket.Info, error) {
	o, err := b.Get(ctx, key, r)
	if err != nil {
		return "", bucket.Info{}, err
	}
	data, err := io.ReadAll(o.Body)
	return string(data), o.Info, errors.Join(err, o.Body.Close())
}

// want fails unless err has one of the codes.
func want(t *testing.T, what string, err error, codes ...bucket.Code) {
	t.Helper()
	for _, c := range codes {
		if bucket.Is(err, c) {
			return
		}
	}
	t.Errorf("%s: got %v, want code %v", what, err, codes)
}

func roundTrip(t *testing.T, s store) {
	for name, body := range map[string]string{"empty": "", "small": "hello", "binary": "\x00\xff\r\n\x00", "medium": strings.Repeat("0123456789abcdef", 20_000)} {
		v := s.must(t, name, body, bucket.Always())
		got, info := s.read(t, name)
		if got != body {
			t.Errorf("%s: read %d bytes that are not the %d written", name, len(got), len(body))
		}
		if diff := cmp.Diff(bucket.Info{Key: s.key(name), Size: int64(len(body)), Version: v, Modified: info.Modified}, info); diff != "" {
			t.Errorf("%s: info (-want +got):\n%s", name, diff)
		}
		p, err := s.List(t.Context(), s.key(name), "", 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Items) != 1 || p.Items[0].Version != v || p.Items[0].Size != int64(len(body)) || p.Items[0].Key != s.key(name) {
			t.Errorf("%s: list shows %+v, want version %s", name, p.Items, v)
		}
	}
	_, _, err := get(t.Context(), s, s.key("absent"), bucket.Range{})
	want(t, "get of an absent key", err, bucket.NotFound)
}

func createOnce(t *testing.T, s store) {
	v := s.must(t, "k", "first", bucket.IfAbsent())
	for _, body := range []string{"second", "first"} {
		_, err := s.Put(t.Context(), s.key("k"), strings.NewReader(body), bucket.IfAbsent())
		want(t, "second create", err, bucket.Condition)
	}
	if body, info := s.read(t, "k"); body != "first" || info.Version != v {
		t.Errorf("after a refused create the key holds %q, version %s", body, info.Version)
	}
}

func swap(t *testing.T, s store) {
	a := s.must(t, "k", "a", bucket.IfAbsent())
	b := s.must(t, "k", "b", bucket.IfIs(a))
	if a == b {
		t.Fatalf("two contents have one version %s", a)
	}
	_, err := s.Put(t.Context(), s.key("k"), strings.NewReader("c"), bucket.IfIs(a))
	want(t, "swap of a stale version", err, bucket.Condition)
	if body, info := s.read(t, "k"); body != "b" || info.Version != b {
		t.Errorf("after a refused swap the key holds %q", body)
	}
	if c := s.must(t, "k", "d", bucket.Always()); c == b {
		t.Errorf("an overwrite kept the version")
	}
	_, err = s.Put(t.Context(), s.key("k"), strings.NewReader("e"), bucket.IfIs(b))
	want(t, "swap after an overwrite", err, bucket.Condition)
}

// swapAbsent: some stores answer 412 where AWS says 404. Both mean "surely not written".
func swapAbsent(t *testing.T, s store) {
	v := s.must(t, "other", "x", bucket.Always())
	_, err := s.Put(t.Context(), s.key("k"), strings.NewReader("x"), bucket.IfIs(v))
	want(t, "swap of an absent key", err, bucket.Gone, bucket.Condition)
	_, _, err = get(t.Context(), s, s.key("k"), bucket.Range{})
	want(t, "get after it", err, bucket.NotFound)
}

// equalBytes writes down the trap, so that nobody believes in the opposite: A→B→A may bring the old version back, and
// then a stale swap passes. Distinct bytes must have distinct versions.
func equalBytes(t *testing.T, s store) {
	a := s.must(t, "k", "A", bucket.IfAbsent())
	b := s.must(t, "k", "B", bucket.IfIs(a))
	again := s.must(t, "k", "A", bucket.IfIs(b))
	_, err := s.Put(t.Context(), s.key("k"), strings.NewReader("C"), bucket.IfIs(a))
	if passed := err == nil; passed != (again == a) {
		t.Errorf("versions %s and %s of equal bytes, but a swap on the first gave %v", a, again, err)
	}
	t.Logf("equal bytes give an equal version: %v", again == a)
}

func deletes(t *testing.T, s store) {
	if err := s.Delete(t.Context(), s.key("k")); err != nil {
		t.Errorf("delete of an absent key: %v", err)
	}
	v := s.must(t, "k", "x", bucket.IfAbsent())
	if err := s.Delete(t.Context(), s.key("k")); err != nil {
		t.Fatal(err)
	}
	_, _, err := get(t.Context(), s, s.key("k"), bucket.Range{})
	want(t, "get after delete", err, bucket.NotFound)
	_, err = s.Put(t.Context(), s.key("k"), strings.NewReader("y"), bucket.IfIs(v))
	want(t, "swap after delete", err, bucket.Gone, bucket.Condition)
	s.must(t, "k", "z", bucket.IfAbsent())
}

func ranges(t *testing.T, s store) {
	s.must(t, "k", "0123456789", bucket.Always())
	for _, c := range []struct {
		r    bucket.Range
		want string
	}{{bucket.Range{}, "0123456789"}, {bucket.Range{Offset: 3}, "3456789"}, {bucket.Range{Length: 4}, "0123"}, {bucket.Range{Offset: 8, Length: 100}, "89"}, {bucket.Range{Offset: 9, Length: 1}, "9"}} {
		body, info, err := get(t.Context(), s, s.key("k"), c.r)
		if err != nil || body != c.want || info.Size != 10 {
			t.Errorf("range %+v: %q, size %d, %v; want %q, size 10", c.r, body, info.Size, err, c.want)
		}
	}
	_, _, err := get(t.Context(), s, s.key("k"), bucket.Range{Offset: 10, Length: 1})
	want(t, "range behind the end", err, bucket.BadKey)
	_, _, err = get(t.Context(), s, s.key("k"), bucket.Range{Offset: -1})
	want(t, "negative range", err, bucket.BadKey)
}

// stamps: both are the store's, so their difference is an age; one second of resolution on S3.
func stamps(t *testing.T, s store) {
	s.must(t, "k", "x", bucket.Always())
	o, err := s.Get(t.Context(), s.key("k"), bucket.Range{})
	if err != nil {
		t.Fatal(err)
	}
	_ = o.Body.Close()
	p, err := s.List(t.Context(), s.key("k"), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, date := range []time.Time{o.Date, p.Date} {
		if date.IsZero() || o.Modified.IsZero() {
			t.Fatalf("stamps are missing: Date %v, Modified %v", date, o.Modified)
		}
		if age := date.Sub(o.Modified); age < -2*time.Second || age > time.Minute {
			t.Errorf("an object written just now is %s old by the store's own stamps", age)
		}
	}
}

// cutUpload: a body that ends early leaves what was there, whichever the condition.
func cutUpload(t *testing.T, s store) {
	v := s.must(t, "old", "old", bucket.Always())
	for key, c := range map[string]bucket.Cond{"old": bucket.IfIs(v), "new": bucket.IfAbsent(), "new2": bucket.Always()} {
		if _, err := s.Put(t.Context(), s.key(key), cut{size: 100_000, at: 50_000}, c); err == nil {
			t.Errorf("%s: a body that ended early was accepted", key)
		}
	}
	if _, err := s.Put(t.Context(), s.key("old"), cut{size: 40 << 20, at: 30 << 20}, bucket.Always()); err == nil {
		t.Errorf("a large body that ended early was accepted")
	}
	if body, info := s.read(t, "old"); body != "old" || info.Version != v {
		t.Errorf("after a cut upload the key holds %d bytes, version %s", len(body), info.Version)
	}
	for _, key := range []string{"new", "new2"} {
		_, _, err := get(t.Context(), s, s.key(key), bucket.Range{})
		want(t, "get of "+key, err, bucket.NotFound)
	}
}

// cut is a body that promises size bytes and breaks off.
type cut struct{ size, at int64 }

func (c cut) Size() int64 { return c.size }

func (c cut) ReadAt(p []byte, off int64) (int, error) {
	n := int(min(int64(len(p)), max(0, c.at-off)))
	clear(p[:n])
	if n < len(p) {
		return n, io.ErrUnexpectedEOF
	}
	return n, nil
}

func largeObject(t *testing.T, s store) {
	data := make([]byte, 36<<20+12_345) // several parts on S3
	_, _ = rand.Read(data)              // never fails (crypto/rand)
	v, err := s.Put(t.Context(), s.key("big"), bytes.NewReader(data), bucket.Always())
	if err != nil {
		t.Fatal(err)
	}
	got, info := s.read(t, "big")
	if got != string(data) || info.Version != v {
		t.Errorf("read %d of %d bytes, version %s, want %s", len(got), len(data), info.Version, v)
	}
	tail, _, err := get(t.Context(), s, s.key("big"), bucket.Range{Offset: 30 << 20, Length: 1000})
	if err != nil || tail != string(data[30<<20:30<<20+1000]) {
		t.Errorf("range of a large object: %d bytes, %v", len(tail), err)
	}
	p, err := s.List(t.Context(), s.key("big"), "", 0)
	if err != nil || len(p.Items) != 1 || p.Items[0].Version != v {
		t.Errorf("list: %+v, %v", p, err)
	}
	small := s.must(t, "big", "small", bucket.IfIs(v))
	if small == v {
		t.Error("the version did not change")
	}
}

func endedContext(t *testing.T, s store) {
	v := s.must(t, "k", "x", bucket.Always())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Put(ctx, s.key("k"), strings.NewReader("y"), bucket.IfIs(v))
	if err == nil || !errors.Is(err, context.Canceled) {
		t.Errorf("put with an ended context: %v", err)
	}
	if _, err := s.Get(ctx, s.key("k"), bucket.Range{}); err == nil {
		t.Error("get with an ended context succeeded")
	}
	if _, err := s.List(ctx, s.prefix, "", 0); err == nil {
		t.Error("list with an ended context succeeded")
	}
	if body, _ := s.read(t, "k"); body != "x" {
		t.Errorf("the key holds %q", body)
	}
}

// presign: whoever holds the URL may add a condition of his own, and the store honours it.
func presign(t *testing.T, s store) {
	u, err := s.Presign(t.Context(), bucket.MethodPut, s.key("k"), time.Minute)
	if bucket.Is(err, bucket.Unsupported) {
		t.Log("this store has no URLs")
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(fmt.Sprint(u), "If-None-Match") {
		t.Errorf("the condition is signed into %s", u)
	}
	_, err = s.Presign(t.Context(), bucket.MethodGet, s.key("k"), 365*24*time.Hour)
	want(t, "a year's URL", err, bucket.Unsupported)
}
