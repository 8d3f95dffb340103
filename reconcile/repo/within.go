package repo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
)

// maxCalls is how many calls of an ssh host may be under way, those among them that were left behind.
const maxCalls = 8

// gate stands between a call that may be left behind and what it would write.
type gate struct {
	mu          sync.Mutex
	begun, left bool
}

// enter is the call's: from here on it is waited for. One that was left behind goes no further.
func (g *gate) enter() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.left {
		return errors.New("nobody waits for this any more")
	}
	g.begun = true
	return nil
}

// leave is the caller's: it says whether the call can be left behind.
func (g *gate) leave() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = g.left || !g.begun
	return g.left
}

// within makes a call of the library that ends with ctx. Over ssh the library waits without any deadline until a host has said who it
// is, let us in and started the command: a host that takes connections and says nothing would stand still the loop that asks. Such a
// call is left behind, and ends with its connection; before the gate it has written nothing, and behind it the library minds ctx.
func (r *remote) within(ctx context.Context, g *gate, call func() error) error {
	if strings.HasPrefix(r.url, "http") {
		return call()
	}
	select {
	case r.calls <- struct{}{}:
	default:
		return &Error{Class: Offline, Remote: r.shown, Text: fmt.Sprintf("no answer in time, as to %d questions before, whose connections are still open", maxCalls), Hint: "it is asked again once one of them has ended"}
	}
	done := make(chan error, 1)
	go func() {
		err := call()
		<-r.calls
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	if g.leave() {
		return ctx.Err()
	}
	return <-done
}
