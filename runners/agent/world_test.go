package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/dir"
	"github.com/headway-run/headway/runners/goclient"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// pulse is the time of one training step.
func pulse() <-chan time.Time { return time.After(5 * time.Millisecond) }

// misbehave does at step AT what BAD says.
func misbehave(run *goclient.Run, n int64) error {
	if os.Getenv("BAD") == "" || strconv.FormatInt(n, 10) != os.Getenv("AT") {
		return nil
	}
	switch os.Getenv("BAD") {
	case "hang":
		mark("hung")
		select {}
	case "fail":
		return errors.New("loss is not a number")
	case "family": // a grandchild in a session of its own that ignores SIGTERM
		cmd := exec.Command("setsid", "sh", "-c", `trap "" TERM; echo $$ >"$MARKS/grand.part"; mv "$MARKS/grand.part" "$MARKS/grand"; sleep 1000; sleep 1000`)
		if err := cmd.Start(); err != nil {
			return err
		}
		mark("child")
	}
	return nil
}

// mark leaves a fact for the test: this process's number under a name.
func mark(name string) {
	file := filepath.Join(os.Getenv("MARKS"), name)
	if os.WriteFile(file+".part", []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644) == nil {
		_ = os.Rename(file+".part", file)
	}
}

// world is a store with one work.
type world struct {
	*testing.T
	b       bucket.Bucket
	url     string
	work    string
	spec    record.Spec
	terms   record.Terms
	window  float64 // capture window of the claims, seconds; 0: they name none
	scratch string
	marks   string
	die     string   // DIE_AT of the next agent
	secret  string   // value of MY_SECRET
	environ []string // of the agent's process, before what it is given; nil: the test's own
}

// newWorld makes a store with the spec of a work whose program is this binary with the given variables.
func newWorld(t *testing.T, env map[string]string) *world {
	t.Helper()
	root := t.TempDir()
	b, err := dir.Open(root, dir.Options{NoSync: true, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, b: b, url: "dir://" + root, scratch: t.TempDir(), marks: t.TempDir(), secret: "correct horse",
		terms: record.Terms{LeaseK: 50, LeaseFloorS: 2, MilestoneSteps: 20, GraceS: 4}}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	full := map[string]string{"TOTAL": "100", "MARKS": w.marks}
	maps.Copy(full, env)
	w.spec = record.Spec{Protocol: 1, Kind: "train", Argv: []string{self, "program"}, Env: full, Seed: 7,
		Metrics: map[string]string{"sum": "higher"}}
	return w
}

// publish writes the spec under the digest of what it asks for.
func (w *world) publish() {
	w.Helper()
	w.spec.Identity = record.Identity(w.spec)
	w.work = record.Hash(w.spec.Identity)
	w.spec.Work = w.work
	put(w, w.b, record.SpecKey(w.work), w.spec)
}

// claim writes the claim of dispatch n.
func (w *world) claim(n int64) {
	w.Helper()
	if w.work == "" {
		w.publish()
	}
	put(w, w.b, record.ClaimKey(w.work, n), record.Claim{Protocol: 1, Work: w.work, Dispatch: n, Nonce: record.Nonce(), Platform: "here", Terms: w.terms, CaptureS: w.window,
		Secrets: []string{"MY_SECRET"}})
}

// agent is a running agent process.
type agentProc struct {
	*exec.Cmd
	out bytes.Buffer
}

func (w *world) start(n int64, role string) *agentProc {
	w.Helper()
	w.claim(n)
	p := &agentProc{Cmd: exec.Command("/proc/self/exe", role)}
	if w.environ == nil {
		w.environ = os.Environ()
	}
	p.Env = append(w.environ[:len(w.environ):len(w.environ)], "HEADWAY_STORE="+w.url, "HEADWAY_WORK="+w.work, fmt.Sprint("HEADWAY_DISPATCH=", n), "HEADWAY_PLATFORM=here",
		"HEADWAY_SCRATCH="+w.scratch, "DIE_AT="+w.die, "MY_SECRET="+w.secret, "AWS_SECRET_ACCESS_KEY=battery staple")
	p.Stdout, p.Stderr = &p.out, &p.out
	p.WaitDelay = 10 * time.Second
	if role == "small-disk" {
		p.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
	}
	if err := p.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	return p
}

// code waits for the agent's exit code.
func (w *world) code(p *agentProc) int {
	w.Helper()
	_ = p.Wait()
	if w.Failed() || testing.Verbose() {
		w.Log(p.out.String())
	}
	return p.ProcessState.ExitCode()
}

func (w *world) run(n int64, want int) *agentProc {
	w.Helper()
	p := w.start(n, "agent")
	if got := w.code(p); got != want {
		w.Fatalf("the agent exited with %d, want %d\n%s", got, want, p.out.String())
	}
	return p
}

// until polls for a fact.
func (w *world) until(what string, fact func() bool) {
	w.Helper()
	for end := time.Now().Add(2 * time.Minute); !fact(); <-time.After(2 * time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("waited in vain for: %s", what)
		}
	}
}

func (w *world) witness() witness.Seen {
	w.Helper()
	seen, err := witness.Read(w.Context(), w.b, w.work)
	if err != nil && !errors.Is(err, witness.ErrAbsent) {
		w.Fatal(err)
	}
	return seen
}

// pid waits for a mark and reads the process's number in it.
func (w *world) pid(name string) int {
	w.Helper()
	var n int
	w.until(name, func() bool {
		b, err := os.ReadFile(filepath.Join(w.marks, name))
		if err != nil {
			return false
		}
		n, err = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil
	})
	return n
}

func (w *world) gone(pids ...int) {
	w.Helper()
	for _, pid := range pids {
		w.until(fmt.Sprintf("the end of process %d", pid), func() bool {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err != nil || bytes.Contains(b, []byte(") Z "))
		})
	}
}

// text concatenates all objects under a prefix.
func (w *world) text(prefix string) string {
	w.Helper()
	page, err := w.b.List(w.Context(), prefix, "", 0)
	if err != nil {
		w.Fatal(err)
	}
	var out strings.Builder
	for _, it := range page.Items {
		o, err := w.b.Get(w.Context(), it.Key, bucket.Range{})
		if err != nil {
			w.Fatal(err)
		}
		_, _ = io.Copy(&out, o.Body)
		_ = o.Body.Close()
	}
	return out.String()
}

func (w *world) end(attempt int64) record.End {
	w.Helper()
	var e record.End
	if raw := w.text(record.EndKey(w.work, attempt)); raw != "" {
		if err := json.Unmarshal([]byte(raw), &e); err != nil {
			w.Fatal(err)
		}
	}
	return e
}
