package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/reconcile/meter"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
)

// askPage is one answer of the page, as code and body.
func askPage(h http.Handler, method, path string) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w.Code, w.Body.String()
}

// stuck is a store that answers nothing before gate is closed, whatever becomes of the context.
type stuck struct {
	bucket.Bucket
	gate <-chan struct{}
}

func (s stuck) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	<-s.gate
	return s.Bucket.Get(ctx, key, r)
}

func (s stuck) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	<-s.gate
	return s.Bucket.List(ctx, prefix, after, limit)
}

// hangingLoop is a watch over a store that answers nothing until gate is closed.
func hangingLoop(t *testing.T, gate <-chan struct{}) (*watcher, *reconcile.Reconciler, *reconcile.Desired) {
	t.Helper()
	h := newHealth(5 * time.Second)
	w := &watcher{meter: meter.New("d", "dev"), health: h}
	store := stuck{mem.New(), gate}
	r, err := reconcile.New(reconcile.Config{Bucket: w.meter.Bucket(store, h.lives), ID: "d", Runners: map[string]runners.Runner{}})
	if err != nil {
		t.Fatal(err)
	}
	return w, r, &reconcile.Desired{Plan: &plan.Plan{Config: plan.Config{Name: "x"}}, Commit: "c", Fresh: true, Complete: true, AllowStops: -1}
}

// TestAHungLoopIsNotAlive: a pass that hangs on the store turns both answers red; once the store goes on they are green.
func TestAHungLoopIsNotAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		w, r, d := hangingLoop(t, gate)
		h := page([]*watcher{w}, nil)
		w.health.polled(true)
		over := make(chan error)
		go func() {
			report, err := r.Pass(t.Context(), d)
			w.passed(t.Context(), report, err, 0)
			over <- err
		}()
		synctest.Wait()
		if code, _ := askPage(h, "GET", "/healthz"); code != 200 {
			t.Errorf("a pass that has just begun is not alive: %d", code)
		}
		if code, body := askPage(h, "GET", "/readyz"); code != 503 || !strings.Contains(body, "store") {
			t.Errorf("ready before any pass is over: %d %s", code, body)
		}
		time.Sleep(aliveFor + 4*time.Second)
		if code, _ := askPage(h, "GET", "/healthz"); code != 200 {
			t.Errorf("not alive before its time is over: %d", code)
		}
		time.Sleep(2 * time.Second)
		for _, path := range []string{"/healthz", "/readyz"} {
			if code, body := askPage(h, "GET", path); code != 503 || !strings.Contains(body, "hangs") {
				t.Errorf("%s of a loop that hangs: %d %s", path, code, body)
			}
		}
		close(gate)
		if err := <-over; err != nil { // a look that had its time; the next one succeeds
			report, err := r.Pass(t.Context(), d)
			if w.passed(t.Context(), report, err, 0); err != nil {
				t.Fatal(err)
			}
		}
		for _, path := range []string{"/healthz", "/readyz"} {
			if code, body := askPage(h, "GET", path); code != 200 || body != "ok\n" {
				t.Errorf("%s of a loop that goes on: %d %s", path, code, body)
			}
		}
	})
}

// TestReadinessSaysWhatIsAway: the store, the repository, or both; liveness stays green, since a restart would not help.
func TestReadinessSaysWhatIsAway(t *testing.T) {
	h := newHealth(time.Second)
	p := page([]*watcher{{meter: meter.New("d", "dev"), health: h}}, nil)
	for _, c := range []struct {
		repo, store bool
		code        int
		says        string
	}{{true, true, 200, "ok"}, {false, true, 503, "the repository could not be read"}, {true, false, 503, "could not read the store"}, {false, false, 503, "neither"}} {
		h.polled(c.repo)
		h.passed(c.store)
		if code, body := askPage(p, "GET", "/readyz"); code != c.code || !strings.Contains(body, c.says) {
			t.Errorf("repository %v, store %v: %d %s", c.repo, c.store, code, body)
		}
		if code, _ := askPage(p, "GET", "/healthz"); code != 200 {
			t.Errorf("repository %v, store %v: not alive", c.repo, c.store)
		}
	}
}

// TestNothingElseIsServed: three paths to be read, and no other.
func TestNothingElseIsServed(t *testing.T) {
	p := page([]*watcher{{meter: meter.New("d", "dev"), health: newHealth(0)}}, nil)
	for path, want := range map[string]int{"/": 404, "/debug/pprof/": 404, "/metrics/x": 404, "/metrics": 200, "/healthz": 200} {
		if code, _ := askPage(p, "GET", path); code != want {
			t.Errorf("GET %s: %d, want %d", path, code, want)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		if code, _ := askPage(p, method, "/metrics"); code != 405 {
			t.Errorf("%s /metrics: %d, want 405", method, code)
		}
	}
}

func TestListenAddress(t *testing.T) {
	for in, want := range map[string]string{":9090": "127.0.0.1:9090", "0.0.0.0:1": "0.0.0.0:1", "[::1]:0": "[::1]:0", "9090": "", "host:": ""} {
		if got, err := listenAddress(in); got != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v", in, got, err)
		}
	}
}

// TestServe: over a real connection, and ended by stop. A head that is too large is refused.
func TestServe(t *testing.T) {
	var out bytes.Buffer
	stop, err := serve(t.Context(), env{stdout: &out, stderr: io.Discard, getenv: func(string) string { return "" }}, ":0", []*watcher{{meter: meter.New("d", "dev"), health: newHealth(0)}})
	if err != nil {
		t.Fatal(err)
	}
	url := strings.TrimSuffix(strings.Fields(out.String())[1], "/metrics,")
	if !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Errorf("serving %s", url)
	}
	get := func(head string) int {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", url+"/healthz", nil)
		req.Header.Set("X-Long", head)
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0
		}
		defer r.Body.Close()
		return r.StatusCode
	}
	if code := get("short"); code != 200 {
		t.Errorf("healthz: %d", code)
	}
	if code := get(strings.Repeat("x", 64<<10)); code != 431 && code != 0 {
		t.Errorf("64 KiB of header: %d", code)
	}
	stop()
	if code := get(""); code != 0 {
		t.Errorf("after the stop: %d", code)
	}
	_, err = serve(t.Context(), env{}, "256.0.0.1:1", nil)
	if x, ok := errors.AsType[*exit](err); !ok || x.hint == "" {
		t.Errorf("an address that is none: %v", err)
	}
}

func TestIDs(t *testing.T) {
	for id, ok := range map[string]bool{"a": true, "eu-1.b_c:2/3@x+y": true, strings.Repeat("x", 64): true, "": false, strings.Repeat("x", 65): false,
		"a b": false, "a\n": false, "\x1b[31m": false, "ä": false, `a"b`: false} {
		if err := checkID(id); (err == nil) != ok {
			t.Errorf("%q: %v", id, err)
		}
	}
	if a, b := madeUpID(), madeUpID(); a == b || len(a) > maxID {
		t.Errorf("made up: %s, %s", a, b)
	}
}

// TestMetered: what a report becomes.
func TestMetered(t *testing.T) {
	refusal := &runners.Failure{Class: runners.NoSlots}
	r := &reconcile.Report{Releasing: 2, Orphans: make([]reconcile.Orphan, 1), Errors: []error{io.EOF},
		Platforms: []reconcile.PlatformState{{Name: "p", Parked: time.Second, Series: 1, Live: 3}},
		States:    map[plan.Digest]reconcile.Standing{"w": {State: plan.StateHeld, Dispatch: 4, Platform: "p"}},
		Actions: []reconcile.Action{{Kind: reconcile.Launch, Platform: "p", Reason: "decided"}, // and not carried out
			{Kind: reconcile.Launch, Work: "v", Platform: "p", Dispatch: 1, Done: true, Spent: 2}, {Kind: reconcile.Launch, Platform: "p", Err: refusal},
			{Kind: reconcile.Launch, Platform: "p", Result: "the plan has changed"}, {Kind: reconcile.Launch, Platform: "p", Err: io.EOF},
			{Kind: reconcile.WriteOff, Done: true}, {Kind: reconcile.WriteOff, Result: "it has changed since"}, {Kind: reconcile.Stop, Done: true}, {Kind: reconcile.Move, Done: true}, {Kind: reconcile.Move, Result: "it has changed since"},
			{Kind: reconcile.Release, Done: true, Result: "closed: gone"}, {Kind: reconcile.Release, Result: "the lease has changed since"}}}
	want := meter.Pass{Took: time.Minute, Releasing: 2, Orphans: 1, Errors: 1, WriteOffs: 1, Stops: 1, Moves: 1, Releases: map[string]int{"closed": 1},
		States:    map[string]int{plan.StateHeld: 1},
		Platforms: []meter.Platform{{Name: "p", Parked: time.Second, Series: 1, Live: 3}},
		Held:      []meter.Work{{ID: "w", Dispatch: 4, Platform: "p"}}, Started: []meter.Work{{ID: "v", Dispatch: 1, Platform: "p"}},
		Launches: []meter.Launch{{Platform: "p", Outcome: "launched", Retries: 2}, {Platform: "p", Outcome: "no_slots"}, {Platform: "p", Outcome: "withheld"}, {Platform: "p", Outcome: "failed"}}}
	if diff := cmp.Diff(want, metered(r, nil, time.Minute)); diff != "" {
		t.Error(diff)
	}
	if got := metered(nil, &bucket.Error{Code: bucket.Unknown}, 0); !got.Failed {
		t.Error("a pass without a report has not failed")
	}
}

// TestLogsShowNoSecret: neither what the environment names as one, nor what looks like a key, as a message, an attribute or
// an error; and each line is one event.
func TestLogsShowNoSecret(t *testing.T) {
	const token, key = "s3cr3t-of-the-team", "ghp_abcdefghijklmnopqrstuvwxyz0123"
	for _, format := range []string{"json", "text"} {
		var out bytes.Buffer
		e, err := (&logFlags{format: format}).into(env{stderr: &out, stdout: io.Discard, getenv: func(name string) string {
			return map[string]string{"HEADWAY_GIT_TOKEN": token}[name]
		}})
		if err != nil {
			t.Fatal(err)
		}
		e.log.Info("a message with "+token, "reason", "quotes "+key, "error", errors.New("says "+token+"\nand more"))
		warn(e, "pushed with %s", token)
		note(e, "a remark with %s", key)
		err = e.logged(&exit{code: 7, err: errors.New("it broke: " + token), hint: "do"})
		if x, ok := errors.AsType[*exit](err); !ok || x.code != 7 || x.err != nil {
			t.Errorf("%s: what is left of the error: %v", format, err)
		}
		if s := out.String(); strings.Contains(s, token) || strings.Contains(s, key) || strings.Count(s, "\n") != 4 || strings.Count(s, "(not shown)") != 6 {
			t.Errorf("%s:\n%s", format, s)
		}
		for line := range strings.Lines(out.String()) {
			if format == "json" && !json.Valid([]byte(line)) {
				t.Errorf("no JSON: %s", line)
			}
		}
	}
}

func TestLogFlags(t *testing.T) {
	for _, c := range []struct {
		l    logFlags
		env  string
		ok   bool
		want slog.Level
	}{
		{logFlags{}, "", true, slog.LevelError}, {logFlags{}, "debug", true, slog.LevelDebug}, {logFlags{level: "warn"}, "debug", true, slog.LevelWarn},
		{logFlags{format: "json"}, "", true, slog.LevelInfo}, {logFlags{format: "json", level: "error"}, "", true, slog.LevelError},
		{logFlags{format: "xml"}, "", false, 0}, {logFlags{level: "loud"}, "", false, 0},
	} {
		e, err := c.l.into(env{stderr: io.Discard, getenv: func(string) string { return c.env }})
		if (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.l, err)
		} else if err == nil && (!e.log.Enabled(context.Background(), c.want) || e.log.Enabled(context.Background(), c.want-1)) {
			t.Errorf("%+v with HEADWAY_LOG=%q logs at another level than %s", c.l, c.env, c.want)
		}
	}
}
