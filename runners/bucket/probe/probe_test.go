package probe_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/dir"
	"github.com/headway-run/headway/runners/bucket/faulty"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/bucket/probe"
)

// empty fails unless the probe has removed everything of its own.
func empty(t *testing.T, b bucket.Bucket) {
	t.Helper()
	p, err := b.List(t.Context(), probe.Prefix, "", 0)
	if err != nil || len(p.Items) > 0 {
		t.Errorf("the probe left %d keys behind, %v", len(p.Items), err)
	}
}

func TestGoodStoresPass(t *testing.T) {
	folder, err := dir.Open(t.TempDir(), dir.Options{Create: true, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]bucket.Bucket{"mem": mem.New(), "dir": folder, "answers 409": &conflicting{Bucket: mem.New(), busy: map[string]bool{}}} {
		t.Run(name, func(t *testing.T) {
			r, err := probe.Run(t.Context(), b, probe.Options{Store: "s", Version: "v"})
			if err != nil {
				t.Fatal(err)
			}
			if !r.Pass || len(r.Quirks) > 0 || r.Requests < 150 || r.SwapP99 <= 0 || r.LeaseFloor() < 3*time.Second {
				t.Errorf("report %+v", r)
			}
			empty(t, b)
		})
	}
}

// TestQuirkIsFound: the refusal says how to make the store usable.
func TestQuirkIsFound(t *testing.T) {
	r, err := probe.Run(t.Context(), brokenStore{mem.New(), unquoted}, probe.Options{})
	if err == nil || !strings.Contains(err.Error(), "add quirks=etag_unquoted to the store's URL") {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff([]string{probe.QuirkETagUnquoted}, r.Quirks); diff != "" {
		t.Errorf("quirks (-want +got):\n%s", diff)
	}
}

func TestBrokenStoresAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		put        func(context.Context, bucket.Bucket, string, bucket.Body, bucket.Cond) (bucket.Version, error)
		step, want string
	}{
		"ignores If-None-Match": {ignoresAbsent, "create", "silently ignores If-None-Match"},
		"ignores If-Match":      {ignoresMatch, "swap", "silently ignores If-Match"},
		"ignores both":          {ignoresBoth, "create", "silently ignores If-None-Match"},
		"501":                   {notImplemented, "create", "refuses conditional writes"},
		"creates on If-Match":   {createsOnMatch, "swap of an absent key", "If-Match on an absent key creates it"},
		"writes anyway":         {writesAnyway, "create", "a write that the store refused has changed the object"},
		"inverted":              {inverted, "create", "a create on a fresh key was refused"},
		"racy":                  {racy(2 * time.Millisecond), "create race", "racing writers created one key"},
		"racy, narrow":          {racy(20 * time.Microsecond), "create race", "racing writers created one key"},
		"racy swaps":            {racySwaps, "swap race", "racing writers swapped one version"},
	} {
		t.Run(name, func(t *testing.T) {
			b := mem.New()
			r, err := probe.Run(t.Context(), brokenStore{b, c.put}, probe.Options{})
			refusal, ok := errors.AsType[*probe.Refusal](err)
			if !ok || refusal.Step != c.step || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want a refusal at step %q with %q", err, c.step, c.want)
			}
			if r.Pass || r.Refusal != err.Error() || r.Step != c.step {
				t.Errorf("the report says %+v", r)
			}
			empty(t, b)
		})
	}
}

func TestFaultsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		rule faulty.Rule
		want string
	}{
		"ignored conditions": {faulty.Rule{Name: "f", Op: "put", Conditional: true, Effect: faulty.Ignore}, "silently ignores If-None-Match"},
		"stale reads":        {faulty.Rule{Name: "f", Key: "*/fresh", Effect: faulty.Stale}, "a cache or a lagging replica"},
		"lagging lists":      {faulty.Rule{Name: "f", Key: "*/fresh", Effect: faulty.Lag}, "a listing right after a write"},
		"truncated bodies":   {faulty.Rule{Name: "f", Key: "*/content", Effect: faulty.Truncate}, "is not what was written"},
	} {
		f := faulty.New(mem.New(), 1, c.rule)
		_, err := probe.Run(t.Context(), f, probe.Options{Rounds: 1})
		if _, ok := errors.AsType[*probe.Refusal](err); !ok || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want a refusal with %q", name, err, c.want)
		}
		if f.Fired("f") == 0 {
			t.Errorf("%s: the fault never fired", name)
		}
	}
}

// TestTroubleIsNoRefusal: wrong credentials, a missing bucket or a dead line say nothing about what the store can do.
func TestTroubleIsNoRefusal(t *testing.T) {
	for _, code := range []bucket.Code{bucket.Denied, bucket.NoBucket, bucket.Unknown, bucket.Full} {
		f := faulty.New(mem.New(), 1, faulty.Rule{Op: "put", Effect: faulty.Refuse, Code: code})
		r, err := probe.Run(t.Context(), f, probe.Options{})
		if _, refused := errors.AsType[*probe.Refusal](err); refused || !bucket.Is(err, code) || r.Pass {
			t.Errorf("%s: got %v, pass %v", code, err, r.Pass)
		}
	}
}

// TestPatience: a store that asks to slow down is probed more slowly, and passes.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := faulty.New(mem.New(), 1, faulty.Rule{Name: "429", Op: "put", Probability: 0.15, Effect: faulty.Refuse, Code: bucket.Throttled})
		if _, err := probe.Run(t.Context(), f, probe.Options{}); err != nil {
			t.Fatal(err)
		}
		if f.Fired("429") == 0 {
			t.Error("the fault never fired")
		}
	})
}

func TestClocksApart(t *testing.T) {
	for _, c := range []struct {
		date, modified time.Duration
		want           string
	}{{11 * time.Minute, 11 * time.Minute, "set this machine's clock"}, {0, -2 * time.Hour, "age of a lease could not be told"}, {3 * time.Minute, 3 * time.Minute, ""}} {
		r, err := probe.Run(t.Context(), skewed{mem.New(), c.date, c.modified}, probe.Options{Rounds: 1})
		if c.want == "" {
			if err != nil || len(r.Notes) == 0 || r.SkewS < 170 {
				t.Errorf("%+v: %v, report %+v", c, err, r)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v", c, err)
		}
	}
}

// skewed is a store whose clocks are off.
type skewed struct {
	bucket.Bucket
	date, modified time.Duration
}

func (s skewed) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	o, err := s.Bucket.Get(ctx, key, r)
	if err == nil {
		o.Date, o.Modified = o.Date.Add(s.date), o.Modified.Add(s.modified)
	}
	return o, err
}

func TestQuick(t *testing.T) {
	b := mem.New()
	r, err := probe.Quick(t.Context(), b, probe.Options{})
	if err != nil || r.Requests > 9 {
		t.Errorf("%d requests, %v", r.Requests, err)
	}
	empty(t, b)
}

func TestStoredVerdict(t *testing.T) {
	b := mem.New()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	if _, found, err := probe.Read(t.Context(), b); found || err != nil {
		t.Fatalf("found %v, %v", found, err)
	}
	want := probe.Report{Protocol: 1, Store: "s3://b", Version: "v1", Time: now.Format(time.RFC3339), Pass: true, Quirks: []string{}, Notes: []string{"n"}}
	if err := probe.Write(t.Context(), b, want); err != nil {
		t.Fatal(err)
	}
	got, found, err := probe.Read(t.Context(), b)
	if diff := cmp.Diff(want, got); diff != "" || !found || err != nil {
		t.Fatalf("found %v, %v (-want +got):\n%s", found, err, diff)
	}
	refused := want
	refused.Pass = false
	for _, c := range []struct {
		r              probe.Report
		found          bool
		store, version string
		after          time.Duration
		due            bool
	}{
		{want, true, "s3://b", "v1", time.Hour, false}, {want, true, "s3://b", "v1", 6 * 24 * time.Hour, false},
		{want, true, "s3://b", "v1", 8 * 24 * time.Hour, true}, {want, true, "s3://c", "v1", 0, true}, {want, true, "s3://b", "v2", 0, true},
		{want, false, "s3://b", "v1", 0, true}, {refused, true, "s3://b", "v1", 0, true}, {want, true, "s3://b", "v1", -48 * time.Hour, true},
	} {
		if why, due := probe.Due(c.r, c.found, c.store, c.version, now.Add(c.after)); due != c.due || due != (why != "") {
			t.Errorf("%+v: due %v, %q", c, due, why)
		}
	}
	if _, err := b.Put(t.Context(), probe.Key, strings.NewReader("{half"), bucket.Always()); err != nil {
		t.Fatal(err)
	}
	if _, found, err := probe.Read(t.Context(), b); found || err != nil {
		t.Errorf("a damaged report: found %v, %v", found, err)
	}
}

// TestRacyOverDoors: a store of several servers, each of which excludes by itself, is caught when the racers are spread.
func TestRacyOverDoors(t *testing.T) {
	shared := mem.New()
	doors := []bucket.Bucket{&serial{Bucket: shared}, &serial{Bucket: shared}, &serial{Bucket: shared}}
	if _, err := probe.Run(t.Context(), doors[0], probe.Options{}); err != nil {
		t.Errorf("through one door: %v", err)
	}
	_, err := probe.Run(t.Context(), doors[0], probe.Options{Doors: doors[1:]})
	if r, ok := errors.AsType[*probe.Refusal](err); !ok || r.Step != "create race" {
		t.Errorf("through three doors: %v, want a refusal", err)
	}
}

// serial is one of several servers: a lock of its own around check-then-act.
type serial struct {
	bucket.Bucket
	mu sync.Mutex
}

func (s *serial) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return racy(time.Millisecond)(ctx, s.Bucket, key, body, c)
}
