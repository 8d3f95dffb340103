package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// aliveFor is how long a loop may show no sign of life, beside the pause that it was asked to make: longer than a poll of
// the repository and a request to the store may take (two minutes; half of one).
const aliveFor = 5 * time.Minute

// health is what the loop shows of itself. Signs of life are the begin and the end of each look at the repository and of
// each pass, and each answer of the store in between, so that a long pass over a slow store is alive and one that hangs
// is not.
type health struct {
	mu    sync.Mutex
	sign  time.Time
	pause time.Duration
	asked bool // the repository, once at least
	tried bool // a pass, once at least
	repo  bool // answered when it was asked last
	store bool // was read by the last pass
}

func newHealth(pause time.Duration) *health { return &health{sign: time.Now(), pause: pause} }

// lives notes a sign of life.
func (h *health) lives() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sign = time.Now()
}

// polled notes whether the repository answered.
func (h *health) polled(ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sign, h.repo, h.asked = time.Now(), ok, true
}

// passed notes whether a pass could read the store.
func (h *health) passed(ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sign, h.store, h.tried = time.Now(), ok, true
}

// alive says why the loop hangs, or "".
func (h *health) alive() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if quiet := time.Since(h.sign); quiet > aliveFor+h.pause {
		return fmt.Sprintf("the loop hangs: no sign of life for %s", quiet.Round(time.Second))
	}
	return ""
}

// ready says why the loop does no good now, or "". It names no place and quotes no error: the log does.
func (h *health) ready() string {
	if why := h.alive(); why != "" {
		return why
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !h.tried && h.asked && !h.repo:
		return "no pass yet: the repository could not be read when it was asked last: the log says why"
	case !h.tried:
		return "no pass yet: nothing is known of the store"
	case !h.repo && !h.store:
		return "the last pass could read neither the repository nor the store: the log says why"
	case !h.repo:
		return "the repository could not be read when it was asked last: the log says why"
	case !h.store:
		return "the last pass could not read the store: the log says why"
	}
	return ""
}

// listenAddress makes a bare port one of this machine alone: who wants to be heard from elsewhere says so.
func listenAddress(s string) (string, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil || port == "" {
		return "", &exit{code: exitError, err: fmt.Errorf("--listen is %q, expected ADDRESS:PORT", s), hint: "for example 127.0.0.1:9090, or :9090 for the same; 0.0.0.0:9090 lets every machine in"}
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// respond answers with one line.
func respond(w http.ResponseWriter, code int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	fmt.Fprint(w, body)
}

// page is what watch serves: the metrics and the two answers of health, the releases where there are lanes, the hook where there is a
// secret, and nothing else. Of several sources each has metrics and releases of its own, and all must be well.
func page(ws []*watcher, secrets [][]byte) http.Handler {
	mux := http.NewServeMux()
	answer := func(why func(*health) string) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			for i, w := range ws {
				s := why(w.health)
				if s != "" && len(ws) > 1 {
					s = fmt.Sprintf("repository %d of %d: %s", i+1, len(ws), s)
				}
				if s != "" {
					respond(rw, http.StatusServiceUnavailable, s+"\n")
					return
				}
			}
			respond(rw, http.StatusOK, "ok\n")
		}
	}
	mux.HandleFunc("GET /healthz", answer((*health).alive))
	mux.HandleFunc("GET /readyz", answer((*health).ready))
	for i, w := range ws {
		part := ""
		if len(ws) > 1 {
			part = fmt.Sprintf("/%d", i+1)
		}
		w.lanes.routes(mux, part)
		mux.HandleFunc("GET /metrics"+part, func(rw http.ResponseWriter, _ *http.Request) {
			var b bytes.Buffer
			if _, err := w.meter.WriteTo(&b); err != nil {
				respond(rw, http.StatusInternalServerError, "the metrics could not be written\n")
				return
			}
			rw.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
			rw.Header().Set("X-Content-Type-Options", "nosniff")
			_, _ = b.WriteTo(rw) // whoever asked has gone
		})
	}
	if len(secrets) > 0 {
		mux.Handle("POST /hook", newHooks(secrets, ws))
	}
	return mux
}

// serve answers on an address until ctx ends; the address that it really has is said.
func serve(ctx context.Context, e env, address string, ws []*watcher) (stop func(), err error) {
	address, err = listenAddress(address)
	if err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, &exit{code: exitError, err: fmt.Errorf("--listen: %w", err), hint: "is the port taken, or another dispatcher running here? :0 takes any free port"}
	}
	secrets, err := hookSecrets(e)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	s := &http.Server{Handler: page(ws, secrets), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second,
		IdleTimeout: 30 * time.Second, MaxHeaderBytes: 8 << 10, ErrorLog: nil}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			warn(e, "the metrics and the health are no longer served: %v", err)
		}
	}()
	metrics, hook := "/metrics", ""
	if len(ws) > 1 {
		metrics = fmt.Sprintf("/metrics/1 to /metrics/%d", len(ws))
	}
	if len(secrets) > 0 {
		hook = ", and taking webhooks at /hook"
	}
	note(e, "serving http://%s%s, /healthz and /readyz%s", l.Addr(), metrics, hook)
	return func() {
		_ = s.Close() // nobody waits for a scrape
		<-done
	}, nil
}

// maxID bounds a dispatcher's name.
const maxID = 64

// checkID says whether a dispatcher may have this name: it goes into claims, logs and labels as it is.
func checkID(id string) error {
	bad := strings.IndexFunc(id, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-:/@+", r))
	})
	switch {
	case id == "" || len(id) > maxID:
		return &exit{code: exitError, err: fmt.Errorf("--id has %d bytes, expected 1 to %d", len(id), maxID), hint: "leave it out for one that is made up of this machine's name"}
	case bad >= 0:
		return &exit{code: exitError, err: fmt.Errorf("--id is %q, expected letters, digits and . _ - : / @ +", id), hint: "leave it out for one that is made up of this machine's name"}
	}
	return nil
}
