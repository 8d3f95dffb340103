package notify

import (
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

	"github.com/headway-run/headway/runners/bucket/mem"
)

// deaf is a webhook that answers 500, or never, and counts.
type deaf struct {
	mu    sync.Mutex
	never bool
	asked int
}

func (d *deaf) RoundTrip(r *http.Request) (*http.Response, error) {
	d.mu.Lock()
	d.asked++
	d.mu.Unlock()
	if d.never {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: 500, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("no")), Request: r}, nil
}

// TestAStormOfEventsDelaysNothing: a thousand new events with each of 120 passes, and a place that fails or never answers. No
// offer takes any time; what waits and what is remembered is bounded, what finds no room is counted, the place is asked a few
// times a minute and no more, and the end waits no longer than it says.
func TestAStormOfEventsDelaysNothing(t *testing.T) {
	for _, never := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { storm(t, &deaf{never: never}) })
	}
}

func storm(t *testing.T, place *deaf) {
	var mu sync.Mutex
	counts := map[string]int{}
	s := New(t.Context(), Config{Bucket: mem.New(), Transport: place, Log: slog.New(slog.DiscardHandler),
		Secret: func(string) (string, bool) { return "https://hooks.example/x", true },
		Count: func(outcome string, n int) {
			mu.Lock()
			defer mu.Unlock()
			counts[outcome] += n
		}})
	rule := Rule{Secret: "HOOK", Form: "json", On: []string{Failed}}
	began := time.Now()
	const passes, each = 120, 1000
	s.Offer([]Rule{rule}, nil)
	for pass := range passes {
		events := make([]Event, each)
		for i := range events {
			events[i] = Event{What: Failed, Key: fmt.Sprint(pass, " ", i), Job: "j"}
		}
		at := time.Now()
		s.Offer([]Rule{rule}, events)
		if took := time.Since(at); took != 0 { // of the bubble's clock: it waited for something
			t.Fatalf("pass %d: an offer took %v", pass, took)
		}
		l := s.lanes[rule.id()]
		l.mu.Lock()
		if len(l.pending) > maxPending || len(l.queued) > 2*maxPending || len(l.known) > maxKnown+maxPending {
			t.Errorf("pass %d: %d wait, %d are queued, %d are known", pass, len(l.pending), len(l.queued), len(l.known))
		}
		l.mu.Unlock()
		<-time.After(time.Second)
	}
	passed := time.Since(began)
	at := time.Now()
	s.Close()
	if took := time.Since(at); took > lastWords+sendTimeout {
		t.Errorf("the end took %v", took)
	}
	mu.Lock()
	defer mu.Unlock()
	if counts["sent"] != 0 || counts["failed"] == 0 || counts["dropped"] == 0 || counts["failed"]+counts["dropped"] != passes*each {
		t.Errorf("%v of %d", counts, passes*each)
	}
	if most := int(passed/time.Second)/4 + 2*tries; place.asked > most || place.asked < tries {
		t.Errorf("asked %d times in %v", place.asked, passed)
	}
}

// TestWhatIsForgottenIsToldOnce: more events than are remembered are told; offered once more, the markers of those that were
// forgotten say so, and nothing is told twice.
func TestWhatIsForgottenIsToldOnce(t *testing.T) {
	l := &lane{known: map[string]bool{}}
	var all []Event
	for i := range maxKnown + 1 {
		e := Event{What: Failed, Key: fmt.Sprint(i)}
		l.known[e.mark()] = true
		if i < 3 {
			all = append(all, e)
		}
	}
	l.forget(all)
	if len(l.known) != 3 {
		t.Errorf("%d marks are kept", len(l.known))
	}
	store := mem.New()
	l = &lane{s: &Sender{c: Config{Bucket: store}}, rule: Rule{On: []string{Failed}}, id: "r", known: map[string]bool{}, queued: map[string]bool{}, wake: make(chan struct{}, 1)}
	for n, want := range []int{3, 0} {
		l.known = map[string]bool{} // as after a storm
		l.offer(all)
		ours, err := l.claim(t.Context())
		if err != nil || len(ours) != want {
			t.Errorf("round %d: %d to tell, %v", n, len(ours), errors.Join(err))
		}
	}
}
