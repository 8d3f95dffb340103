package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// serve answers for the repositories in a folder until its input ends. It is a process of its own, so that what the
// server uses is not counted with what asks it.
func serve(dir string) error {
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		return err
	}
	backend := filepath.Join(strings.TrimSpace(string(out)), "git-http-backend")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s\n", l.Addr())
	h := &cgi.Handler{Path: backend, Dir: dir, Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1"}}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadByte() // ends when the one who started it is gone
		_ = s.Close()
	}()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// served starts the server and returns the address of the repository.
func served(dir string) (url string, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.Command(self, "-serve", dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	stop = func() {
		_ = in.Close() // it ends itself
		_ = cmd.Wait()
	}
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("the git server did not start: %w", err)
	}
	return string(bytes.TrimSpace(line)) + "/plans.git", stop, nil
}
