package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/headway-run/headway/runners/agent/fingerprint"
	"github.com/headway-run/headway/runners/agent/guard"
)

// Bounds of a work's own probe.
const (
	probeLimit  = time.Minute
	probeOutput = 1 << 20 // bytes of its standard output
)

// quiet is the program that runs the probe: only what it prints on purpose is hashed; the rest is kept for a refusal.
const quiet = `exec 2>"$0"; exec "$@"`

// probe runs the command that a pinned work requires the output of, in the program's own folder and environment, before the
// program: two or three steps of a small model with the same kernels show what no list of versions holds. It is bounded in time
// and output, and the lease is kept meanwhile. It refuses a machine whose output hashes to something else, naming both hashes.
func (r *run) probe(ctx context.Context, l *laid) error {
	required, named := r.spec.Requires[fingerprint.ProbeRun]
	if !named || r.c.Inside != nil {
		return nil
	}
	want, argv, err := fingerprint.SplitProbe(required)
	if err != nil {
		return refused("%v", err)
	}
	r.say("probing", r.d.at(), fmt.Sprintf("%.200q", argv))
	words := r.scratch.at("probe")
	out := &capped{h: sha256.New(), full: make(chan struct{})}
	env := programEnv(r.c.Environ, &r.spec, r.claim.Secrets, l.env, r.pythonPath())
	p, err := guard.Start(guard.Command{Guard: r.c.Guard, Argv: append([]string{"/bin/sh", "-c", quiet, words}, argv...), Dir: l.cwd, Env: env, Output: out})
	if err != nil {
		return refused("%s could not be started: %v", fingerprint.ProbeRun, err)
	}
	if err := r.await(ctx, p, out); err != nil {
		return err
	}
	if e := p.Ended(); e.Code != 0 {
		return refused("%s: %.200q ended with exit code %d%s", fingerprint.ProbeRun, argv, e.Code, lastWords(words))
	}
	found := strings.Replace(required, want, out.sum(), 1) // so that the two differ in the hash alone
	return unlike(fingerprint.Compare(map[string]string{fingerprint.ProbeRun: required}, map[string]string{fingerprint.ProbeRun: found}))
}

// await stands by the probe until it and all it started are gone.
func (r *run) await(ctx context.Context, p *guard.Process, out *capped) error {
	kill := func(err error) error {
		p.Signal(syscall.SIGKILL)
		<-p.Done()
		return err
	}
	full := func() error {
		return refused("%s printed more than %d bytes: let it print a hash of what it computes", fingerprint.ProbeRun, probeOutput)
	}
	late := time.After(probeLimit)
	evidence := time.NewTicker(time.Second)
	defer evidence.Stop()
	for {
		select {
		case <-p.Done():
			select {
			case <-out.full:
				return full()
			default:
				return nil
			}
		case <-ctx.Done():
			return kill(context.Cause(ctx))
		case <-out.full:
			return kill(full())
		case <-late:
			return kill(refused("%s took more than %s: two or three steps of a small model are enough", fingerprint.ProbeRun, probeLimit))
		case <-evidence.C:
			r.d.evidence()
		}
	}
}

// lastWords is the end of what the probe wrote to its standard error.
func lastWords(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	var b [512]byte
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return ""
	}
	n, _ := f.ReadAt(b[:], max(0, info.Size()-int64(len(b)))) // what was read is what there is to say
	lines := strings.Split(strings.TrimSpace(string(b[:n])), "\n")
	return fmt.Sprintf(": %.300q", lines[len(lines)-1])
}

// capped hashes what is written, up to probeOutput bytes.
type capped struct {
	mu   sync.Mutex
	h    hash.Hash
	n    int
	full chan struct{}
}

var errFull = errors.New("too much output")

func (b *capped) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n > probeOutput {
		return 0, errFull
	}
	if b.n += len(p); b.n > probeOutput {
		close(b.full)
		return 0, errFull
	}
	return b.h.Write(p)
}

func (b *capped) sum() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return "sha256:" + hex.EncodeToString(b.h.Sum(nil))
}
