package runners_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
)

const work = "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a"

// store is a store with hooks around its writes and a count of its requests.
type store struct {
	bucket.Bucket
	mu    sync.Mutex // the claims of one launch are written side by side
	put   func(key string, next func() (bucket.Version, error)) (bucket.Version, error)
	list  func(next func() (*bucket.Page, error)) (*bucket.Page, error)
	gets  int
	lists int
	puts  int
}

func newStore() *store { return &store{Bucket: mem.New()} }

func (s *store) count(n *int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*n++
}

func (s *store) Put(ctx context.Context, key string, b bucket.Body, c bucket.Cond) (bucket.Version, error) {
	s.count(&s.puts)
	next := func() (bucket.Version, error) { return s.Bucket.Put(ctx, key, b, c) }
	if s.put != nil {
		return s.put(key, next)
	}
	return next()
}

func (s *store) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	s.count(&s.gets)
	return s.Bucket.Get(ctx, key, r)
}

func (s *store) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	s.count(&s.lists)
	next := func() (*bucket.Page, error) { return s.Bucket.List(ctx, prefix, after, limit) }
	if s.list != nil {
		return s.list(next)
	}
	return next()
}

func answer(c bucket.Code) error { return &bucket.Error{Op: "put", Key: "x", Code: c} }

// fake is a runner of functions.
type fake struct {
	launch   func(context.Context, []runners.Launch) ([]runners.Receipt, error)
	release  func(json.RawMessage) (runners.Release, error)
	capacity int
}

func (f fake) Launch(ctx context.Context, jobs []runners.Launch) ([]runners.Receipt, error) {
	return f.launch(ctx, jobs)
}
func (f fake) Release(_ context.Context, h json.RawMessage) (runners.Release, error) {
	return f.release(h)
}
func (f fake) JobKinds() []string { return nil }
func (f fake) Capacity() int      { return max(f.capacity, 1) }

func takes(_ context.Context, jobs []runners.Launch) (out []runners.Receipt, err error) {
	for range jobs {
		out = append(out, runners.Receipt{Handle: json.RawMessage(`{"pid":4711}`), Text: "pid 4711"})
	}
	return out, nil
}

func order(n int64) runners.Launch { return orderOf(work, n) }

func orderOf(w string, n int64) runners.Launch {
	return runners.Launch{Work: w, Dispatch: n, Job: "digits", Store: "mem:", Env: map[string]string{"TOKEN": "canary"},
		Spec: record.Spec{Protocol: record.Protocol, Work: w, Kind: "train", Argv: []string{"train"}},
		Claim: record.Claim{Protocol: record.Protocol, Work: w, Dispatch: n, Nonce: record.Nonce(), Dispatcher: "one",
			Platform: "here", Runner: "fake", Job: "digits"}}
}

func put(t *testing.T, b bucket.Bucket, key string, v any) {
	t.Helper()
	body, ok := v.(string)
	if !ok {
		enc, err := record.Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		body = string(enc)
	}
	if _, err := b.Put(t.Context(), key, strings.NewReader(body), bucket.Always()); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, b bucket.Bucket, key string) string {
	t.Helper()
	o, err := b.Get(t.Context(), key, bucket.Range{})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Body.Close()
	body, err := io.ReadAll(o.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func keys(t *testing.T, b bucket.Bucket) (out []string) {
	t.Helper()
	p, err := b.List(t.Context(), "", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, it := range p.Items {
		out = append(out, it.Key)
	}
	return out
}

func TestClaimThenCallThenReceipt(t *testing.T) {
	s := newStore()
	d := runners.Dispatcher{Bucket: s}
	o := order(1)
	before := []string(nil)
	r := fake{launch: func(ctx context.Context, jobs []runners.Launch) ([]runners.Receipt, error) {
		before = keys(t, s.Bucket)
		return takes(ctx, jobs)
	}}
	out := d.Launch(t.Context(), r, []runners.Launch{o})
	if out[0].Err != nil || out[0].Noted != nil || !out[0].Claimed || !out[0].Receipt.OK {
		t.Fatalf("%+v", out[0])
	}
	if diff := cmp.Diff([]string{record.ClaimKey(work, 1), record.SpecKey(work)}, before); diff != "" {
		t.Errorf("in the store when the platform is called (-want +got):\n%s", diff)
	}
	list, err := d.ReadClaims(t.Context(), work, 0, 10)
	if err != nil || len(list) != 1 || list[0].Bad != "" {
		t.Fatal(list, err)
	}
	if diff := cmp.Diff(o.Claim, list[0].Claim); diff != "" {
		t.Errorf("claim (-want +got):\n%s", diff)
	}
	var handle bytes.Buffer
	if err := json.Compact(&handle, list[0].Receipt.Handle); err != nil || handle.String() != `{"pid":4711}` || list[0].Receipt.Nonce != o.Claim.Nonce {
		t.Errorf("receipt: %+v, %v", list[0].Receipt, err)
	}
	for _, k := range keys(t, s.Bucket) {
		if strings.Contains(get(t, s.Bucket, k), "canary") {
			t.Errorf("the secret is in %s", k)
		}
	}
}

func TestTheOtherDispatcherIsFirst(t *testing.T) {
	d := runners.Dispatcher{Bucket: newStore()}
	if out := d.Launch(t.Context(), fake{launch: takes}, []runners.Launch{order(1)}); out[0].Err != nil {
		t.Fatal(out[0].Err)
	}
	late := fake{launch: func(context.Context, []runners.Launch) ([]runners.Receipt, error) {
		t.Error("the platform was called without a claim")
		return nil, nil
	}}
	out := d.Launch(t.Context(), late, []runners.Launch{order(1)})
	if runners.ClassOf(out[0].Err) != runners.SpawnedElsewhere || out[0].Claimed || out[0].Receipt != nil {
		t.Errorf("%+v", out[0])
	}
	if !strings.Contains(out[0].Err.Error(), "claimed by one") {
		t.Errorf("error: %v", out[0].Err)
	}
}

// In one call with several orders the platform is asked for those alone whose claim is ours.
func TestPartOfALaunchIsClaimedElsewhere(t *testing.T) {
	d := runners.Dispatcher{Bucket: newStore()}
	other := record.Hash([]byte("another work"))
	d.Launch(t.Context(), fake{launch: takes}, []runners.Launch{order(1)})
	asked := 0
	r := fake{capacity: 2, launch: func(ctx context.Context, jobs []runners.Launch) ([]runners.Receipt, error) {
		asked = len(jobs)
		return takes(ctx, jobs)
	}}
	out := d.Launch(t.Context(), r, []runners.Launch{order(1), orderOf(other, 1)})
	if asked != 1 || runners.ClassOf(out[0].Err) != runners.SpawnedElsewhere || out[1].Err != nil || out[1].Work != other {
		t.Errorf("asked for %d: %+v", asked, out)
	}
	out = d.Launch(t.Context(), fake{launch: takes}, []runners.Launch{order(2), orderOf(other, 2)})
	if out[0].Err == nil || out[0].Claimed || out[1].Err == nil {
		t.Errorf("more than the capacity: %+v", out)
	}
}

// The jobs of one launch share its answer, each beside its own claim: how many they were, and what went wrong. A handle that
// stands for two of them is a breach: the release of one would end the other.
func TestALaunchOfSeveral(t *testing.T) {
	own := func(_ context.Context, jobs []runners.Launch) (out []runners.Receipt, err error) {
		for i := range jobs {
			out = append(out, runners.Receipt{Handle: json.RawMessage(fmt.Sprintf(`{"pid":%d}`, i+1))})
		}
		return out, nil
	}
	refuses := func(context.Context, []runners.Launch) ([]runners.Receipt, error) {
		return nil, &runners.Failure{Class: runners.NoSlots, Err: errors.New("one of two was refused")}
	}
	for name, tc := range map[string]struct {
		launch func(context.Context, []runners.Launch) ([]runners.Receipt, error)
		class  runners.Class
	}{"taken": {own, ""}, "one refused": {refuses, runners.NoSlots}, "one handle for both": {takes, runners.ProtocolError}} {
		s := newStore()
		works := []string{work, record.Hash([]byte("another")), record.Hash([]byte("a third"))}
		var orders []runners.Launch
		for _, w := range works {
			orders = append(orders, orderOf(w, 1))
		}
		var at []string
		out := runners.Dispatcher{Bucket: s}.Launch(t.Context(), fake{capacity: 3, launch: func(ctx context.Context, jobs []runners.Launch) ([]runners.Receipt, error) {
			for _, j := range jobs {
				at = append(at, j.Work)
			}
			return tc.launch(ctx, jobs)
		}}, orders)
		if diff := cmp.Diff(works, at); diff != "" {
			t.Errorf("%s: what the platform was asked for (-want +got):\n%s", name, diff)
		}
		for i, o := range out {
			if !o.Claimed || o.Noted != nil || o.Receipt == nil || o.Receipt.Jobs != 3 || o.Receipt.Work != works[i] || o.Receipt.Class != string(tc.class) || o.Receipt.OK != (tc.class == "") {
				t.Errorf("%s: %+v %+v", name, o, o.Receipt)
			}
		}
	}
}

func TestBreachesOfTheContract(t *testing.T) {
	one := []runners.Receipt{{Handle: json.RawMessage(`{}`)}}
	for name, tc := range map[string]struct {
		receipts []runners.Receipt
		err      error
		class    runners.Class
	}{
		"none for one":       {nil, nil, runners.ProtocolError},
		"two for one":        {append(one, one...), nil, runners.ProtocolError},
		"no handle":          {[]runners.Receipt{{Text: "ok"}}, nil, runners.ProtocolError},
		"handle is no JSON":  {[]runners.Receipt{{Handle: json.RawMessage("{")}}, nil, runners.ProtocolError},
		"handle of a mile":   {[]runners.Receipt{{Handle: json.RawMessage(`"` + strings.Repeat("x", runners.MaxHandle) + `"`)}}, nil, runners.ProtocolError},
		"no failure":         {nil, io.ErrUnexpectedEOF, runners.ProtocolError},
		"a class of its own": {nil, &runners.Failure{Class: "bad_hair_day"}, runners.ProtocolError},
		"wrapped":            {nil, fmt.Errorf("wrap: %w", &runners.Failure{Class: runners.NoSlots}), runners.NoSlots},
		"both":               {one, &runners.Failure{Class: runners.Rejected}, runners.Rejected},
		"long words":         {nil, &runners.Failure{Class: runners.Rejected, Raw: strings.Repeat("<html>", 10_000)}, runners.Rejected},
	} {
		d := runners.Dispatcher{Bucket: newStore()}
		out := d.Launch(t.Context(), fake{launch: func(context.Context, []runners.Launch) ([]runners.Receipt, error) { return tc.receipts, tc.err }}, []runners.Launch{order(1)})
		f, ok := errors.AsType[*runners.Failure](out[0].Err)
		if !ok || f.Class != tc.class || f.Hint == "" || f.Platform != "here" || f.Op != "launch" || len(f.Raw) > 5000 {
			t.Errorf("%s: %.300v", name, out[0].Err)
		}
		if r := out[0].Receipt; r == nil || r.OK || r.Class != string(tc.class) || len(r.Text) > 600 || out[0].Noted != nil {
			t.Errorf("%s: receipt %+v, %v", name, r, out[0].Noted)
		}
	}
}

func TestAPanicIsAFailure(t *testing.T) {
	d := runners.Dispatcher{Bucket: newStore()}
	r := fake{launch: func(_ context.Context, jobs []runners.Launch) ([]runners.Receipt, error) {
		none := []string{}
		return nil, errors.New(none[len(jobs)])
	}, release: func(json.RawMessage) (runners.Release, error) { panic("boo") }}
	out := d.Launch(t.Context(), r, []runners.Launch{order(1)})
	f, ok := errors.AsType[*runners.Failure](out[0].Err)
	if !ok || f.Class != runners.ProtocolError || !strings.Contains(f.Error(), "index out of range") || !strings.Contains(f.Stack, "launch_test.go") {
		t.Errorf("%v", out[0].Err)
	}
	put(t, d.Bucket, record.ReceiptKey(work, 1), record.Receipt{Protocol: 1, Work: work, Dispatch: 1, OK: true, Handle: json.RawMessage(`{}`)})
	a, err := d.Release(t.Context(), r, work, 1)
	if runners.ClassOf(err) != runners.ProtocolError || a.Settlement != runners.Pending || !strings.Contains(err.Error(), "boo") {
		t.Errorf("%+v, %v", a, err)
	}
}

// When the caller's context ends in the call, nobody knows what the platform did; the receipt says so all the same.
func TestTheReceiptSurvivesTheCaller(t *testing.T) {
	d := runners.Dispatcher{Bucket: newStore()}
	ctx, cancel := context.WithCancel(t.Context())
	out := d.Launch(ctx, fake{launch: func(ctx context.Context, _ []runners.Launch) ([]runners.Receipt, error) {
		cancel()
		return nil, ctx.Err()
	}}, []runners.Launch{order(1)})
	if runners.ClassOf(out[0].Err) != runners.Unreachable || out[0].Noted != nil {
		t.Errorf("%+v", out[0])
	}
	if r := get(t, d.Bucket, record.ReceiptKey(work, 1)); !strings.Contains(r, "unreachable") {
		t.Errorf("receipt: %s", r)
	}
}

// A platform that takes all the time there is has answered nevertheless, and its answer is kept.
func TestTheAnswerToAReleaseSurvivesTheCaller(t *testing.T) {
	d := runners.Dispatcher{Bucket: newStore()}
	put(t, d.Bucket, record.ClaimKey(work, 1), order(1).Claim)
	put(t, d.Bucket, record.ReceiptKey(work, 1), record.Receipt{Protocol: 1, Work: work, Dispatch: 1, OK: true, Handle: json.RawMessage(`{}`)})
	ctx, cancel := context.WithCancel(t.Context())
	a, err := d.Release(ctx, fake{release: func(json.RawMessage) (runners.Release, error) {
		cancel()
		return runners.Release{Settlement: runners.Pending, Text: "told to end"}, nil
	}}, work, 1)
	if err != nil || a.Settlement != runners.Pending {
		t.Errorf("%+v, %v", a, err)
	}
	if r := get(t, d.Bucket, record.ReleaseKey(work, 1, 1)); !strings.Contains(r, "told to end") {
		t.Errorf("release: %s", r)
	}
}

// Every way in which the store can answer a claim, and what must follow: the platform is called when the claim is
// surely ours, and only then.
func TestAnswersToAClaim(t *testing.T) {
	foreign := func(s *store) { put(t, s.Bucket, record.ClaimKey(work, 1), order(1).Claim) }
	for name, tc := range map[string]struct {
		first  func(*store, func() (bucket.Version, error)) (bucket.Version, error) // answers the first put of the claim
		called bool
		class  runners.Class // of the error; empty: none
		code   bucket.Code   // of an error that is no failure
	}{
		"landed, answer lost": {func(_ *store, next func() (bucket.Version, error)) (bucket.Version, error) {
			_, _ = next()
			return "", answer(bucket.Unknown)
		}, true, "", 0},
		"never landed, answer lost": {func(*store, func() (bucket.Version, error)) (bucket.Version, error) {
			return "", answer(bucket.Unknown)
		}, true, "", 0},
		"landed twice": {func(_ *store, next func() (bucket.Version, error)) (bucket.Version, error) {
			_, _ = next()
			return next()
		}, true, "", 0},
		"answer lost, another's landed": {func(s *store, _ func() (bucket.Version, error)) (bucket.Version, error) {
			foreign(s)
			return "", answer(bucket.Unknown)
		}, false, runners.SpawnedElsewhere, 0},
		"raced": {func(*store, func() (bucket.Version, error)) (bucket.Version, error) {
			return "", answer(bucket.Raced)
		}, true, "", 0},
		"slow down": {func(*store, func() (bucket.Version, error)) (bucket.Version, error) {
			return "", answer(bucket.Throttled)
		}, true, "", 0},
		"denied": {func(*store, func() (bucket.Version, error)) (bucket.Version, error) {
			return "", answer(bucket.Denied)
		}, false, "", bucket.Denied},
		"no bucket": {func(*store, func() (bucket.Version, error)) (bucket.Version, error) {
			return "", answer(bucket.NoBucket)
		}, false, "", bucket.NoBucket},
		"full": {func(*store, func() (bucket.Version, error)) (bucket.Version, error) {
			return "", answer(bucket.Full)
		}, false, "", bucket.Full},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, fired, called := newStore(), 0, false
			s.put = func(key string, next func() (bucket.Version, error)) (bucket.Version, error) {
				if key == record.ClaimKey(work, 1) && fired == 0 {
					fired++
					return tc.first(s, next)
				}
				return next()
			}
			out := runners.Dispatcher{Bucket: s}.Launch(t.Context(), fake{launch: func(ctx context.Context, jobs []runners.Launch) ([]runners.Receipt, error) {
				called = true
				return takes(ctx, jobs)
			}}, []runners.Launch{order(1)})
			if fired != 1 || called != tc.called || out[0].Claimed != tc.called {
				t.Errorf("%s: fired %d, called %v, %+v", name, fired, called, out[0])
			}
			f, isFailure := errors.AsType[*runners.Failure](out[0].Err)
			switch {
			case tc.called && out[0].Err != nil:
				t.Errorf("%s: %v", name, out[0].Err)
			case tc.class != "" && (!isFailure || f.Class != tc.class):
				t.Errorf("%s: %v", name, out[0].Err)
			case tc.code != 0 && !bucket.Is(out[0].Err, tc.code):
				t.Errorf("%s: %v", name, out[0].Err)
			}
		})
	}
}

// A store that never answers: the claim stays unsettled, nothing is launched, and it ends within a bounded time.
func TestAClaimThatIsNeverSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.put = func(string, func() (bucket.Version, error)) (bucket.Version, error) {
			return "", answer(bucket.Unknown)
		}
		began := time.Now()
		out := runners.Dispatcher{Bucket: s}.Launch(t.Context(), fake{}, []runners.Launch{order(1)})
		if u, ok := errors.AsType[*runners.Unsettled](out[0].Err); !ok || u.Key != record.SpecKey(work) || out[0].Claimed {
			t.Errorf("%v", out[0].Err)
		}
		if took := time.Since(began); took > time.Minute || s.puts != 8 {
			t.Errorf("%d puts in %s", s.puts, took)
		}
	})
}

func TestSpecIsWrittenOnce(t *testing.T) {
	spec := record.Spec{Protocol: 1, Kind: "train", Argv: []string{"sh", "-c", "a < b && c > d"}} // characters that HTML would escape
	spec.Identity = record.Identity(spec)
	w := record.Hash(spec.Identity)
	spec.Work = w
	b := mem.New()
	if err := runners.WriteSpec(t.Context(), b, spec); err != nil {
		t.Fatal(err)
	}
	first := get(t, b, record.SpecKey(w))
	spec.Metrics = map[string]string{"loss": "lower"} // asked for on another day
	if err := runners.WriteSpec(t.Context(), b, spec); err != nil {
		t.Errorf("the same work again: %v", err)
	}
	if get(t, b, record.SpecKey(w)) != first {
		t.Error("the spec was written twice")
	}
	for _, foreign := range []string{`{"work":"` + work + `"}`, `{`, ``, `[]`, strings.Replace(first, "train", "trap", 2), strings.Replace(first, "a < b", "evil", 1)} {
		put(t, b, record.SpecKey(w), foreign)
		if err := runners.WriteSpec(t.Context(), b, spec); err == nil || !strings.Contains(err.Error(), "not the spec of this work") {
			t.Errorf("%.40q is there: %v", foreign, err)
		}
	}
}

// Each class that failure.go declares has its sentence; so has every failure, with or without a hint of its own.
func TestEveryClassHasASentence(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "failure.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || fmt.Sprint(v.Type) != "Class" {
			return true
		}
		found++
		c := runners.Class(strings.Trim(v.Values[0].(*ast.BasicLit).Value, `"`))
		f := &runners.Failure{Class: c, Platform: "p", Op: "launch"}
		if c.Advice() == "" || !strings.Contains(f.Error(), c.Advice()) || runners.ClassOf(fmt.Errorf("w: %w", f)) != c {
			t.Errorf("class %s has no sentence: %v", c, f)
		}
		return true
	})
	if found != 7 {
		t.Errorf("%d classes are declared", found)
	}
	if runners.Class("other").Advice() != "" || runners.ClassOf(io.EOF) != runners.ProtocolError {
		t.Error("what is no class of ours")
	}
}
