package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/headway-run/headway/reconcile/forge"
)

// How much of hooks is borne: deliveries that are read at a time, which bounds their memory, and how often they may make a
// loop look at its repository.
const (
	hooksAtOnce = 4
	hookPause   = time.Second
)

// hooks answers the deliveries of forges. A delivery is believed no further than that somebody who knows the secret wants a
// look: many that come together make one.
type hooks struct {
	secrets [][]byte
	sources []*watcher
	room    chan struct{}

	mu   sync.Mutex
	seen forge.Seen
}

// hookSecrets reads HEADWAY_HOOK_SECRET: one, or several apart by commas or lines while one is being replaced. One that is set and
// names none is a mistake: without a secret there is no hook.
func hookSecrets(e env) (out [][]byte, err error) {
	for _, s := range strings.FieldsFunc(e.getenv("HEADWAY_HOOK_SECRET"), func(r rune) bool { return r == ',' || r == '\n' }) {
		if s = strings.TrimSpace(s); s != "" {
			e.hidden.add(s)
			out = append(out, []byte(s))
		}
	}
	if len(out) == 0 && e.getenv("HEADWAY_HOOK_SECRET") != "" {
		return nil, &exit{code: exitError, err: errors.New("HEADWAY_HOOK_SECRET is set and holds no secret, only commas or spaces"), hint: "give the secret that the forge signs with, or unset it for no /hook"}
	}
	return out, nil
}

func newHooks(secrets [][]byte, sources []*watcher) *hooks {
	return &hooks{secrets: secrets, sources: sources, room: make(chan struct{}, hooksAtOnce)}
}

func (h *hooks) ServeHTTP(rw http.ResponseWriter, rq *http.Request) {
	select {
	case h.room <- struct{}{}:
		defer func() { <-h.room }()
	default:
		rw.Header().Set("Retry-After", "1")
		respond(rw, http.StatusTooManyRequests, "too many deliveries at once: send it again\n")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(rw, rq.Body, forge.MaxHook))
	if err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			respond(rw, http.StatusRequestEntityTooLarge, fmt.Sprintf("at most %d bytes are read\n", forge.MaxHook))
			return
		}
		respond(rw, http.StatusBadRequest, "the delivery could not be read\n")
		return
	}
	wake, err := forge.Hook(rq.Header, body, h.secrets)
	if err != nil {
		status := http.StatusBadRequest
		if refused, ok := errors.AsType[*forge.HookError](err); ok {
			status = refused.Status
		}
		respond(rw, status, err.Error()+"\n")
		return
	}
	h.mu.Lock()
	fresh := h.seen.Fresh(wake, time.Now())
	h.mu.Unlock()
	if !fresh {
		respond(rw, http.StatusOK, "seen before\n")
		return
	}
	for _, w := range h.sources {
		if w.concerns(wake.Ref) {
			w.poke()
		}
	}
	respond(rw, http.StatusAccepted, "looking\n")
}

// concerns says whether a ref that moved may be what this loop follows. Which repository it was is not asked: a forge may
// know it under another address, and a look that finds nothing costs next to nothing.
func (w *watcher) concerns(ref string) bool {
	w.following.Lock()
	defer w.following.Unlock()
	branch, is := strings.CutPrefix(ref, "refs/heads/")
	return !is || w.following.branch == "" || branch == w.following.branch
}

// poke makes the loop look now. Pokes that come together are one.
func (w *watcher) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// pause waits for the next look: for d, or until somebody asks for one, but no sooner after the last one than hookPause.
func (w *watcher) pause(ctx context.Context, d time.Duration) error {
	least := min(d, hookPause)
	if err := pause(ctx, least); err != nil {
		return err
	}
	t := time.NewTimer(d - least)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
	case <-w.wake:
	}
	return nil
}

// hangups pokes every loop at SIGHUP, until ctx ends. A process that was told to ignore it goes on doing so.
func hangups(ctx context.Context, ws []*watcher) {
	if signal.Ignored(syscall.SIGHUP) {
		return
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	go func() {
		defer signal.Stop(c)
		for {
			select {
			case <-ctx.Done():
				return
			case <-c:
				for _, w := range ws {
					note(w.env, "SIGHUP: looking now")
					w.poke()
				}
			}
		}
	}()
}
