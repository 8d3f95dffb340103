package proxy_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/headway-run/headway/proof/chaos/proxy"
	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/runners/bucket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store is a store of one bucket, as far as a proxy can tell.
type store struct {
	mu     sync.Mutex
	things map[string]string
	asked  []string
	hosts  []string
	gone   bool // it does what it is told, and dies before it answers
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hosts = append(s.hosts, r.Host)
	if err != nil {
		s.asked = append(s.asked, r.Method+" broken off")
		return
	}
	s.asked = append(s.asked, r.Method+" "+r.URL.Path)
	switch {
	case r.Method == http.MethodPut && r.Header.Get("If-None-Match") == "*" && s.things[r.URL.Path] != "":
		w.WriteHeader(http.StatusPreconditionFailed)
		return
	case r.Method == http.MethodPut:
		s.things[r.URL.Path] = string(body)
		w.Header().Set("ETag", fmt.Sprintf("%q", fmt.Sprint("v", len(s.asked))))
	case r.Method == http.MethodDelete:
		delete(s.things, r.URL.Path)
		w.WriteHeader(http.StatusNoContent)
	default:
		_, _ = io.WriteString(w, s.things[r.URL.Path])
	}
	if s.gone {
		panic(http.ErrAbortHandler)
	}
}

func (s *store) get(path string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.things[path]
}

func (s *store) die(at bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = at
}

// list keeps a history.
type list struct {
	mu      sync.Mutex
	entries []history.Entry
}

func (l *list) Take(e history.Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, e)
}

// lines is the history without what differs from run to run.
func (l *list) lines() (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		s := fmt.Sprintf("%s %s %q", e.Op, e.Key, e.Body)
		if e.Refused {
			s += " refused " + e.Code.String()
		}
		out = append(out, strings.TrimSpace(s+" "+e.Text))
	}
	return out
}

type rig struct {
	t      *testing.T
	store  *store
	sink   *list
	p      *proxy.Proxy
	client *http.Client
	naming atomic.Int64 // nanoseconds that it takes to name a connection
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, store: &store{things: map[string]string{}}, sink: &list{}, client: &http.Client{Transport: &http.Transport{}}}
	server := httptest.NewServer(r.store)
	p, err := proxy.New(proxy.Config{Upstream: server.Listener.Addr().String(), Bucket: "b", Prefix: "team", Sink: r.sink,
		Who: func(addr string) string {
			<-time.After(time.Duration(r.naming.Load()))
			return "whoever"
		},
		Stored: func(key string) ([]byte, bool) {
			v := r.store.get("/b/team/" + key)
			return []byte(v), v != ""
		}})
	if err != nil {
		t.Fatal(err)
	}
	r.p = p
	t.Cleanup(func() {
		r.client.CloseIdleConnections()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	return r
}

// do sends one request and returns status and body; an error is the connection's.
func (r *rig) do(method, key, body string, header ...string) (int, string, error) {
	q, err := http.NewRequest(method, "http://"+r.p.Addr()+"/b/team/"+key, bytes.NewReader([]byte(body)))
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	resp, err := r.client.Do(q)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// What a fault promises: whether the store did what it was asked, and what the client saw.
func TestEachFaultDoesWhatItSays(t *testing.T) {
	const body = "sixteen bytes of"
	for fault, want := range map[proxy.Fault]struct {
		applied bool
		status  int // 0: the connection broke
	}{
		proxy.Refuse:        {false, 0},
		proxy.CutRequest:    {false, 0},
		proxy.CutAnswer:     {true, 0},
		proxy.LoseAnswer:    {true, 0},
		proxy.Hole:          {false, 0},
		proxy.HoleAfter:     {true, 0},
		proxy.Slow:          {true, 200},
		proxy.Error500:      {false, 500},
		proxy.Error500After: {true, 500},
		proxy.Busy503:       {false, 503},
		proxy.Late:          {true, 0},
	} {
		t.Run(string(fault), func(t *testing.T) {
			r := newRig(t)
			rule := r.p.Set(&proxy.Rule{Fault: fault, Delay: 30 * time.Millisecond})
			if fault == proxy.Hole || fault == proxy.HoleAfter {
				go func() {
					for rule.Hits() == 0 {
						<-time.After(time.Millisecond)
					}
					rule.Lift()
				}()
			}
			start := time.Now()
			status, _, err := r.do("PUT", "k", body)
			took := time.Since(start)
			r.p.Settle()
			if (err != nil) != (want.status == 0) || status != want.status {
				t.Errorf("the client got %d, %v; want %d", status, err, want.status)
			}
			if applied := r.store.get("/b/team/k") == body; applied != want.applied {
				t.Errorf("the store has %q", r.store.get("/b/team/k"))
			}
			if fault == proxy.Slow && took < 60*time.Millisecond {
				t.Errorf("slow took %s", took)
			}
			if rule.Hits() != 1 {
				t.Errorf("%d hits", rule.Hits())
			}
			if written := strings.Contains(strings.Join(r.sink.lines(), "\n"), `put k "sixteen`); written != want.applied {
				t.Errorf("the history says\n%s", strings.Join(r.sink.lines(), "\n"))
			}
			r.p.Heal()
			if status, _, err := r.do("PUT", "k", "healed"); status != 200 || err != nil {
				t.Errorf("healed: %d, %v", status, err)
			}
		})
	}
}

func TestAllFaultsAreTested(t *testing.T) {
	if len(proxy.Faults) != 11 {
		t.Errorf("%d faults: name the new one in TestEachFaultDoesWhatItSays", len(proxy.Faults))
	}
}

// Half an answer is half of its body, with the length of the whole announced.
func TestCutAnswer(t *testing.T) {
	r := newRig(t)
	if _, _, err := r.do("PUT", "k", strings.Repeat("x", 10_000)); err != nil {
		t.Fatal(err)
	}
	r.p.Set(&proxy.Rule{Fault: proxy.CutAnswer})
	status, body, err := r.do("GET", "k", "")
	if status != 200 || len(body) != 5_000 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %d, %d bytes, %v", status, len(body), err)
	}
}

// The signature is over the Host that the client used; the store must see that one.
func TestHostPasses(t *testing.T) {
	r := newRig(t)
	if _, _, err := r.do("GET", "k", ""); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{r.p.Addr()}, r.store.hosts); diff != "" {
		t.Errorf("hosts (-want +got):\n%s", diff)
	}
}

// The history has conditions, refusals, deletes, remarks, and what became of a write that the server died over.
func TestHistory(t *testing.T) {
	r := newRig(t)
	send := func(method, key, body string, header ...string) {
		_, _, _ = r.do(method, key, body, header...)
	}
	send("PUT", "a", "1", "If-None-Match", "*")
	send("PUT", "a", "2", "If-None-Match", "*")
	send("PUT", "a", "3", "If-Match", `"v1"`)
	send("GET", "a", "")
	send("DELETE", "a", "")
	r.store.die(true)
	send("PUT", "b", "4")
	r.store.die(false)
	send("PUT", "c", "5", "If-None-Match", "*")
	r.p.Set(&proxy.Rule{Fault: proxy.CutRequest}) // again, and the same bytes are there already
	send("PUT", "c", "5", "If-None-Match", "*")
	r.p.Note("", "the end")
	want := []string{`put a "1"`, `put a "2" refused Condition`, `put a "3"`, `delete a ""`, `put b "4" landed, without the server's answer`,
		`put c "5"`, `note  "" PUT c never reached the store. cut request`, `note  "" the end`}
	if diff := cmp.Diff(want, r.sink.lines()); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	if c := r.sink.entries[0].Cond; !c.Absent() {
		t.Error("a condition is missing")
	}
	if is, ok := r.sink.entries[2].Cond.Is(); !ok || is != bucket.Version(`"v1"`) {
		t.Errorf("the condition is %q", is)
	}
	if r.sink.entries[0].Actor != "whoever" || r.sink.entries[0].Version == "" {
		t.Errorf("entry %+v", r.sink.entries[0])
	}
}

// A write that the server did not take, and died over, is a remark and no entry.
func TestAWriteThatNeverArrived(t *testing.T) {
	r := newRig(t)
	r.p.Set(&proxy.Rule{Fault: proxy.CutRequest})
	_, _, _ = r.do("PUT", "k", "half of this")
	lines := r.sink.lines()
	if len(lines) != 1 || !strings.Contains(lines[0], "PUT k never reached the store") {
		t.Errorf("history %q", lines)
	}
}

// Rules choose by request, by share and by number.
func TestRulesChoose(t *testing.T) {
	r := newRig(t)
	rule := r.p.Set(&proxy.Rule{Fault: proxy.Busy503, Most: 2, Match: func(q proxy.Request) bool { return q.Key == "a" && q.Write() && q.Who == "whoever" }})
	var got []int
	for _, c := range [][2]string{{"PUT", "b"}, {"GET", "a"}, {"PUT", "a"}, {"PUT", "a"}, {"PUT", "a"}} {
		status, _, err := r.do(c[0], c[1], "x")
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, status)
	}
	if diff := cmp.Diff([]int{200, 200, 503, 503, 200}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	rule.Lift()
	part := r.p.Set(&proxy.Rule{Fault: proxy.Busy503, Share: 0.3})
	for range 200 {
		if _, _, err := r.do("GET", "a", ""); err != nil {
			t.Fatal(err)
		}
	}
	if n := part.Hits(); n < 30 || n > 90 {
		t.Errorf("%d of 200 requests were hit, 60 were meant", n)
	}
}

// Whom a fault has met, and from when to when, can be asked for; and so can the proxy's own slowness, which is nobody's fault.
func TestMeetings(t *testing.T) {
	r := newRig(t)
	r.naming.Store(int64(300 * time.Millisecond))
	rule := r.p.Set(&proxy.Rule{Fault: proxy.Busy503, Match: func(q proxy.Request) bool { return q.Key == "a" }})
	for _, key := range []string{"a", "b"} {
		if _, _, err := r.do("GET", key, ""); err != nil {
			t.Fatal(err)
		}
	}
	rule.Lift()
	lifted := time.Since(r.p.Began())
	met, own := r.p.Meetings(), r.p.Slowness()
	if len(met) != 1 || met[0].Key != "a" || met[0].Who != "whoever" || met[0].From < 300*time.Millisecond || met[0].To < met[0].From || met[0].To > lifted {
		t.Errorf("met: %+v", met)
	}
	if len(own) != 1 || own[0].Who != "whoever" || own[0].To-own[0].From < 300*time.Millisecond {
		t.Errorf("slow: %+v", own)
	}
}

// What cannot be written down whole is refused, and so is what is none of the round's business.
func TestRefused(t *testing.T) {
	r := newRig(t)
	for _, path := range []string{"/other/team/k", "/b/others/k", "/b/team/k?uploads", "/bucket/team/k"} {
		resp, err := r.client.Post("http://"+r.p.Addr()+path, "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusBadGateway {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
	if len(r.store.asked) != 0 {
		t.Errorf("the store was asked %q", r.store.asked)
	}
}
