package notify_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/reconcile/notify"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/faulty"
	"github.com/headway-run/headway/runners/bucket/mem"
)

// the webhook of these tests: its path is the key.
const hook = "https://hooks.example/services/T0/B0/verysecretkey"

// post is one request as the server saw it.
type post struct {
	at   time.Duration
	body string
}

// server is a webhook without a network: it answers by its script, then 200.
type server struct {
	mu     sync.Mutex
	began  time.Time
	script []int // codes; 0: the line is cut; -1: no answer at all
	after  string
	posts  []post
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	b, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	code := 200
	if len(s.script) > 0 {
		code, s.script = s.script[0], s.script[1:]
	}
	s.posts = append(s.posts, post{time.Since(s.began), string(b)})
	s.mu.Unlock()
	switch code {
	case 0:
		return nil, errors.New("connection reset while sending to " + r.URL.String())
	case -1:
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	h := http.Header{"Retry-After": {s.after}, "Location": {"https://elsewhere.example/"}}
	return &http.Response{StatusCode: code, Header: h, Body: io.NopCloser(strings.NewReader("no " + r.URL.String())), Request: r}, nil
}

// sent are the events of all messages in the form json, as "event job".
func (s *server) sent(t *testing.T) (out []string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.posts {
		var doc struct{ Events []notify.Event }
		if err := json.Unmarshal([]byte(p.body), &doc); err != nil {
			t.Errorf("%v: %s", err, p.body)
		}
		for _, e := range doc.Events {
			out = append(out, e.What+" "+e.Job)
		}
	}
	return out
}

// rig is one dispatcher's sender.
type rig struct {
	*notify.Sender
	server *server
	counts map[string]int
	log    bytes.Buffer
	secret string
	mu     sync.Mutex
}

func newRig(t *testing.T, b bucket.Bucket, script ...int) *rig {
	r := &rig{server: &server{script: script, began: time.Now()}, counts: map[string]int{}, secret: hook}
	r.Sender = notify.New(t.Context(), notify.Config{Bucket: b, Plan: "team", Dispatcher: "d", Transport: r.server, Log: slog.New(slog.NewTextHandler(&r.log, nil)),
		Secret: func(name string) (string, bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.secret, name == "HOOK" && r.secret != ""
		},
		Count: func(outcome string, n int) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.counts[outcome] += n
		}})
	return r
}

// rules are one rule of everything, in the form json.
func rules() []notify.Rule {
	return []notify.Rule{{Secret: "HOOK", Form: "json", On: []string{notify.Failed, notify.Finished, notify.Blocked, notify.Parked, notify.Orphan}}}
}

func failed(names ...string) (out []notify.Event) {
	for _, n := range names {
		out = append(out, notify.Event{What: notify.Failed, Key: n + "/1", Job: n, Attempt: 1})
	}
	return out
}

// TestOnceForEachRule: two dispatchers see the same three jobs fail, pass after pass, one restarts: each job is told of once,
// and what held before the rule was there is not told at all.
func TestOnceForEachRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mem.New()
		one, two := newRig(t, store), newRig(t, store)
		one.Offer(rules(), failed("old"))
		synctest.Wait()
		for range 3 {
			one.Offer(rules(), failed("old", "a", "b"))
			two.Offer(rules(), failed("old", "a", "b", "c"))
			time.Sleep(30 * time.Second)
		}
		two.Close()
		again := newRig(t, store)
		again.Offer(rules(), failed("old", "a", "b", "c"))
		time.Sleep(30 * time.Second)
		again.Offer(rules(), failed("old", "a", "b", "c", "d"))
		time.Sleep(30 * time.Second)
		one.Close()
		again.Close()
		got := map[string]int{}
		for _, r := range []*rig{one, two, again} {
			for _, s := range r.server.sent(t) {
				got[s]++
			}
		}
		if diff := cmp.Diff(map[string]int{"failed a": 1, "failed b": 1, "failed c": 1, "failed d": 1}, got); diff != "" {
			t.Error(diff)
		}
	})
}

// TestTheFirstPassIsTold: what came about in the pass that first sees a rule is told, what held before it is not; a process
// that starts later tells neither again, and tells what happened while nobody was there.
func TestTheFirstPassIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mem.New()
		one := newRig(t, store)
		first := failed("old", "new")
		first[1].Fresh = true
		one.Offer(rules(), first)
		time.Sleep(30 * time.Second)
		one.Close()
		two := newRig(t, store)
		two.Offer(rules(), failed("old", "new", "meanwhile"))
		time.Sleep(30 * time.Second)
		two.Close()
		if diff := cmp.Diff([]string{"failed new", "failed meanwhile"}, append(one.server.sent(t), two.server.sent(t)...)); diff != "" {
			t.Error(diff)
		}
	})
}

// TestAThousandFailuresAreOneMessage, in either form, with a bound on its size.
func TestAThousandFailuresAreOneMessage(t *testing.T) {
	for _, form := range []string{"slack", "json"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, mem.New())
			rule := []notify.Rule{{Secret: "HOOK", Form: form, On: []string{notify.Failed}}}
			r.Offer(rule, nil)
			var all []notify.Event
			for i := range 1000 {
				all = append(all, failed(fmt.Sprintf("job-%d", i))...)
				all[i].Reason = strings.Repeat("x", 5000)
			}
			for range 5 {
				r.Offer(rule, all)
				time.Sleep(time.Minute)
			}
			r.Close()
			if n := len(r.server.posts); n != 1 || r.counts["sent"] != 1000 {
				t.Fatalf("%s: %d messages, %d events sent", form, n, r.counts["sent"])
			}
			body := r.server.posts[0].body
			if len(body) > 64<<10 || form == "slack" && (!strings.Contains(body, "1000 events") || !strings.Contains(body, "and 980 more")) ||
				form == "json" && !strings.Contains(body, `"count":1000`) {
				t.Errorf("%s: %d bytes: %.300s", form, len(body), body)
			}
		})
	}
}

// TestTriesAgain: what is worth another try gets one, with growing pauses or when the server says; what is not does not.
// The log never shows the URL.
func TestTriesAgain(t *testing.T) {
	for _, c := range []struct {
		name   string
		script []int
		after  string
		posts  int
		sent   int
		last   time.Duration // when the last try began, at least
	}{
		{"500 twice", []int{500, 502}, "", 3, 1, 3 * time.Second},
		{"the line is cut", []int{0}, "", 2, 1, time.Second},
		{"no answer", []int{-1}, "", 2, 1, 6 * time.Second},
		{"429 says when", []int{429}, "40", 2, 1, 40 * time.Second},
		{"429 says next year", []int{429}, "31536000", 2, 1, 5 * time.Minute},
		{"503 without a time", []int{503}, "soon", 2, 1, time.Second},
		{"500 for ever", []int{500, 500, 500, 500, 500, 500, 500, 500, 500, 500}, "", 8, 0, 2 * time.Minute},
		{"no such hook", []int{404}, "", 1, 0, 0},
		{"a redirect is not followed", []int{302}, "", 1, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, mem.New(), c.script...)
			r.server.after = c.after
			r.Offer(rules(), nil)
			synctest.Wait()
			for range 60 {
				r.Offer(rules(), failed("a"))
				time.Sleep(10 * time.Second)
			}
			r.Close()
			p := r.server.posts
			if len(p) != c.posts || r.counts["sent"] != c.sent || r.counts["failed"] != 1-c.sent || p[len(p)-1].at < c.last || p[len(p)-1].at > c.last+20*time.Second {
				t.Errorf("%s: %d posts, counts %v, the last at %s", c.name, len(p), r.counts, p[len(p)-1].at)
			}
			if s := r.log.String(); strings.Contains(s, "verysecretkey") || c.sent == 0 && !strings.Contains(s, "could not be sent") {
				t.Errorf("%s: the log says %s", c.name, s)
			}
		})
	}
}

// TestNothingBlocksAPass: a server and a store that answer nothing hold up neither offers nor the end, and what waits is
// bounded.
func TestNothingBlocksAPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := newRig(t, mem.New(), -1, -1, -1, -1, -1, -1, -1, -1, -1, -1)
		r.Offer(rules(), nil)
		synctest.Wait()
		r.Offer(rules(), failed("a"))
		synctest.Wait()
		var many []notify.Event
		for i := range 12_000 {
			many = append(many, failed(fmt.Sprint(i))...)
		}
		r.Offer(rules(), many)
		if took := time.Since(began); took != 0 {
			t.Errorf("offers took %s", took)
		}
		if r.counts["dropped"] != 2000 {
			t.Errorf("%d events dropped, want those beyond 10,000", r.counts["dropped"])
		}
		r.Close()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the end took %s", took)
		}

		gate := make(chan struct{})
		hang := newRig(t, faulty.New(mem.New(), 1, faulty.Rule{Effect: faulty.Hold, Release: gate}))
		began = time.Now()
		hang.Offer(rules(), failed("a"))
		hang.Close()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the end beside a store that hangs took %s", took)
		}
		close(gate)
	})
}

// TestWhatIsPendingAtTheEndIsSent, in one message, though the last one went out just before.
func TestWhatIsPendingAtTheEndIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, mem.New())
		r.Offer(rules(), nil)
		synctest.Wait()
		r.Offer(rules(), failed("a"))
		synctest.Wait()
		r.Offer(rules(), failed("a", "b", "c"))
		r.Close()
		r.Offer(rules(), failed("d")) // too late
		if diff := cmp.Diff([]string{"failed a", "failed b", "failed c"}, r.server.sent(t)); diff != "" || len(r.server.posts) != 2 {
			t.Errorf("%d messages: %s", len(r.server.posts), diff)
		}
	})
}

// TestEachOutageIsSaidOnce: trouble that stays the same is one line, and the same trouble after it was over is another.
func TestEachOutageIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, mem.New())
		r.Offer(rules(), nil)
		secret := func(v string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.secret = v
		}
		for _, name := range []string{"a", "b"} {
			secret("")
			for range 10 {
				r.Offer(rules(), failed(name))
				time.Sleep(time.Minute)
			}
			secret(hook)
			r.Offer(rules(), failed(name))
			time.Sleep(5 * time.Minute)
		}
		r.Close()
		if n := strings.Count(r.log.String(), "messages wait"); n != 2 || len(r.server.sent(t)) != 2 {
			t.Errorf("%d lines of two outages, sent %v:\n%s", n, r.server.sent(t), r.log.String())
		}
	})
}

// TestASecretThatIsMissing: nothing is marked, so that the event is told once the secret is there; a URL that anybody could
// read on the way is not used.
func TestASecretThatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, mem.New())
		r.Offer(rules(), nil)
		synctest.Wait()
		for _, bad := range []string{"", "http://hooks.example/verysecretkey", "no url", "ftp://127.0.0.1/x"} {
			r.mu.Lock()
			r.secret = bad
			r.mu.Unlock()
			r.Offer(rules(), failed("a"))
			time.Sleep(2 * time.Minute)
		}
		if got := r.server.sent(t); len(got) != 0 {
			t.Errorf("%q to nowhere", got)
		}
		r.mu.Lock()
		r.secret = "http://127.0.0.1:1/verysecretkey"
		r.mu.Unlock()
		r.Offer(rules(), failed("a"))
		time.Sleep(2 * time.Minute)
		r.Close()
		if diff := cmp.Diff([]string{"failed a"}, r.server.sent(t)); diff != "" {
			t.Error(diff)
		}
		if s := r.log.String(); strings.Contains(s, "verysecretkey") || strings.Count(s, "HOOK is not set") != 1 || !strings.Contains(s, "neither https nor on this machine") {
			t.Errorf("the log says %s", s)
		}
	})
}

// TestAStoreThatFails: markers that could not be made are made later, and an answer that was lost is no second message.
func TestAStoreThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := faulty.New(mem.New(), 1,
			faulty.Rule{Op: "put", Key: "notify/*", Times: 2, Code: bucket.Throttled},
			faulty.Rule{Op: "list", Times: 1, Code: bucket.Unknown},
			faulty.Rule{Op: "put", Key: "notify/*", Nth: 4, Code: bucket.Denied},
			faulty.Rule{Op: "put", Key: "notify/*", Nth: 5, Effect: faulty.Lose})
		r := newRig(t, store)
		for range 20 {
			r.Offer(rules(), failed("a"))
			time.Sleep(time.Minute)
			r.Offer(rules(), failed("b"))
			time.Sleep(time.Minute)
		}
		r.Close()
		if diff := cmp.Diff([]string{"failed b"}, r.server.sent(t)); diff != "" {
			t.Errorf("%s\n%s", diff, r.log.String())
		}
	})
}

// TestTextIsNoMarkup: names and reasons from elsewhere call nobody, link nowhere, write on no terminal and show no key.
func TestTextIsNoMarkup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, mem.New())
		slack := []notify.Rule{{Secret: "HOOK", Form: "slack", On: []string{notify.Failed}}}
		r.Offer(slack, nil)
		synctest.Wait()
		r.Offer(slack, []notify.Event{{What: notify.Failed, Key: "k", Job: "<!channel> @here &", Work: strings.Repeat("ab", 32), Attempt: 3, Platform: "p",
			Reason: "<https://evil.example|click> \x1b[2J\nghp_abcdefghijklmnopqrstuvwxyz0123 " + strings.Repeat("y", 9000)}})
		r.Close()
		var doc struct {
			Text   string
			Mrkdwn *bool
		}
		if len(r.server.posts) != 1 || json.Unmarshal([]byte(r.server.posts[0].body), &doc) != nil || doc.Mrkdwn == nil || *doc.Mrkdwn {
			t.Fatalf("%+v", r.server.posts)
		}
		want := "headway team\n&lt;!channel&gt; @\u200bhere &amp; (work abababababab): failed (attempt 3) on p: &lt;https://evil.example|click&gt; \\x1b[2J\\n"
		if !strings.HasPrefix(doc.Text, want) || strings.Contains(doc.Text, "ghp_") || len(doc.Text) > 600 {
			t.Errorf("%q", doc.Text)
		}
	})
}
