// Package notify tells people what a dispatcher saw: jobs that failed, finished or are blocked, platforms that are parked,
// machines that nothing explains. A rule says which of that goes where; each event is told at most once for each rule, over any
// number of dispatchers and restarts: a marker is created in the store before the message goes out, and only the dispatcher
// whose marker it is sends.
//
// Nothing here delays a pass: events are offered again by every pass while they hold, a goroutine of each rule does
// the rest, and what happens together is one message. DESIGN.md says why it is as it is.
package notify

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// What an event may be. A closed set.
const (
	Failed   = "failed"
	Finished = "finished"
	Blocked  = "blocked"
	Parked   = "parked"
	Orphan   = "orphan"
)

// Event is something that holds. Key says which thing of its kind it is: the same event has the same Key for every
// dispatcher, and another one has another. Texts may come from other machines; they are escaped here.
type Event struct {
	What     string `json:"event"`
	Key      string `json:"-"`
	Job      string `json:"job,omitempty"`
	Work     string `json:"work,omitempty"`
	Attempt  int64  `json:"attempt,omitempty"`
	Dispatch int64  `json:"dispatch,omitempty"`
	Platform string `json:"platform,omitempty"`
	Reason   string `json:"reason,omitempty"`

	// Fresh: it came about in the pass that offers it, so it is told also where that is the first which sees the rule.
	Fresh bool `json:"-"`
}

// mark names an event among those of a rule.
func (e Event) mark() string { return record.Hash([]byte(e.What + "\x00" + e.Key))[:32] }

// Rule says what is sent where.
type Rule struct {
	Secret string   // name of the secret that is the URL
	Form   string   // slack or json
	On     []string // kinds of events
}

// id names a rule in the store. Another place, form or choice of events is another rule: it begins anew.
func (r Rule) id() string {
	on := slices.Sorted(slices.Values(r.On))
	return record.Hash([]byte(r.Secret + "\x00" + r.Form + "\x00" + strings.Join(on, "\x00")))[:16]
}

// Prefix holds the markers of all rules.
const Prefix = "notify/"

// Bounds.
const (
	maxPending  = 10_000           // events of one rule that wait
	maxKnown    = 50_000           // marks that a rule remembers, but for those of what is offered now
	tries       = 8                // of one message
	firstPause  = time.Second      // after the first failure; it doubles
	longPause   = time.Minute      // its bound
	maxAfter    = 5 * time.Minute  // of what a server asks for with Retry-After
	apart       = 10 * time.Second // between two messages of one rule: what happens meanwhile is one message
	sendTimeout = 5 * time.Second  // of one try
	lastWords   = 10 * time.Second // for what is pending when the process ends
)

// Config is what a Sender needs.
type Config struct {
	Bucket     bucket.Bucket
	Plan       string // name of the plan repository, for people
	Dispatcher string
	Secret     func(name string) (string, bool)
	Log        *slog.Logger
	Count      func(outcome string, events int) // sent, failed, dropped; nil: nobody counts
	Transport  http.RoundTripper                // nil: with the proxies that the environment names
}

// Sender sends what the rules ask for. Its methods may be called from any goroutine.
type Sender struct {
	c      Config
	client *http.Client
	ctx    context.Context // ends when Close has waited long enough
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	lanes  map[string]*lane // by rule
	closed bool
}

// New returns a Sender. It goes on until Close, whatever becomes of ctx, whose values it takes.
func New(ctx context.Context, c Config) *Sender {
	if c.Count == nil {
		c.Count = func(string, int) {}
	}
	if c.Transport == nil {
		c.Transport = &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSHandshakeTimeout: sendTimeout, MaxResponseHeaderBytes: 64 << 10}
	}
	s := &Sender{c: c, lanes: map[string]*lane{}, client: &http.Client{Transport: c.Transport, Timeout: sendTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return s
}

// Offer says what holds now, after every pass, and never blocks. Rules that are no longer named stop.
func (s *Sender) Offer(rules []Rule, events []Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	named := map[string]bool{}
	for _, r := range rules {
		id := r.id()
		named[id] = true
		l := s.lanes[id]
		if l == nil {
			l = &lane{s: s, rule: r, id: id, wake: make(chan struct{}, 1), stop: make(chan struct{}), queued: map[string]bool{}, known: map[string]bool{}}
			s.lanes[id] = l
			for _, e := range events {
				if !e.Fresh {
					l.first = append(l.first, e.mark())
				}
			}
			s.wg.Go(l.run)
		}
		l.offer(events)
	}
	for id, l := range s.lanes {
		if !named[id] {
			close(l.stop)
			delete(s.lanes, id)
		}
	}
}

// Close sends what is pending, as far as that takes no longer than ten seconds, and returns when nothing is under way.
func (s *Sender) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		for _, l := range s.lanes {
			close(l.stop)
		}
	}
	s.mu.Unlock()
	late := time.AfterFunc(lastWords, s.cancel)
	s.wg.Wait()
	late.Stop()
	s.cancel()
}

// lane is one rule at work.
type lane struct {
	s     *Sender
	rule  Rule
	id    string
	first []string      // marks of what held already when this process first saw the rule
	wake  chan struct{} // something is pending
	stop  chan struct{} // closed: one last round

	mu      sync.Mutex
	pending []Event
	queued  map[string]bool // marks in pending
	known   map[string]bool // marks that need no message: told, by whomever, or from before the rule
	said    string          // the newest trouble, said once
}

// offer queues what is new.
func (l *lane) offer(events []Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(events)
	dropped := 0
	for _, e := range events {
		m := e.mark()
		if !slices.Contains(l.rule.On, e.What) || l.known[m] || l.queued[m] {
			continue
		}
		if len(l.pending) >= maxPending {
			dropped++
			continue
		}
		l.pending, l.queued[m] = append(l.pending, e), true
	}
	if dropped > 0 {
		l.s.c.Count("dropped", dropped)
	}
	if len(l.pending) > 0 {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// forget drops the marks of what is not offered any more, once there are many: should it be offered again, its marker in the
// store says that it was told, which costs a request.
func (l *lane) forget(offered []Event) {
	if len(l.known) <= maxKnown {
		return
	}
	keep := make(map[string]bool, len(offered))
	for _, e := range offered {
		if m := e.mark(); l.known[m] {
			keep[m] = true
		}
	}
	l.known = keep
}

// run is the goroutine of a rule.
func (l *lane) run() {
	ctx := l.s.ctx
	for k := 0; ; k++ { // until the store says what was told already
		err := l.begin(ctx)
		if err == nil {
			break
		}
		l.trouble("the store", err)
		if !l.rest(delay(k)) {
			return
		}
	}
	for last := false; !last; {
		select {
		case <-l.wake:
		case <-l.stop:
			last = true
		}
		url, err := l.url()
		if err != nil {
			l.trouble("notify", err) // unmarked, so that it is told once the secret is there
			if !last && !l.rest(longPause) {
				return
			}
			continue
		}
		batch, err := l.claim(ctx)
		if err != nil {
			l.trouble("the store", err)
		} else {
			l.said = "" // it is over: the next one is news, though it be the same
		}
		if len(batch) > 0 {
			l.deliver(ctx, url, batch)
		}
		if !last && !l.rest(apart) {
			last = true // what came meanwhile is told in one more round
			if batch, err := l.claim(ctx); err == nil && len(batch) > 0 {
				l.deliver(ctx, url, batch)
			}
		}
	}
}

// rest waits; false: the rule has ended meanwhile.
func (l *lane) rest(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.stop:
		return false
	}
}

// delay is the pause after the k-th failure in a row.
func delay(k int) time.Duration { return min(firstPause<<min(k, 10), longPause) }

// deliver sends one message until it is taken, refused for good, or given up.
func (l *lane) deliver(ctx context.Context, url string, events []Event) {
	body := message(l.rule.Form, l.s.c.Plan, l.s.c.Dispatcher, events)
	var err error
	for k := range tries {
		var f *failure
		if err = l.s.post(ctx, url, body); err == nil {
			l.s.c.Count("sent", len(events))
			return
		}
		if f, _ = errors.AsType[*failure](err); f != nil && f.final || k == tries-1 || ctx.Err() != nil {
			break
		}
		after := delay(k)
		if f != nil {
			after = cmp.Or(f.after, after)
		}
		if !l.rest(after) { // the process ends: once more, and no longer
			if err = l.s.post(ctx, url, body); err == nil {
				l.s.c.Count("sent", len(events))
				return
			}
			break
		}
	}
	l.s.c.Count("failed", len(events))
	l.s.c.Log.Warn("a message could not be sent", "to", l.rule.Secret, "events", len(events), "error", err.Error())
}

// trouble is said once, for as long as it stays the same.
func (l *lane) trouble(what string, err error) {
	if text := err.Error(); text != l.said {
		l.said = text
		l.s.c.Log.Warn("messages wait", "to", l.rule.Secret, "for", what, "error", text)
	}
}
