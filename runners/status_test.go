package runners_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// ctxOf is for checks inside a property, which have no context of their own.
func ctxOf() context.Context { return context.Background() }

// capture makes an attempt of one dispatch, opened.
func capture(t *testing.T, s *store, n int64) *witness.Holder {
	t.Helper()
	h, err := witness.Capture(t.Context(), s, witness.CaptureRequest{Work: work, Dispatch: n, Lease: witness.LeaseFor(0, time.Second, 0)})
	if err != nil {
		t.Fatal(err)
	}
	if v := h.Open(t.Context(), record.Open{Platform: "here"}); v.Outcome != witness.Won {
		t.Fatal(v)
	}
	return h
}

// finish ends a work with an empty result.
func finish(t *testing.T, s *store, h *witness.Holder) {
	t.Helper()
	a := h.Seen().Record.Attempt
	body, err := record.Encode(record.Manifest{Protocol: 1, Work: work, Attempt: a, Files: []record.File{}})
	if err != nil {
		t.Fatal(err)
	}
	put(t, s.Bucket, record.ResultManifestKey(work, a), string(body))
	v := h.Finish(t.Context(), witness.FinishedPointer{Attempt: a, Manifest: record.ResultManifestKey(work, a), SHA256: record.Hash(body)}, witness.Progress{})
	if v.Outcome != witness.Won {
		t.Fatal(v)
	}
}

func launched(t *testing.T, s *store, n int64) {
	t.Helper()
	if out := (runners.Dispatcher{Bucket: s}).Launch(t.Context(), fake{launch: takes}, []runners.Launch{order(n)}); out[0].Err != nil {
		t.Fatal(out[0].Err)
	}
}

func TestPhases(t *testing.T) {
	for _, tc := range []struct {
		name  string
		do    func(t *testing.T, s *store)
		phase runners.Phase
	}{
		{"nothing", func(*testing.T, *store) {}, runners.PhaseFresh},
		{"launched", func(t *testing.T, s *store) { launched(t, s, 1) }, runners.PhaseStarting},
		{"claimed and no receipt", func(t *testing.T, s *store) { put(t, s.Bucket, record.ClaimKey(work, 1), order(1).Claim) }, runners.PhaseStarting},
		{"refused", func(t *testing.T, s *store) { claims(t, s, 1, 2) }, runners.PhaseFree},
		{"held", func(t *testing.T, s *store) { launched(t, s, 1); capture(t, s, 1) }, runners.PhaseRunning},
		{"yielded", func(t *testing.T, s *store) { launched(t, s, 1); capture(t, s, 1).Yield(t.Context(), "spot") }, runners.PhaseFree},
		{"launched again", func(t *testing.T, s *store) {
			launched(t, s, 1)
			capture(t, s, 1).Yield(t.Context(), "spot")
			launched(t, s, 2)
		}, runners.PhaseStarting},
		{"released before it started", func(t *testing.T, s *store) {
			launched(t, s, 1)
			put(t, s.Bucket, record.ReleaseKey(work, 1, 1), record.Release{Protocol: 1, Work: work, Dispatch: 1, Settlement: "closed"})
		}, runners.PhaseFree},
		{"stopped", func(t *testing.T, s *store) { launched(t, s, 1); capture(t, s, 1); stop(t, s) }, runners.PhaseStopped},
		{"stopped before the capture", func(t *testing.T, s *store) { launched(t, s, 1); stop(t, s) }, runners.PhaseStopped},
		{"finished", func(t *testing.T, s *store) { launched(t, s, 1); finish(t, s, capture(t, s, 1)) }, runners.PhaseFinished},
		{"witness removed", func(t *testing.T, s *store) {
			launched(t, s, 1)
			capture(t, s, 1)
			if err := s.Bucket.Delete(t.Context(), record.WitnessKey(work)); err != nil {
				t.Fatal(err)
			}
		}, runners.PhaseUnknown},
		{"witness damaged", func(t *testing.T, s *store) { put(t, s.Bucket, record.WitnessKey(work), "{") }, runners.PhaseUnknown},
	} {
		s := newStore()
		tc.do(t, s)
		s.puts = 0
		got, err := runners.Dispatcher{Bucket: s}.Status(t.Context(), work)
		if err != nil || got.Phase != tc.phase || (got.Phase == runners.PhaseUnknown) != (got.Why != "") {
			t.Errorf("%s: %q, %q, %v", tc.name, got.Phase, got.Why, err)
		}
		if s.puts != 0 {
			t.Errorf("%s: a read wrote", tc.name)
		}
	}
}

func stop(t *testing.T, s *store) runners.Revoked {
	t.Helper()
	r, err := runners.Dispatcher{Bucket: s}.Revoke(t.Context(), work, "not wanted any more", runners.RevokeOptions{Stop: true})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestStatusShowsTheLastAttempts(t *testing.T) {
	s := newStore()
	for n := range int64(5) {
		launched(t, s, n+1)
		h := capture(t, s, n+1)
		put(t, s.Bucket, record.EndKey(work, n+1), record.End{Protocol: 1, Work: work, Attempt: n + 1, Class: "yielded"})
		h.Yield(t.Context(), "spot")
	}
	put(t, s.Bucket, record.EndKey(work, 4), "{")
	got, err := runners.Dispatcher{Bucket: s}.Status(t.Context(), work)
	if err != nil || len(got.Attempts) != 3 || got.Attempts[0].N != 3 || got.Attempts[2].End.Class != "yielded" || got.Attempts[2].Open.Dispatch != 5 {
		t.Fatalf("%+v, %v", got.Attempts, err)
	}
	if bad := got.Attempts[1]; bad.End != nil || bad.Bad == "" || bad.Open == nil {
		t.Errorf("%+v", bad)
	}
	s.list = func(func() (*bucket.Page, error)) (*bucket.Page, error) { return nil, answer(bucket.Unknown) }
	if _, err := (runners.Dispatcher{Bucket: s}).Status(t.Context(), work); err == nil {
		t.Error("a store that does not answer gave a status")
	}
}

func TestRevoke(t *testing.T) {
	s := newStore()
	d := runners.Dispatcher{Bucket: s}
	revoke := func(o runners.RevokeOptions) runners.Revoked {
		t.Helper()
		r, err := d.Revoke(t.Context(), work, "silent", o)
		if err != nil || r.Text == "" {
			t.Errorf("%+v, %v", r, err)
		}
		return r
	}
	if r := revoke(runners.RevokeOptions{}); r.Answer != witness.AlreadyOver {
		t.Errorf("never held: %+v", r)
	}
	launched(t, s, 1)
	h := capture(t, s, 1)
	judged := h.Seen()
	if v := h.Renew(t.Context(), witness.Progress{Step: 1}, judged.Record.Lease); v.Outcome != witness.Won {
		t.Fatal(v)
	}
	if r := revoke(runners.RevokeOptions{Judged: &judged}); r.Answer != witness.Renewed || !strings.Contains(r.Text, "renewed") {
		t.Errorf("renewed in between: %+v", r)
	}
	if r := revoke(runners.RevokeOptions{}); r.Answer != witness.Ended || r.Seen.Record.Floor != 0 {
		t.Errorf("take-over: %+v", r)
	}
	if v := h.Renew(t.Context(), witness.Progress{Step: 2}, judged.Record.Lease); !v.Over() {
		t.Errorf("the deposed holder's next write: %+v", v)
	}
	if r := revoke(runners.RevokeOptions{}); r.Answer != witness.AlreadyOver || !strings.Contains(r.Text, "was revoked before") {
		t.Errorf("twice: %+v", r)
	}
	launched(t, s, 2)
	launched(t, s, 3)
	if r := revoke(runners.RevokeOptions{Stop: true}); r.Answer != witness.Ended || r.Seen.Record.Floor != 4 {
		t.Errorf("stop: %+v", r)
	}
	if _, err := witness.Capture(t.Context(), s, witness.CaptureRequest{Work: work, Dispatch: 3, Lease: judged.Record.Lease}); err == nil {
		t.Error("a stopped dispatch captured")
	}
	launched(t, s, 4)
	finish(t, s, capture(t, s, 4))
	for _, o := range []runners.RevokeOptions{{}, {Stop: true}} {
		if r := revoke(o); r.Answer != witness.AlreadyOver || !strings.Contains(r.Text, "finished with attempt 2: there is nothing to revoke") {
			t.Errorf("finished: %+v", r)
		}
	}
}

func TestRevokeWithoutAVerdict(t *testing.T) {
	s := newStore()
	launched(t, s, 1)
	capture(t, s, 1)
	s.put = func(string, func() (bucket.Version, error)) (bucket.Version, error) { return "", answer(bucket.Denied) }
	r, err := runners.Dispatcher{Bucket: s}.Revoke(t.Context(), work, "silent", runners.RevokeOptions{Stop: true})
	if r.Answer != witness.Unwritten || err == nil || r.Text == "" {
		t.Errorf("%+v, %v", r, err)
	}
}

// lister is a fake that can list.
type lister struct {
	fake
	list []runners.Running
	err  error
}

func (l lister) Running(context.Context) ([]runners.Running, error) { return l.list, l.err }

func TestReleaseSaysNoMoreThanIsKnown(t *testing.T) {
	down := &runners.Failure{Class: runners.Unreachable, Platform: "here"}
	says := func(a runners.Release, err error) fake {
		return fake{release: func(json.RawMessage) (runners.Release, error) { return a, err }}
	}
	closed := says(runners.Release{Settlement: runners.Closed}, nil)
	ok := &record.Receipt{Protocol: 1, Work: work, Dispatch: 1, OK: true, Handle: json.RawMessage(`{"id":1}`)}
	failed := func(c runners.Class) *record.Receipt {
		return &record.Receipt{Protocol: 1, Work: work, Dispatch: 1, Class: string(c)}
	}
	ours := []runners.Running{{Work: work, Dispatch: 1, Handle: json.RawMessage(`{"id":2}`)}, {Work: work, Dispatch: 2, Handle: json.RawMessage(`{"id":3}`)}}
	until := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		receipt *record.Receipt
		runner  runners.Runner
		want    runners.Settlement
		class   runners.Class // of the error
		kept    string        // settlement in the release record; empty: none
	}{
		"closed":                         {ok, closed, runners.Closed, "", "closed"},
		"pending":                        {ok, says(runners.Release{}, nil), runners.Pending, "", "pending"},
		"bounded":                        {ok, says(runners.Release{Settlement: runners.Bounded, Until: until}, nil), runners.Bounded, "", "bounded"},
		"bounded without an end":         {ok, says(runners.Release{Settlement: runners.Bounded}, nil), runners.Pending, runners.ProtocolError, ""},
		"a settlement of its own":        {ok, says(runners.Release{Settlement: 77}, nil), runners.Pending, runners.ProtocolError, ""},
		"unreachable":                    {ok, says(runners.Release{}, down), runners.Pending, runners.Unreachable, ""},
		"closed beside an error":         {ok, says(runners.Release{Settlement: runners.Closed}, down), runners.Pending, runners.Unreachable, ""},
		"no receipt, cannot list":        {nil, closed, runners.Pending, "", "pending"},
		"no receipt, nothing listed":     {nil, lister{fake: closed}, runners.Pending, "", "pending"},
		"no receipt, listed":             {nil, lister{closed, ours, nil}, runners.Closed, "", "closed"},
		"no receipt, list is down":       {nil, lister{closed, ours, down}, runners.Pending, runners.Unreachable, ""},
		"refused":                        {failed(runners.Rejected), closed, runners.Closed, "", "closed"},
		"refused and yet listed":         {failed(runners.NoSlots), lister{says(runners.Release{}, nil), ours, nil}, runners.Pending, "", "pending"},
		"lost answer":                    {failed(runners.Unreachable), closed, runners.Pending, "", "pending"},
		"a twin is listed and stays":     {ok, lister{twin(), ours, nil}, runners.Pending, "", "pending"},
		"with a receipt, list is broken": {ok, lister{closed, nil, down}, runners.Pending, runners.Unreachable, ""},
	} {
		s := newStore()
		put(t, s.Bucket, record.ClaimKey(work, 1), order(1).Claim)
		if tc.receipt != nil {
			put(t, s.Bucket, record.ReceiptKey(work, 1), tc.receipt)
		}
		a, err := runners.Dispatcher{Bucket: s}.Release(t.Context(), tc.runner, work, 1)
		if a.Settlement != tc.want || (err != nil) != (tc.class != "") || err != nil && runners.ClassOf(err) != tc.class {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
		list, err := runners.Dispatcher{Bucket: s}.ReadClaims(t.Context(), work, 0, 1)
		if err != nil || (list[0].Release != nil) != (tc.kept != "") || list[0].Release != nil && list[0].Release.Settlement != tc.kept {
			t.Errorf("%s: kept %+v, %v", name, list[0].Release, err)
		}
	}
}

// What a receipt names is told to end also while its platform cannot list: a list that stays broken must not keep a
// machine for ever. It is not called closed, since a twin could be missed.
func TestReleaseAsksThoughTheListIsBroken(t *testing.T) {
	s := newStore()
	launched(t, s, 1)
	asked := 0
	f := fake{release: func(json.RawMessage) (runners.Release, error) {
		asked++
		return runners.Release{Settlement: runners.Closed}, nil
	}}
	a, err := runners.Dispatcher{Bucket: s}.Release(t.Context(), lister{f, nil, &runners.Failure{Class: runners.Unreachable, Platform: "here"}}, work, 1)
	if asked != 1 || a.Settlement != runners.Pending || runners.ClassOf(err) != runners.Unreachable {
		t.Errorf("asked %d times, %+v, %v", asked, a, err)
	}
}

// twin closes the launch of the receipt and not the other one.
func twin() fake {
	return fake{release: func(h json.RawMessage) (runners.Release, error) {
		if string(h) == `{"id":1}` {
			return runners.Release{Settlement: runners.Closed}, nil
		}
		return runners.Release{Settlement: runners.Pending, Text: "terminating"}, nil
	}}
}

// Of a launch that started twice the least that is known of either counts, whichever of the two was asked first and whether or
// not its platform found words for it.
func TestOfTwoInstancesTheLessSettledAnswers(t *testing.T) {
	until := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	answers := []runners.Release{{}, {Text: "terminating"}, {Settlement: runners.Bounded, Until: until, Text: "its session ends"},
		{Settlement: runners.Bounded, Until: until.Add(time.Hour)}, {Settlement: runners.Closed}, {Settlement: runners.Closed, Text: "gone"}}
	for _, first := range answers {
		for _, second := range answers {
			s := newStore()
			launched(t, s, 1)
			f := fake{release: func(h json.RawMessage) (runners.Release, error) {
				if string(h) == `{"twin":2}` {
					return second, nil
				}
				return first, nil
			}}
			twin := []runners.Running{{Work: work, Dispatch: 1, Handle: json.RawMessage(`{"twin":2}`)}}
			want := min(first.Settlement, second.Settlement)
			a, err := runners.Dispatcher{Bucket: s}.Release(t.Context(), lister{f, twin, nil}, work, 1)
			if err != nil || a.Settlement != want {
				t.Errorf("%+v, then %+v: %+v, %v, want %s", first, second, a, err, want)
			}
			if latest := (map[bool]time.Time{true: first.Until, false: second.Until})[first.Until.After(second.Until)]; want == runners.Bounded && !a.Until.Equal(latest) {
				t.Errorf("%+v, then %+v: bounded by %s, want the later of the two", first, second, a.Until)
			}
		}
	}
}

// A release that fails for one of two instances is told to the other all the same, and nothing is called over.
func TestAReleaseThatFailsReachesTheTwin(t *testing.T) {
	s := newStore()
	launched(t, s, 1)
	var asked []string
	f := fake{release: func(h json.RawMessage) (runners.Release, error) {
		if asked = append(asked, string(h)); len(asked) == 1 {
			return runners.Release{}, &runners.Failure{Class: runners.Unreachable, Platform: "here"}
		}
		return runners.Release{Settlement: runners.Closed}, nil
	}}
	twin := []runners.Running{{Work: work, Dispatch: 1, Handle: json.RawMessage(`{"twin":2}`)}}
	a, err := runners.Dispatcher{Bucket: s}.Release(t.Context(), lister{f, twin, nil}, work, 1)
	if len(asked) != 2 || a.Settlement != runners.Pending || runners.ClassOf(err) != runners.Unreachable {
		t.Errorf("asked %q: %+v, %v", asked, a, err)
	}
}

// Answers are kept when they say something new; the last word is not asked again.
func TestReleaseIsKeptOnce(t *testing.T) {
	s := newStore()
	d := runners.Dispatcher{Bucket: s}
	launched(t, s, 1)
	asked, now := 0, runners.Release{Text: "terminating"}
	r := fake{release: func(json.RawMessage) (runners.Release, error) { asked++; return now, nil }}
	for range 5 {
		if a, err := d.Release(t.Context(), r, work, 1); err != nil || a.Settlement != runners.Pending {
			t.Fatal(a, err)
		}
	}
	now = runners.Release{Settlement: runners.Closed, Text: "gone"}
	for range 3 {
		if a, err := d.Release(t.Context(), r, work, 1); err != nil || a.Settlement != runners.Closed || !strings.Contains(a.Text, "gone") {
			t.Fatal(a, err)
		}
	}
	list, err := d.ReadClaims(t.Context(), work, 0, 1)
	if err != nil || list[0].Answers != 2 || asked != 6 {
		t.Errorf("%d answers kept, %d asked for, %v", list[0].Answers, asked, err)
	}
	if _, err := d.Release(t.Context(), r, work, 9); err == nil || !strings.Contains(err.Error(), "has no dispatch 9") {
		t.Errorf("no such dispatch: %v", err)
	}
}
