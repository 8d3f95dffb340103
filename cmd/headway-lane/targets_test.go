package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestAProgramIsTold(t *testing.T) {
	e := env{dir: t.TempDir(), getenv: func(name string) string {
		return map[string]string{"PATH": "/usr/bin:/bin", "HOME": "/nowhere", "HEADWAY_LANE_KEY": "the key", "AWS_SECRET_ACCESS_KEY": "another"}[name]
	}}
	got, err := e.exec(t.Context(), []string{"sh", "-c", `cat; echo; env`}, "key-1", []byte("attested"))
	if err != nil || !strings.HasPrefix(got, "attested") || !strings.Contains(got, "HEADWAY_RELEASE=key-1") {
		t.Errorf("%q, %v", got, err)
	}
	if strings.Contains(got, "the key") || strings.Contains(got, "another") || strings.Contains(got, "LANE_KEY") {
		t.Errorf("a secret of the lane: %q", got)
	}
	if _, err := e.exec(t.Context(), []string{"sh", "-c", `echo no room >&2; exit 3`}, "key-1", nil); err == nil || !strings.Contains(err.Error(), "exit status 3: no room") {
		t.Errorf("%v", err)
	}
	if _, err := e.exec(t.Context(), []string{"sh", "-c", `yes | head -c 1000000; echo no room >&2; exit 3`}, "key-1", nil); err == nil || !strings.HasSuffix(err.Error(), "no room") || len(err.Error()) > 4*maxSaid {
		t.Errorf("what a program says last is why it failed: %.3000v", err)
	}
	if _, err := e.exec(t.Context(), []string{"false"}, "key-1", nil); err == nil || err.Error() != "false: exit status 1" {
		t.Errorf("%v", err)
	}
	if got, err := e.exec(t.Context(), []string{"sh", "-c", `yes | head -c 1000000`}, "key-1", nil); err != nil || len(got) > 4*maxSaid {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestAFileOfTheWorkingFolderIsNoProgram: nobody signed it, however it is named and whatever PATH says.
func TestAFileOfTheWorkingFolderIsNoProgram(t *testing.T) {
	e := env{dir: t.TempDir(), getenv: func(string) string { return ".:/usr/bin:/bin" }}
	t.Chdir(e.dir)
	t.Setenv("PATH", ".:/usr/bin:/bin")
	if err := os.MkdirAll("bin", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"deploy-it", "bin/deploy-it"} {
		if err := os.WriteFile(file, []byte("#!/bin/sh\ntouch ran\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, word := range []string{"bin/deploy-it", "./deploy-it", "deploy-it"} {
		_, err := e.exec(t.Context(), []string{word}, "key-1", nil)
		if _, ran := os.Stat("ran"); err == nil || ran == nil {
			t.Errorf("%s: %v, and it ran: %v", word, err, ran == nil)
		}
	}
	if _, err := e.exec(t.Context(), []string{e.dir + "/deploy-it"}, "key-1", nil); err != nil {
		t.Error(err)
	}
}

// TestAProgramThatHangsIsEndedWhole: with what it started, so that nothing of it deploys later.
func TestAProgramThatHangsIsEndedWhole(t *testing.T) {
	e := env{dir: t.TempDir(), getenv: func(string) string { return "/usr/bin:/bin" }}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := e.exec(ctx, []string{"sh", "-c", `sleep 1000 & echo $! >pids.part; mv pids.part pids; wait`}, "key-1", nil)
		done <- err
	}()
	until := func(what string, ok func() bool) {
		for end := time.Now().Add(time.Minute); !ok(); <-time.After(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	var pid int
	until("it did not begin", func() bool {
		b, err := os.ReadFile(filepath.Join(e.dir, "pids"))
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
		}
		return err == nil
	})
	cancel()
	if err := <-done; err == nil {
		t.Error("it was cut off and said to be good")
	}
	until("what it started lives on", func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(b), ") Z ") // nobody may have waited for it yet
	})
}

// TestAWebhookIsTold: the attestation and the key arrive, the answer comes back bounded, the URL is in no error, and a redirect is
// not followed.
func TestAWebhookIsTold(t *testing.T) {
	elsewhere := 0
	var body []byte
	var key string
	mux := http.NewServeMux()
	mux.HandleFunc("POST /ok", func(w http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		key = r.Header.Get("Idempotency-Key")
		_, _ = io.WriteString(w, "took it\x1b[2J")
	})
	mux.HandleFunc("POST /no", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "not today", http.StatusConflict) })
	mux.HandleFunc("POST /away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/other", func(http.ResponseWriter, *http.Request) { elsewhere++ })
	s := httptest.NewServer(mux)
	defer s.Close()
	at := map[string]string{"OK": s.URL + "/ok", "NO": s.URL + "/no?token=secret", "AWAY": s.URL + "/away", "GONE": "http://127.0.0.1:1/?token=secret", "ODD": "ftp://secret"}
	e := env{getenv: func(name string) string { return at[name] }}
	got, err := e.hook(t.Context(), "OK", "key-1", []byte("attested"))
	if err != nil || !bytes.Equal(body, []byte("attested")) || key != "key-1" || !strings.HasPrefix(got, "200 OK took it") || strings.Contains(got, "\x1b") {
		t.Errorf("%q, %v, key %q, body %q", got, err, key, body)
	}
	for name, want := range map[string]string{"NO": "409 Conflict: not today", "AWAY": "307", "GONE": "refused", "ODD": "the variable ODD holds no URL", "NONE": "the variable NONE holds no URL"} {
		if _, err := e.hook(t.Context(), name, "key-1", nil); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if elsewhere > 0 {
		t.Error("a redirect was followed")
	}
}
