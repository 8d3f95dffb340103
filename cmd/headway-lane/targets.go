package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/headway-run/headway/deploylane"
)

// Bounds of what a target may take and answer.
const (
	targetTimeout = 10 * time.Minute
	maxAnswer     = 4 << 10
	maxSaid       = 1 << 10 // of a program, the end
)

// exec runs a target's program with the attestation on its standard input and HEADWAY_RELEASE as its idempotency key. It gets
// nothing of this process' environment but PATH and HOME: neither the lane's key nor the store's.
func (e env) exec(ctx context.Context, argv []string, key string, body []byte) (string, error) {
	if !deploylane.Program(argv[0]) { // of a release that was frozen when such a path was let pass
		return "", fmt.Errorf("%s is no absolute path and no name on the PATH: files of the folder that the lane runs in are signed by nobody", argv[0])
	}
	ctx, cancel := context.WithTimeout(ctx, targetTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdin, cmd.WaitDelay = e.dir, bytes.NewReader(body), 10*time.Second
	cmd.Env = []string{"HEADWAY_RELEASE=" + key, "PATH=" + e.getenv("PATH"), "HOME=" + e.getenv("HOME")}
	out := &tail{most: maxSaid}
	cmd.Stdout, cmd.Stderr = out, out // one writer, so that no two write at once
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // with what it started
	if err := cmd.Run(); err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("no end within %s: %w", targetTimeout, err)
		}
		if said := strings.TrimSpace(string(out.kept)); said != "" {
			err = fmt.Errorf("%w: %s", err, clean(said))
		}
		return "", fmt.Errorf("%s: %w", argv[0], err)
	}
	return clean(string(out.kept)), nil
}

// tail keeps the last part of what is written: there a program says why it failed.
type tail struct {
	kept []byte
	most int
}

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p[max(0, len(p)-t.most):]...)
	if over := len(t.kept) - t.most; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

// bounded keeps the first part of what is written.
type bounded struct {
	to   *bytes.Buffer
	most int
}

func (b *bounded) Write(p []byte) (int, error) {
	if room := b.most - b.to.Len(); room > 0 {
		b.to.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// hook posts the attestation to the URL that a variable of the environment holds. No redirect is followed.
func (e env) hook(ctx context.Context, secret, key string, body []byte) (string, error) {
	to := e.getenv(secret)
	u, err := url.Parse(to)
	if to == "" || err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return "", fmt.Errorf("the variable %s holds no URL", secret)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return "", fmt.Errorf("the variable %s holds no URL", secret)
	}
	req.Header.Set("Content-Type", "application/vnd.dsse.envelope.v1+json")
	req.Header.Set("Idempotency-Key", key)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	if err != nil {
		if ue, ok := errors.AsType[*url.Error](err); ok {
			err = ue.Err // without the URL, which may be a secret
		}
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	said, _ := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if res.StatusCode/100 != 2 {
		return "", fmt.Errorf("it answered %s: %s", res.Status, clean(string(said)))
	}
	return res.Status + " " + clean(string(said)), nil
}
