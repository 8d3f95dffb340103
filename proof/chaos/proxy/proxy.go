// Package proxy stands between real processes and a real S3 server, speaks HTTP to both, and fails on command: before the
// store has heard of a request, in the middle of it, or after the store did it. It takes part in no signature: the
// Host header and every signed header pass as they came.
//
// It also writes down what happened to the store, as package history wants it. Writes of one key pass one by one, so
// their order is the store's; of two writes of different keys, the one whose answer came first stands first. A write
// that a dying server leaves in doubt is looked up in the server's own files before the next one of its key passes.
package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/headway-run/headway/proof/history"
)

// Config is what a Proxy needs. Upstream, Bucket and Sink are required.
type Config struct {
	Upstream string // host:port of the S3 server, http
	Bucket   string
	Prefix   string // keys in the history and in rules are relative to it; a request outside of it is refused
	Seed     uint64
	// Who names the process behind a client's address; asked once for each connection. nil: nobody is named.
	Who func(addr string) string
	// Stored looks a key up in the server's own files, when an answer is missing for good. nil: the write counts as lost.
	Stored func(key string) (body []byte, found bool)
	Sink   history.Sink
	Log    func(line string) // one for each request that a fault met, and each that went wrong by itself; nil: none
}

// Proxy serves from New to Close.
type Proxy struct {
	c     Config
	began time.Time
	l     net.Listener
	srv   *http.Server
	up    *http.Transport

	mu      sync.Mutex
	rng     *rand.Rand
	rules   []*Rule
	met     []meeting
	own     []Meeting // with the proxy's own slowness
	pending int       // late writes under way
	landing *sync.Cond

	book sync.Mutex // order of the history
	keys sync.Map   // key → *sync.Mutex
	sums sync.Map   // key → md5 of what it holds; changed under the key's lock
}

// maxBody bounds a request, bytes. What the harness trains is far smaller, and nothing of it goes up in parts.
const maxBody = 64 << 20

// slow is how long it may take to name a connection before the proxy counts as a fault itself: its requests wait for that.
const slow = 200 * time.Millisecond

type connKey struct{}

// client is one connection.
type client struct {
	addr string
	once sync.Once
	who  string
}

// New listens on a free port of the loopback. Times of the history count from now.
func New(c Config) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{c: c, began: time.Now(), l: l, rng: rand.New(rand.NewPCG(c.Seed, 0x9e3779b97f4a7c15)),
		up: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64, IdleConnTimeout: 30 * time.Second}}
	p.landing = sync.NewCond(&p.mu)
	p.srv = &http.Server{Handler: p, ReadHeaderTimeout: time.Minute, ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
		who := &client{addr: conn.RemoteAddr().String()}
		go p.name(who) // at once: it may be killed after its first request
		return context.WithValue(ctx, connKey{}, who)
	}}
	go func() { _ = p.srv.Serve(l) }() // ends with Close
	return p, nil
}

// Addr is host:port.
func (p *Proxy) Addr() string { return p.l.Addr().String() }

// Settle waits until every late write has landed.
func (p *Proxy) Settle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.pending > 0 {
		p.landing.Wait()
	}
}

// later carries a request out when d has passed.
func (p *Proxy) later(d time.Duration, do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending++
	time.AfterFunc(d, func() {
		do()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.pending--
		p.landing.Broadcast()
	})
}

// Close ends it, and what is under way.
func (p *Proxy) Close() error {
	p.Heal()
	err := p.srv.Close()
	p.Settle()
	p.up.CloseIdleConnections()
	return err
}

// Began is when the history's time began.
func (p *Proxy) Began() time.Time { return p.began }

// Note puts a remark into the history.
func (p *Proxy) Note(actor, text string) {
	p.enter(history.Entry{Actor: actor, Op: history.Note, Text: text})
}

func (p *Proxy) enter(e history.Entry) {
	p.book.Lock()
	defer p.book.Unlock()
	e.At = time.Since(p.began)
	p.c.Sink.Take(e)
}

func (p *Proxy) say(q Request, format string, args ...any) {
	if p.c.Log != nil {
		p.c.Log(fmt.Sprintf("%9.3f %-24s %s %s: %s", time.Since(p.began).Seconds(), q.Who, q.Method, q.Key, fmt.Sprintf(format, args...)))
	}
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, err := p.read(r)
	if err != nil {
		p.say(q, "%v", err)
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	rule := p.befalls(q)
	if rule != nil {
		p.say(q, "%s", rule.Fault)
	}
	if rule != nil && rule.Fault == Refuse {
		reset(w)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil || len(body) > maxBody {
		p.say(q, "the body broke off after %d bytes: %v", len(body), err)
		reset(w)
		return
	}
	if rule == nil {
		p.pass(w, r, q, body, "")
		return
	}
	p.fail(w, r, q, body, rule)
}

// read says what a request is about.
func (p *Proxy) read(r *http.Request) (Request, error) {
	q := Request{Method: r.Method}
	if c, ok := r.Context().Value(connKey{}).(*client); ok {
		q.Who = p.name(c)
	}
	rest, ok := strings.CutPrefix(r.URL.Path, "/"+p.c.Bucket)
	if !ok || rest != "" && rest[0] != '/' {
		return q, fmt.Errorf("a request for %.200q, which is not of bucket %s", r.URL.Path, p.c.Bucket)
	}
	rest = strings.TrimPrefix(rest, "/")
	if rest == "" {
		return q, nil
	}
	if p.c.Prefix != "" {
		if rest, ok = strings.CutPrefix(rest, p.c.Prefix+"/"); !ok {
			return q, fmt.Errorf("a request for %.200q, which is not below %s", r.URL.Path, p.c.Prefix)
		}
	}
	q.Key = rest
	if q.Write() && (r.URL.RawQuery != "" && r.URL.Query().Get("x-id") == "" || strings.Contains(r.Header.Get("Content-Encoding"), "aws-chunked")) {
		return q, fmt.Errorf("a write that cannot be written down whole: %s %.200q", r.Method, r.URL.RequestURI())
	}
	return q, nil
}

func (p *Proxy) name(c *client) string {
	if p.c.Who == nil {
		return ""
	}
	c.once.Do(func() {
		began := time.Now()
		c.who = p.c.Who(c.addr)
		if took := time.Since(began); took > slow {
			p.say(Request{Who: c.who}, "its requests had to wait %s for this name", took.Round(time.Millisecond))
			p.mu.Lock()
			defer p.mu.Unlock()
			p.own = append(p.own, Meeting{Request{Who: c.who}, began.Sub(p.began), time.Since(p.began)})
		}
	})
	return c.who
}

// answer is the store's, whole.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) write(w http.ResponseWriter) {
	for k, v := range a.header {
		w.Header()[k] = v
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // a client that has gone hears nothing
}

// pass forwards and answers.
func (p *Proxy) pass(w http.ResponseWriter, r *http.Request, q Request, body []byte, text string) {
	a, err := p.forward(r, q, bytes.NewReader(body), body, text)
	if err != nil {
		reset(w)
		return
	}
	a.write(w)
}

// fail does what a rule says.
func (p *Proxy) fail(w http.ResponseWriter, r *http.Request, q Request, body []byte, rule *Rule) {
	text := string(rule.Fault)
	switch rule.Fault {
	case CutRequest:
		half := io.MultiReader(bytes.NewReader(body[:len(body)/2]), broken{})
		if len(body) > 0 {
			_, _ = p.forward(r, q, half, body, text)
		}
		reset(w)
	case CutAnswer:
		if a, err := p.forward(r, q, bytes.NewReader(body), body, text); err == nil {
			a.half(w)
			return
		}
		reset(w)
	case LoseAnswer:
		_, _ = p.forward(r, q, bytes.NewReader(body), body, text)
		reset(w)
	case Hole:
		p.linger(r, rule)
		reset(w)
	case HoleAfter:
		_, _ = p.forward(r, q, bytes.NewReader(body), body, text)
		p.linger(r, rule)
		reset(w)
	case Slow:
		wait(r.Context(), rule.Delay)
		a, err := p.forward(r, q, bytes.NewReader(body), body, text)
		wait(r.Context(), rule.Delay)
		if err != nil {
			reset(w)
			return
		}
		a.write(w)
	case Error500:
		document(http.StatusInternalServerError, "InternalError").write(w)
	case Error500After:
		_, _ = p.forward(r, q, bytes.NewReader(body), body, text)
		document(http.StatusInternalServerError, "InternalError").write(w)
	case Busy503:
		document(http.StatusServiceUnavailable, "SlowDown").write(w)
	case Late:
		again := r.Clone(context.WithoutCancel(r.Context()))
		p.later(rule.Delay, func() { _, _ = p.forward(again, q, bytes.NewReader(body), body, text) })
		reset(w)
	case Refuse: // seen to before the body was read
	}
}

// linger waits for the rule's end, or for a client that gives up.
func (p *Proxy) linger(r *http.Request, rule *Rule) {
	select {
	case <-rule.lifted:
	case <-r.Context().Done():
	}
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// broken is where a body breaks off.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("cut here") }

// document is an answer as S3 writes one.
func document(status int, code string) answer {
	body := fmt.Sprintf("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>%s</Code><Message>made by the proxy</Message></Error>", code)
	return answer{status, http.Header{"Content-Type": {"application/xml"}}, []byte(body)}
}

// reset breaks the client's connection, so that it sees a reset and no orderly end.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // the client broke it first
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// half writes the first half of an answer, headers and all, and breaks off.
func (a answer) half(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	var whole bytes.Buffer
	resp := http.Response{StatusCode: a.status, ProtoMajor: 1, ProtoMinor: 1, Header: a.header, ContentLength: int64(len(a.body)), Body: io.NopCloser(bytes.NewReader(a.body))}
	_ = resp.Write(&whole) // into memory
	_, _ = conn.Write(whole.Bytes()[:whole.Len()-max(1, len(a.body)/2)])
	_ = conn.Close()
}
