package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// endless is standard input that nobody writes to.
type endless struct{ asked chan struct{} }

func (e endless) Read([]byte) (int, error) {
	close(e.asked)
	select {}
}

// TestHistoryHeedsASignal: a history that never comes is waited for no longer than the person waits, be it standard input
// that says nothing or a pipe that nobody opens.
func TestHistoryHeedsASignal(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"-", "pipe"} {
		ctx, cancel := context.WithCancel(t.Context())
		in := endless{make(chan struct{})}
		var out, errs bytes.Buffer
		code := make(chan int, 1)
		go func() {
			code <- run(ctx, env{args: []string{"doctor", "--history", name}, stdin: in, stdout: &out, stderr: &errs, dir: dir, getenv: func(string) string { return "" }})
		}()
		if name == "-" {
			<-in.asked
		}
		cancel()
		select {
		case got := <-code:
			if got != exitInterrupted || out.Len()+errs.Len() > 0 {
				t.Errorf("%s: code %d, %q %q", name, got, out.String(), errs.String())
			}
		case <-time.After(2 * time.Minute):
			t.Fatalf("%s: it waits on", name)
		}
	}
}

func TestAcceptedRoot(t *testing.T) {
	for key, want := range map[string]string{"-": "", "a": "a", "a%2Fb": "a/b", "caf%C3%A9%20x": "café x", "%25": "%"} {
		if root, ok := acceptedRoot("accepted/" + key); !ok || root != want {
			t.Errorf("%q: %q %v", key, root, ok)
		}
	}
	for _, key := range []string{"", "zz%", "zz%1b", "a%2fb", "a/b", "café", "%61", "a\x01", "a b", "%2d"} {
		if root, ok := acceptedRoot("accepted/" + key); ok {
			t.Errorf("%q is taken for the root %q", key, root)
		}
	}
	if got := quoted(strings.Repeat("x", 900)); len(got) > 410 || !strings.HasSuffix(got, `…"`) {
		t.Error(got)
	}
}
