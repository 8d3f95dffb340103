//go:build llama

package llamarpc_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headway-run/headway/deploylane/llamarpc"
	"github.com/headway-run/headway/deploylane/preflight"
	"github.com/headway-run/headway/deploylane/ring"
)

// patience is how long anything may take that has to happen: two busy cores are slow.
const patience = 3 * time.Minute

const generation = 1_789_000_000_000

// parts is where the engine's programs are.
type parts struct{ Root, Server, Stage string }

// rig is a real ring: two RPC servers and, when it is loaded, a head.
type rig struct {
	t *testing.T
	parts
	*llamarpc.Engine
	model  string // as the head sees it
	stages []*exec.Cmd
	at     []string // address and port of each
	head   string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t}
	if err := json.Unmarshal([]byte(os.Getenv("HEADWAY_TEST_LLAMA")), &r.parts); err != nil {
		t.Fatalf("HEADWAY_TEST_LLAMA: %v; run this through .ci/llama/run", err)
	}
	dir, err := os.MkdirTemp(filepath.Join(r.Root, "tmp"), "test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	writeModel(t, filepath.Join(dir, "m.gguf"))
	r.model = strings.TrimPrefix(filepath.Join(dir, "m.gguf"), r.Root)
	for range 2 {
		r.at = append(r.at, r.stage())
	}
	r.fresh()
	return r
}

// fresh makes the engine, whose head will listen where nobody did a moment ago.
func (r *rig) fresh() {
	r.head = free(r.t)
	r.Engine = llamarpc.New(r.t.Context(), llamarpc.Config{Server: []string{"chroot", r.Root, r.Server}, Stages: r.at, Listen: r.head, Threads: 1,
		Log: filepath.Join(r.t.TempDir(), "head.log"), Release: "build-11669"})
}

// free is an address that nobody listened on a moment ago.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// stage starts one RPC server with one thread; a port that was taken meanwhile is another one the next time.
func (r *rig) stage() string {
	r.t.Helper()
	for range 20 {
		at := free(r.t)
		host, port, _ := net.SplitHostPort(at)
		cmd := exec.Command("chroot", r.Root, r.Stage, "-t", "1", "-H", host, "-p", port)
		if err := cmd.Start(); err != nil {
			r.t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			cmd.Wait()
			close(ended)
		}()
		r.t.Cleanup(func() {
			cmd.Process.Kill()
			<-ended
		})
		for until := time.Now().Add(patience); time.Now().Before(until); {
			ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
			_, err := llamarpc.Ask(ctx, "tcp://"+at)
			cancel()
			if err == nil {
				r.stages = append(r.stages, cmd)
				return at
			}
			select {
			case <-ended:
				until = time.Now()
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	r.t.Fatal("no RPC server comes up")
	return ""
}

// route is what a client needs.
func (r *rig) route(load uint64) ring.Route {
	out := ring.Route{Load: load}
	for i, at := range r.at {
		out.Stages = append(out.Stages, ring.Hop{Agent: "tcp://" + at, Node: fmt.Sprintf("tiny-s%d", i)})
	}
	return out
}

// load sends a LOAD for each stage and hears all out; alter changes them. When somebody took the head's port meanwhile,
// again.
func (r *rig) load(load uint64, alter func(i int, b *ring.StageLoad)) (out []ring.Answer) {
	r.t.Helper()
	for range 20 {
		if out = r.try(load, alter); !strings.Contains(out[0].Detail, "bind") {
			break
		}
		r.fresh()
	}
	return out
}

func (r *rig) try(load uint64, alter func(i int, b *ring.StageLoad)) []ring.Answer {
	route, out := r.route(load), make([]ring.Answer, len(r.at))
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	done := make(chan error)
	for i, h := range route.Stages {
		b := ring.StageLoad{Schema: 4, Ring: "tiny", Load: load, Stage: i, Stages: route.Stages, Model: r.model, Layers: [2]int{4 * i, 4*i + 4}, KV: [2]int{4 * i, 4*i + 4},
			Device: fmt.Sprintf("RPC%d", i), Endpoint: r.at[i], Batch: 64, UBatch: 64, Context: 256, Parallel: 1, Output: 64}
		if alter != nil {
			alter(i, &b)
		}
		body, err := json.Marshal(b)
		if err != nil {
			r.t.Fatal(err)
		}
		c := ring.Command{Via: h.Agent, Target: ring.Target{Kind: ring.ToAgent, Agent: h.Agent}, Envelope: ring.Envelope{Content: ring.ContentLoad, Body: body,
			Meta: ring.Metadata{Schema: 1, Node: h.Node, Generation: load, Adapter: ring.AdapterKind, AdapterContent: ring.AdapterContentLoad}}}
		go func() {
			var err error
			out[i], err = r.Load(ctx, c)
			done <- err
		}()
	}
	for range route.Stages {
		if err := <-done; err != nil {
			r.t.Error(err)
		}
	}
	return out
}

func (r *rig) mustLoad() {
	r.t.Helper()
	for _, a := range r.load(generation, nil) {
		if a.Status != ring.Succeeded {
			r.t.Fatalf("%+v", a)
		}
	}
}

// ask is one round, within a time.
func (r *rig) ask(within time.Duration) (ring.Reply, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), within)
	defer cancel()
	s, err := r.Session(ctx, r.route(generation))
	if err != nil {
		return ring.Reply{}, err
	}
	defer s.Finish(ctx)
	reply, err := s.Request(ctx, ring.Query{ID: "q", Prompt: []byte("hello"), MaxTokens: 16})
	if err != nil {
		return reply, err
	}
	_, err = s.Settle(ctx, reply)
	return reply, err
}

// TestLlamaRing: two stages answer what one process answers, three times; the inspection names the devices as the head
// does; and after the UNLOAD the same ring is loaded again.
func TestLlamaRing(t *testing.T) {
	r := newRig(t)
	one := r.alone()
	r.fresh()
	for i, at := range r.at {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		in, err := r.Inspect(ctx, "", "tcp://"+at)
		cancel()
		if err != nil || len(in.Devices) != 1 || in.Devices[0].Name != fmt.Sprintf("RPC%d", i) || in.Memory == nil || in.Memory.Total == 0 || !strings.HasPrefix(in.Native.Hello[0], "rpc=v8.") {
			t.Fatalf("%+v %v", in, err)
		}
	}
	for load := range 2 {
		r.mustLoad()
		for range 3 {
			if reply, err := r.ask(patience); err != nil || string(reply.Text) != one || reply.Count != 16 {
				t.Fatalf("load %d: %q %v, alone: %q", load, reply.Text, err, one)
			}
		}
		for _, h := range r.route(generation).Stages {
			c := ring.Command{Target: ring.Target{Kind: ring.ToAgent, Agent: h.Agent}, Envelope: ring.Envelope{Content: ring.ContentUnload, Meta: ring.Metadata{Schema: 1, Node: h.Node, Generation: generation}}}
			if a, err := r.Unload(t.Context(), c); err != nil || a.Status != ring.Succeeded || a.Resource != ring.Absent {
				t.Fatalf("%+v %v", a, err)
			}
			if a, err := r.Unload(t.Context(), c); err != nil || a.Status != ring.Rejected || a.Resource != ring.Absent {
				t.Fatalf("again: %+v %v", a, err)
			}
		}
	}
}

// alone is what one process says without any stage: the oracle.
func (r *rig) alone() string {
	r.t.Helper()
	host, port, _ := net.SplitHostPort(r.head)
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "chroot", r.Root, r.Server, "-m", r.model, "-c", "256", "-b", "64", "-ub", "64", "-np", "1", "-t", "1", "--no-warmup", "--host", host, "--port", port)
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	for ctx.Err() == nil {
		if text, err := completion(ctx, r.head); err == nil {
			return text
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	r.t.Fatal("one process alone does not answer")
	return ""
}

// TestLlamaNames (F): a device name of another build is not in the list that the guard asks for; with the guard off the
// engine itself refuses it.
func TestLlamaNames(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for device, refused := range map[string]bool{"RPC0": false, "RPC1": true, "CUDA0": true} { // RPC1 is the other stage's
		p := &ring.Plan{Ring: "tiny", Hosts: []ring.Host{{Name: "h1", Agent: "tcp://" + r.at[0], Backend: "rpc"}},
			Stages: []ring.Stage{{Node: "tiny-s0", Host: "h1", Layers: [2]int{0, 8}, Device: device}}}
		v := &ring.View{Plan: p, Survey: ring.TakeSurvey(ctx, r.Engine, p, nil)}
		for _, c := range ring.Checks(v, nil) {
			if f := c.Run(ctx); c.ID == "R6" && (f[0].Verdict != map[bool]preflight.Verdict{false: preflight.OK, true: preflight.Refused}[refused]) {
				t.Errorf("%s: %s", device, f[0])
			}
		}
	}
	for _, a := range r.load(generation, func(_ int, b *ring.StageLoad) { b.Device = "CUDA0" }) {
		if a.Status != ring.Failed || a.Resource != ring.Absent || !strings.Contains(a.Detail, "CUDA0") {
			t.Errorf("%+v", a)
		}
	}
	r.mustLoad() // nothing is left of it
}

// TestLlamaFromTheHead (D): a stage that cannot be reached from where it will be dialled is found before; with the guard
// off the head dies of it, late and unclear.
func TestLlamaFromTheHead(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := r.Inspect(ctx, "", "tcp://127.0.0.1:1"); !errors.As(err, new(ring.Unreachable)) {
		t.Error(err)
	}
	for _, a := range r.load(generation, func(i int, b *ring.StageLoad) {
		if i == 1 {
			b.Endpoint = "127.0.0.1:1"
		}
	}) {
		if a.Status != ring.Failed || !strings.Contains(a.Detail, "the head ended") {
			t.Errorf("%+v", a)
		}
	}
	public := r.load(generation, func(_ int, b *ring.StageLoad) { b.Endpoint = "0.0.0.0:50052" })
	for _, a := range public {
		if a.Status != ring.Rejected || !strings.Contains(a.Detail, "no authentication") {
			t.Errorf("%+v", a)
		}
	}
}

// TestLlamaHealthIsNotService (I): with a stage stopped the head says that it is well, and a request ends by its
// deadline; when the stage goes on the ring serves again.
func TestLlamaHealthIsNotService(t *testing.T) {
	r := newRig(t)
	r.mustLoad()
	if _, err := r.ask(patience); err != nil {
		t.Fatal(err)
	}
	r.stages[1].Process.Signal(syscall.SIGSTOP)
	_, err := r.ask(10 * time.Second)
	if silent, ok := errors.AsType[ring.NoAnswer](err); !ok || silent.What != "request" {
		t.Errorf("%v", err)
	}
	if !healthy(t, r.head) {
		t.Error("the head does not say that it is well: then health would mean something")
	}
	r.stages[1].Process.Signal(syscall.SIGCONT)
	for until := time.Now().Add(patience); ; {
		if _, err = r.ask(patience); err == nil || time.Now().After(until) {
			break
		}
	}
	if err != nil {
		t.Errorf("after it went on: %v", err)
	}
}

// TestLlamaTwice (H): the first round is right; the stage dies; the second round says that the ring is gone, and so does
// every later session.
func TestLlamaTwice(t *testing.T) {
	r := newRig(t)
	r.mustLoad()
	if _, err := r.ask(patience); err != nil {
		t.Fatal(err)
	}
	r.stages[0].Process.Kill()
	if _, err := r.ask(patience); !errors.As(err, new(ring.StageFailed)) {
		t.Errorf("the second: %v", err)
	}
	var err error
	for until := time.Now().Add(patience); time.Now().Before(until); {
		if _, err = r.ask(patience); errors.As(err, new(ring.StageFailed)) {
			break
		}
	}
	if failed, ok := errors.AsType[ring.StageFailed](err); !ok || !strings.Contains(failed.State, "the head ended") {
		t.Errorf("later: %v", err)
	}
}
