package notify_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-run/headway/reconcile/notify"
	"github.com/headway-run/headway/runners/bucket/mem"
)

// TestARealServer: over a real connection, with its own transport: a server that fails, one that asks for patience, one that
// talks for ever, then success. A redirect to another server is not followed.
func TestARealServer(t *testing.T) {
	var mu sync.Mutex
	var bodies []string
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer elsewhere.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		mu.Lock()
		bodies = append(bodies, string(b))
		n := len(bodies)
		mu.Unlock()
		switch n {
		case 1:
			w.WriteHeader(http.StatusInternalServerError)
		case 2:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		case 3:
			w.WriteHeader(http.StatusOK)
			for range 1000 { // more than anybody reads
				if _, err := io.WriteString(w, strings.Repeat("x", 4096)); err != nil {
					return
				}
			}
		default:
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		}
	}))
	defer server.Close()
	counts := make(chan string, 10)
	s := notify.New(t.Context(), notify.Config{Bucket: mem.New(), Log: slog.New(slog.DiscardHandler),
		Secret: func(string) (string, bool) { return server.URL + "/hook", true }, Count: func(outcome string, _ int) { counts <- outcome }})
	rule := rules()
	s.Offer(rule, nil)
	await := func(want string, events []notify.Event) {
		t.Helper()
		deadline := time.After(2 * time.Minute)
		for {
			s.Offer(rule, events) // the first one may still find the rule new
			select {
			case got := <-counts:
				if got != want {
					t.Fatalf("%s, want %s", got, want)
				}
				return
			case <-time.After(100 * time.Millisecond):
			case <-deadline:
				t.Fatalf("not %s in time", want)
			}
		}
	}
	await("sent", failed("a"))
	await("failed", failed("a", "b"))
	s.Close()
	mu.Lock()
	defer mu.Unlock()
	if len(bodies) != 4 || bodies[0] != bodies[1] || bodies[1] != bodies[2] || !strings.Contains(bodies[3], `"job":"b"`) {
		t.Errorf("%d requests: %q", len(bodies), bodies)
	}
}
