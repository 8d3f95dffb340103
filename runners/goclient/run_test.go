package goclient

import (
	"bufio"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeAgent answers each line by op, and keeps what it was sent.
type fakeAgent struct {
	t       *testing.T
	ln      net.Listener
	conn    chan net.Conn
	lines   chan map[string]any
	done    chan struct{}
	answers map[string]string // by op; step stands for an asking one
}

func newAgent(t *testing.T, answers map[string]string) *fakeAgent {
	t.Helper()
	dir, err := os.MkdirTemp("", "gc")
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	a := &fakeAgent{t: t, ln: ln, conn: make(chan net.Conn, 1), lines: make(chan map[string]any, 1000), done: make(chan struct{}), answers: map[string]string{
		"hello":     `{"ok":true,"protocol":1,"work":"ab","attempt":3,"every_steps":10,"every_s":0,"quiet_s":3600}`,
		"resume":    `{"ok":true,"path":null,"step":0,"milestone":0}`,
		"step":      `{"ok":true,"quiet_s":3600,"due":false,"stop":null}`,
		"milestone": `{"ok":true,"milestone":1}`,
		"phase":     `{"ok":true,"quiet_s":3600}`, "phase_end": `{"ok":true,"quiet_s":3600}`, "drain": `{"ok":true,"milestone":1}`,
	}}
	for op, line := range answers {
		a.answers[op] = line
	}
	go func() { defer close(a.done); a.serve() }()
	t.Cleanup(func() { _ = ln.Close(); <-a.done; _ = os.RemoveAll(dir) })
	t.Setenv("HEADWAY_SOCKET", filepath.Join(dir, "s"))
	return a
}

func (a *fakeAgent) serve() {
	c, err := a.ln.Accept()
	if err != nil {
		return
	}
	defer c.Close()
	a.conn <- c
	for in := bufio.NewScanner(c); in.Scan(); {
		var m map[string]any
		if json.Unmarshal(in.Bytes(), &m) != nil {
			a.t.Errorf("sent %q", in.Bytes())
			return
		}
		a.lines <- m
		op, _ := m["op"].(string)
		if op == "note" || op == "error" || op == "step" && m["ask"] != true {
			continue
		}
		answer := a.answers[op]
		if answer == "hang up" {
			return
		}
		_, _ = c.Write([]byte(answer + "\n"))
	}
}

// ops lists what was sent after the hello, in order, closing the run first.
func (a *fakeAgent) ops(r *Run, cause error) []string {
	_ = r.Close(cause)
	<-a.done // it has read to the end
	close(a.lines)
	var out []string
	for m := range a.lines {
		op, _ := m["op"].(string)
		if op == "step" {
			op += "(" + jsonText(m["n"]) + ")"
			if m["ask"] == true {
				op += "?"
			}
		}
		if op == "error" {
			op += ": " + m["text"].(string)
		}
		out = append(out, op)
	}
	return out
}

func jsonText(v any) string { b, _ := json.Marshal(v); return string(b) }

func attach(t *testing.T) *Run {
	t.Helper()
	r, err := Attach()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(nil) })
	return r
}

func TestWithoutAnAgentNothingHappens(t *testing.T) {
	t.Setenv("HEADWAY_SOCKET", "")
	t.Chdir(t.TempDir())
	r := attach(t)
	if res, err := r.Resume(); res != nil || err != nil {
		t.Errorf("resume %v, %v", res, err)
	}
	n := int64(0)
	for n = range r.Steps(0, 5) {
		if r.MilestoneDue() {
			t.Error("a milestone is due without an agent")
		}
	}
	end, err := r.Phase("eval", time.Minute)
	r.Note(map[string]float64{"loss": 1})
	if err := errors.Join(err, end(), r.Finish(map[string]float64{"loss": 1}), r.Close(nil)); err != nil || n != 5 {
		t.Errorf("%v after %d steps", err, n)
	}
	if b, err := os.ReadFile("result/metrics.json"); err != nil || string(b) != "{\n \"loss\": 1\n}\n" {
		t.Errorf("metrics %q, %v", b, err)
	}
}

func TestALoopIsTold(t *testing.T) {
	a := newAgent(t, nil)
	r := attach(t)
	if r.Attempt != 3 || r.Work != "ab" {
		t.Errorf("run %+v", r)
	}
	file := filepath.Join(t.TempDir(), "w")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	due := []int64{}
	for n := range r.Steps(0, 25) {
		if r.MilestoneDue() {
			due = append(due, n)
			if err := r.Milestone(file, n, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	if d := cmp.Diff([]int64{10, 20}, due); d != "" {
		t.Error(d)
	}
	ops := a.ops(r, nil)
	// Steps may be left out, but never the one before a request or the last.
	var kept []string
	for i, op := range ops {
		if !strings.HasPrefix(op, "step") || i+1 == len(ops) || !strings.HasPrefix(ops[i+1], "step") {
			kept = append(kept, op)
		}
	}
	if d := cmp.Diff([]string{"hello", "step(10)", "milestone", "step(20)", "milestone", "step(25)", "drain"}, kept); d != "" {
		t.Errorf("%s\nof %v", d, ops)
	}
}

func TestAPushMakesTheNextStepAsk(t *testing.T) {
	a := newAgent(t, map[string]string{"step": `{"ok":true,"quiet_s":3600,"due":true,"stop":"yield"}`})
	r := attach(t)
	c := <-a.conn
	if _, err := c.Write([]byte(`{"push":"ask"}` + "\n")); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(2 * time.Minute); !r.c.asked.Load(); <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the push was not seen")
		}
	}
	r.MilestoneDue() // it minds milestones
	if err := r.Step(1); err != nil || !r.Stopping() || !r.MilestoneDue() {
		t.Errorf("%v, stopping %v", err, r.Stopping())
	}
	file := filepath.Join(t.TempDir(), "w")
	_ = os.WriteFile(file, nil, 0o644)
	if err := r.Milestone(file, 2, true); err != nil {
		t.Fatal(err)
	}
	if err := r.Step(3); !errors.Is(err, ErrYielded) || errors.Is(err, ErrLeaseLost) {
		t.Errorf("after its last milestone: %v", err)
	}
	if ops := a.ops(r, r.Err()); ops[len(ops)-1] != "drain" {
		t.Errorf("left without waiting for it: %v", ops)
	}
}

func TestHowARunIsOver(t *testing.T) {
	for answer, want := range map[string]error{
		`{"ok":false,"error":"lease_lost","text":"gone"}`: ErrLeaseLost,
		`{"ok":false,"error":"revoked","text":"stopped"}`: ErrRevoked,
		"hang up": ErrLeaseLost,
		"oops":    ErrLeaseLost,
	} {
		t.Run(answer, func(t *testing.T) {
			a := newAgent(t, map[string]string{"phase": answer})
			r := attach(t)
			if _, err := r.Phase("eval", time.Second); !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
			if err := r.Step(1); !errors.Is(err, want) || !errors.Is(err, ErrLeaseLost) {
				t.Errorf("afterwards %v", err)
			}
			if ops := a.ops(r, errors.New("boom")); cmp.Diff([]string{"hello", "phase"}, ops) != "" {
				t.Errorf("a run that is over still spoke: %v", ops)
			}
		})
	}
}

func TestRefusalsLeaveTheRunAlive(t *testing.T) {
	a := newAgent(t, map[string]string{"milestone": `{"ok":false,"error":"disk_full","text":"8 bytes are needed"}`})
	r := attach(t)
	file := filepath.Join(t.TempDir(), "w")
	_ = os.WriteFile(file, nil, 0o644)
	err := r.Milestone(file, 1, false)
	if e, ok := errors.AsType[*Error](err); !ok || e.Code != "disk_full" {
		t.Errorf("%v", err)
	}
	if e, ok := errors.AsType[*Error](r.Milestone(file+"x", 1, false)); !ok || e.Code != "usage" {
		t.Error("a milestone that is not there was sent")
	}
	if err := r.Step(5); err != nil {
		t.Error(err)
	}
	if e, ok := errors.AsType[*Error](r.Step(4)); !ok || e.Code != "usage" {
		t.Error("a step back was taken")
	}
	if ops := a.ops(r, errors.New("boom")); ops[len(ops)-1] != "error: boom" {
		t.Errorf("last words: %v", ops)
	}
}

func TestOtherRanksOnlyListen(t *testing.T) {
	a := newAgent(t, nil)
	t.Setenv("RANK", "2")
	t.Setenv("HEADWAY_RESUME", "/snapshot")
	t.Setenv("HEADWAY_RESUME_STEP", "40")
	r := attach(t)
	res, err := r.Resume()
	if err != nil || res == nil || res.Step != 40 || res.Path != "/snapshot" {
		t.Errorf("resume %+v, %v", res, err)
	}
	if err := errors.Join(r.Step(1), r.Milestone(os.TempDir(), 1, false)); err != nil || r.MilestoneDue() {
		t.Error(err)
	}
	_ = (<-a.conn).Close()
	for end := time.Now().Add(2 * time.Minute); r.Step(2) == nil; <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the end of the agent was not noticed")
		}
	}
	if ops := a.ops(r, nil); len(ops) != 0 {
		t.Errorf("rank 2 spoke: %v", ops)
	}
}

// TestVectors reads the agent's lines that all clients share.
func TestVectors(t *testing.T) {
	raw, err := os.ReadFile("../witness/testdata/vectors/socket.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct{ Name, From, Expect, To, Line string }
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, c := range file.Cases {
		if c.From != "agent" || c.To == "push" || c.To == "hello" {
			continue
		}
		seen++
		t.Run(c.Name, func(t *testing.T) {
			newAgent(t, map[string]string{"resume": c.Line, "drain": c.Line, "milestone": c.Line, "phase": c.Line, "phase_end": c.Line, "step": c.Line})
			r := attach(t)
			_, err := r.Resume()
			e, refused := errors.AsType[*Error](err)
			switch {
			case c.Expect == "refuse" && err == nil,
				c.Expect == "accept" && c.To != "any" && err != nil,
				c.To == "any" && !(refused && c.Name == "error_"+e.Code) && !errors.Is(err, ErrLeaseLost):
				t.Errorf("%s: %v", c.Line, err)
			}
		})
	}
	if seen < 10 {
		t.Errorf("only %d vectors", seen)
	}
}

// Waits for data and the writing of a milestone travel with the next step's line, once; plain steps stay as they are.
func TestWhatTheTimeWentInto(t *testing.T) {
	a := newAgent(t, map[string]string{"hello": `{"ok":true,"protocol":1,"work":"ab","attempt":3,"every_steps":3,"every_s":0,"quiet_s":3600}`})
	r := attach(t)
	file := filepath.Join(t.TempDir(), "state")
	for n := range r.Steps(0, 4) {
		if n == 2 {
			end := r.Waiting()
			<-time.After(2 * time.Millisecond)
			end()
		}
		if r.MilestoneDue() && errors.Join(os.WriteFile(file, nil, 0o600), r.Milestone(file, n, false)) != nil {
			t.Fatal("no milestone")
		}
	}
	_ = r.Close(nil)
	<-a.done
	close(a.lines)
	var waits, saves float64
	for m := range a.lines {
		if w, ok := m["wait_s"].(float64); ok && m["op"] == "step" {
			waits++
			if w < 0.002 || w > 10 {
				t.Errorf("waited %v s", w)
			}
		}
		if s, ok := m["save_s"].(float64); ok && m["op"] == "step" {
			saves++
			if s <= 0 || s > 10 || m["n"] != 3.0 {
				t.Errorf("%v", m)
			}
		}
	}
	if waits != 1 || saves != 1 {
		t.Errorf("%v lines tell of waits and %v of a snapshot, want one each", waits, saves)
	}
}
