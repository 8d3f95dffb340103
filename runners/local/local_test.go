package local_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/local"
	"github.com/headway-run/headway/runners/process"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/runnertest"
)

// TestMain makes this test binary its own agent: with the argument "agent" it does what AGENT_MODE says.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "agent" {
		os.Exit(agent(os.Getenv("AGENT_MODE")))
	}
	if len(os.Args) > 1 && os.Args[1] == "dispatcher" {
		os.Exit(dispatcher())
	}
	os.Exit(m.Run())
}

func agent(mode string) int {
	stop := make(chan os.Signal, 1)
	switch mode {
	case "refuse":
		fmt.Println("starting up")
		fmt.Println("headway agent: the store's folder is not there: \x1b[31mmake it\x1b[0m")
		return 16
	case "no store":
		return 17
	case "done":
		return 0
	case "nothing":
		return 15
	case "env":
		out := strings.Join(os.Environ(), "\n")
		if err := os.WriteFile(os.Getenv("HEADWAY_SCRATCH")+"/env", []byte(out), 0o600); err != nil {
			return 1
		}
	case "sending":
		signal.Ignore(syscall.SIGTERM)
		if send(os.Getenv("HEADWAY_SCRATCH")) != nil {
			return 1
		}
	case "guarded": // a guardian of its own, which does not know whose it is and lives on for a while
		child := exec.Command(os.Args[0], "agent")
		child.Env = []string{"HEADWAY_RESULT=" + filepath.Join(os.Getenv("HEADWAY_SCRATCH"), "work", "result"), "CUDA_VISIBLE_DEVICES=" + os.Getenv("CUDA_VISIBLE_DEVICES")}
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := child.Start(); err != nil {
			return 1
		}
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		if err := os.WriteFile(os.Getenv("HEADWAY_SCRATCH")+"/deaf", nil, 0o600); err != nil {
			return 1
		}
	case "tree":
		signal.Ignore(syscall.SIGTERM)
		child := exec.Command(os.Args[0], "agent")
		child.Env = append(os.Environ(), "AGENT_MODE=stubborn")
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := child.Start(); err != nil {
			return 1
		}
	}
	if mode != "stubborn" && mode != "tree" && mode != "sending" {
		signal.Notify(stop, syscall.SIGTERM)
	}
	select {
	case <-stop:
		fmt.Println("asked to leave")
	case <-time.After(2 * time.Minute): // a test that died leaves nothing for long
	}
	return 12
}

// rig is one scratch folder with everything that runs in it.
type rig struct {
	scratch string
	store   string // the mark of this rig's processes
	slots   int
	settle  time.Duration
}

func newRig(t *testing.T, slots int) rig {
	t.Helper()
	dir := t.TempDir()
	g := rig{scratch: dir, store: "dir://" + dir + "/store", slots: slots, settle: time.Millisecond}
	t.Cleanup(func() {
		for _, pid := range g.pids(t) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // every one carries this test's own folder in its environment
		}
		until(t, "all of this test's processes are gone", func() bool { return len(g.pids(t)) == 0 })
	})
	return g
}

func (g rig) open(t *testing.T, options map[string]string) *local.Runner {
	t.Helper()
	o := map[string]string{"grace": "5s"}
	for k, v := range options {
		o[k] = v
	}
	r, err := local.New(local.Config{Platform: "here", Slots: g.slots, Options: o, Scratch: g.scratch, Settle: g.settle,
		Agent: []string{os.Args[0], "agent"}, Environ: []string{"PATH=/usr/bin:/bin", "HOME=/nowhere", "GITHUB_TOKEN=canary", "AWS_SECRET_ACCESS_KEY=canary"}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// each calls f for every process of this rig that runs, with its environment.
func (g rig) each(t *testing.T, f func(pid int, env map[string]string)) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil || !strings.Contains(string(b), "HEADWAY_STORE="+g.store+"\x00") {
			continue
		}
		env := map[string]string{}
		for kv := range strings.SplitSeq(string(b), "\x00") {
			k, v, _ := strings.Cut(kv, "=")
			env[k] = v
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(n)))
		if err != nil {
			t.Fatal(err)
		}
		f(pid, env)
	}
}

func (g rig) pids(t *testing.T) (out []int) {
	t.Helper()
	g.each(t, func(pid int, _ map[string]string) { out = append(out, pid) })
	return out
}

// truth is what really runs, as the kernel says.
func (g rig) truth(t *testing.T) (out []string) {
	t.Helper()
	g.each(t, func(_ int, env map[string]string) { out = append(out, env["HEADWAY_WORK"]+" "+env["HEADWAY_DISPATCH"]) })
	slices.Sort(out)
	return slices.Compact(out)
}

// until waits for a fact of other processes, however slow the machine is.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for late := time.Now().Add(2 * time.Minute); !ok(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}

func work(k int) string { return record.Hash([]byte{byte(k)}) }

func (g rig) launch(k int, n int64, mode string) runners.Launch {
	w := work(k)
	return runners.Launch{Work: w, Dispatch: n, Job: "digits", Store: g.store, Env: map[string]string{"AGENT_MODE": mode},
		Spec:  record.Spec{Protocol: record.Protocol, Work: w},
		Claim: record.Claim{Protocol: record.Protocol, Work: w, Dispatch: n, Nonce: record.Nonce(), Platform: "here"}}
}

func TestConformance(t *testing.T) { conformance(t, nil) }

// Three launches of two cards each.
func TestConformanceWithCards(t *testing.T) { conformance(t, map[string]string{"cards": "2"}) }

func conformance(t *testing.T, options map[string]string) {
	runnertest.Run(t, runnertest.Platform{Open: func(t *testing.T) runnertest.Setup {
		g := newRig(t, 3)
		self, err := process.Identify(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		var cards func() map[string][]string
		if options != nil {
			cards = func() map[string][]string { return g.cards(t) }
		}
		return runnertest.Setup{Runner: g.open(t, options), Bucket: mem.New(), Store: g.store, Platform: "here", Slots: 3,
			Truth:  func() []string { return g.truth(t) },
			Cards:  cards,
			Reopen: func() runners.Runner { return g.open(t, options) },
			Broken: func(l *runners.Launch) { l.Store = "" },
			Fails: func(l *runners.Launch) { // its folder can't be made: a file is in the way
				run := filepath.Join(g.scratch, "here", "run")
				if err := os.MkdirAll(run, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(run, fmt.Sprintf("%s-%d", l.Work[:12], l.Dispatch)), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			},
			Hostile: []string{ // this very process, with and without the folder of a real launch
				fmt.Sprintf(`{"pid":%d,"start":%d,"boot":%q,"dir":"/tmp"}`, self.PID, self.Start, self.Boot),
				fmt.Sprintf(`{"pid":%d,"start":%d,"boot":%q,"dir":%q}`, self.PID, self.Start, self.Boot, g.scratch),
				fmt.Sprintf(`{"pid":%d,"start":%d,"boot":%q,"dir":"../.."}`, self.PID, self.Start, self.Boot),
				fmt.Sprintf(`{"pid":1,"start":1,"boot":%q,"dir":"/tmp"}`, self.Boot),
			},
		}
	}})
}

func TestDiesAtOnceTellsItsLastWords(t *testing.T) {
	g := newRig(t, 2)
	g.settle = time.Minute // for the one that dies, however slow this machine is
	r := g.open(t, map[string]string{"cards": "2"})
	_, err := r.Launch(t.Context(), []runners.Launch{g.launch(1, 1, ""), g.launch(2, 1, "refuse")})
	if runners.ClassOf(err) != runners.Rejected || !strings.Contains(err.Error(), "the store's folder is not there") || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("error: %v", err)
	}
	until(t, "the other one was ended as well", func() bool { return len(g.truth(t)) == 0 })
	if _, err := r.Launch(t.Context(), []runners.Launch{g.launch(4, 1, "no store")}); runners.ClassOf(err) != runners.Unreachable {
		t.Errorf("no store: %v", err)
	}
	// Those are ends of agents that have given their own account: the launch itself was fine.
	for _, mode := range []string{"done", "nothing"} {
		if _, err := r.Launch(t.Context(), []runners.Launch{g.launch(3, 1, mode)}); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
	}
	list, err := r.Running(t.Context())
	if err != nil || len(list) != 0 {
		t.Errorf("running: %v, %v", list, err)
	}
}

func TestNoSuchAgent(t *testing.T) {
	g := newRig(t, 1)
	r, err := local.New(local.Config{Platform: "here", Scratch: g.scratch, Agent: []string{filepath.Join(g.scratch, "nothing-here")}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Launch(t.Context(), []runners.Launch{g.launch(1, 1, "")})
	if runners.ClassOf(err) != runners.Rejected {
		t.Errorf("error: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(g.scratch, "here", "live")); err != nil || len(left) != 0 {
		t.Errorf("left in the live folder: %v, %v", left, err)
	}
}

// What ignores SIGTERM, and what hid in a session of its own, is gone all the same when the answer is Closed.
func TestReleaseEndsTheWholeTree(t *testing.T) {
	g := newRig(t, 1)
	r := g.open(t, map[string]string{"grace": "50ms"})
	receipts, err := r.Launch(t.Context(), []runners.Launch{g.launch(1, 1, "tree")})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "agent and child run", func() bool { return len(g.pids(t)) == 2 })
	a, err := r.Release(t.Context(), receipts[0].Handle)
	if err != nil || a.Settlement != runners.Closed {
		t.Fatalf("%+v, %v", a, err)
	}
	if left := g.pids(t); len(left) != 0 {
		t.Errorf("called closed while %v run", left)
	}
}

// A caller with less patience than the grace is told that it is pending; the grace runs on meanwhile, so that asking
// again and again ends even what ignores SIGTERM.
func TestReleaseThatIsCutShortIsPending(t *testing.T) {
	g := newRig(t, 1)
	r := g.open(t, map[string]string{"grace": "1s"})
	receipts, err := r.Launch(t.Context(), []runners.Launch{g.launch(1, 1, "stubborn")})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "it ignores SIGTERM", func() bool {
		deaf, err := filepath.Glob(filepath.Join(g.scratch, "here", "run", "*", "deaf"))
		return err == nil && len(deaf) == 1
	})
	began, asked := time.Now(), 0
	until(t, "it is closed", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		asked++
		a, err := r.Release(ctx, receipts[0].Handle)
		if err != nil {
			t.Error(err)
		}
		closed := a.Settlement == runners.Closed
		if running := len(g.truth(t)); closed && (running > 0 || asked == 1) {
			t.Errorf("answer %d: %+v while %d run", asked, a, running)
		}
		return closed
	})
	if took := time.Since(began); took < 900*time.Millisecond || asked < 3 {
		t.Errorf("killed after %s and %d questions, the grace is a second", took, asked)
	}
}

func TestAfterABootEverythingIsClosed(t *testing.T) {
	g := newRig(t, 1)
	r := g.open(t, nil)
	h := fmt.Sprintf(`{"pid":%d,"start":5,"boot":"another-boot","dir":"/tmp/x"}`, os.Getpid())
	a, err := r.Release(t.Context(), json.RawMessage(h))
	if err != nil || a.Settlement != runners.Closed {
		t.Errorf("%+v, %v", a, err)
	}
}

// A dispatcher that was killed between starting a process and noting it has lost nothing: the process carries its
// folder, and the note that was written before the start names it.
func TestFoundAfterACrashBetweenStartAndNote(t *testing.T) {
	g := newRig(t, 1)
	receipts, err := g.open(t, nil).Launch(t.Context(), []runners.Launch{g.launch(1, 1, "")})
	if err != nil {
		t.Fatal(err)
	}
	var h struct {
		PID int    `json:"pid"`
		Dir string `json:"dir"`
	}
	if err := json.Unmarshal(receipts[0].Handle, &h); err != nil {
		t.Fatal(err)
	}
	note := filepath.Join(g.scratch, "here", "live", filepath.Base(h.Dir)+".json")
	before := fmt.Sprintf(`{"work":%q,"dispatch":1,"job":"digits","pid":0,"start":0,"boot":"","dir":%q}`, work(1), h.Dir)
	if err := os.WriteFile(note, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	r := g.open(t, nil)
	list, err := r.Running(t.Context())
	if err != nil || len(list) != 1 || string(list[0].Handle) != string(receipts[0].Handle) {
		t.Fatalf("running: %+v, %v", list, err)
	}
	if _, err := r.Launch(t.Context(), []runners.Launch{g.launch(2, 1, "")}); runners.ClassOf(err) != runners.NoSlots {
		t.Errorf("its slot was given away: %v", err)
	}
	if a, err := r.Release(t.Context(), list[0].Handle); err != nil || a.Settlement != runners.Closed {
		t.Errorf("%+v, %v", a, err)
	}
	// And a note of a process that never started takes no slot.
	if err := os.WriteFile(note, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Launch(t.Context(), []runners.Launch{g.launch(2, 2, "")}); err != nil {
		t.Errorf("the slot is free: %v", err)
	}
}

// The same dispatch twice is one process: whoever repeats a call gets the receipt of the first.
func TestTheSameDispatchTwiceIsOneProcess(t *testing.T) {
	g := newRig(t, 1)
	first, err := g.open(t, nil).Launch(t.Context(), []runners.Launch{g.launch(1, 1, "")})
	if err != nil {
		t.Fatal(err)
	}
	second, err := g.open(t, nil).Launch(t.Context(), []runners.Launch{g.launch(1, 1, "")})
	if err != nil || string(first[0].Handle) != string(second[0].Handle) || len(g.pids(t)) != 1 {
		t.Errorf("%s, then %s, %v; %d processes", first[0].Handle, second[0].Handle, err, len(g.pids(t)))
	}
}

func TestManyDispatchersShareTheSlots(t *testing.T) {
	g := newRig(t, 3)
	errs := make(chan error)
	for k := range 8 {
		go func() {
			_, err := g.open(t, nil).Launch(t.Context(), []runners.Launch{g.launch(k, 1, "")})
			errs <- err
		}()
	}
	took := 0
	for range 8 {
		switch err := <-errs; {
		case err == nil:
			took++
		case runners.ClassOf(err) != runners.NoSlots:
			t.Error(err)
		}
	}
	if took != 3 || len(g.truth(t)) != 3 {
		t.Errorf("%d launches succeeded and %d run, expected 3", took, len(g.truth(t)))
	}
}

func TestEnvironment(t *testing.T) {
	for store, keys := range map[string]bool{"dir:///x": false, "s3://bucket/prefix": true} {
		g := newRig(t, 1)
		l := g.launch(1, 7, "env")
		l.Store = store
		l.Env["HF_TOKEN"], l.Env["HEADWAY_WORK"] = "secret", "no secret replaces one of ours"
		r := g.open(t, nil)
		receipts, err := r.Launch(t.Context(), []runners.Launch{l})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(g.scratch, "here", "run", work(1)[:12]+"-7", "env")
		var env []string
		until(t, "the agent has written its environment", func() bool {
			b, err := os.ReadFile(file)
			env = strings.Split(string(b), "\n")
			return err == nil && len(b) > 0
		})
		for _, want := range []string{"PATH=/usr/bin:/bin", "HOME=/nowhere", "HF_TOKEN=secret", "HEADWAY_STORE=" + store, "HEADWAY_WORK=" + work(1),
			"HEADWAY_DISPATCH=7", "HEADWAY_PLATFORM=here", "HEADWAY_SCRATCH=" + filepath.Dir(file)} {
			if !slices.Contains(env, want) {
				t.Errorf("%s is missing in %q", want, env)
			}
		}
		if slices.Contains(env, "GITHUB_TOKEN=canary") || slices.Contains(env, "AWS_SECRET_ACCESS_KEY=canary") != keys {
			t.Errorf("store %s: the dispatcher's own tokens: %q", store, env)
		}
		if a, err := r.Release(t.Context(), receipts[0].Handle); err != nil || a.Settlement != runners.Closed {
			t.Errorf("%+v, %v", a, err)
		}
	}
}

func TestOptions(t *testing.T) {
	ok := local.Config{Platform: "here", Scratch: t.TempDir(), Agent: []string{"headway"}}
	for _, tc := range []struct {
		options map[string]string
		want    string
	}{
		{map[string]string{"scrath": "/tmp"}, `did you mean "scratch"`},
		{map[string]string{"region": "eu"}, "it knows cards, grace, keep, scratch"},
		{map[string]string{"cards": "0"}, `found "0", expected how many cards one launch has`},
		{map[string]string{"cards": "T4"}, `found "T4"`},
		{map[string]string{"scratch": "here"}, "expected an absolute path"},
		{map[string]string{"grace": "soon"}, `found "soon"`},
		{map[string]string{"grace": "-1s"}, `found "-1s"`},
		{map[string]string{"keep": "-1"}, `found "-1"`},
	} {
		c := ok
		c.Options = tc.options
		if _, err := local.New(c); err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "platform here") {
			t.Errorf("%v: %v", tc.options, err)
		}
	}
	for _, c := range []local.Config{{Platform: "../x", Scratch: "/tmp", Agent: ok.Agent}, {Platform: "here", Scratch: "/tmp"},
		{Platform: "here", Agent: ok.Agent}, {Platform: "here", Scratch: "/tmp", Agent: ok.Agent, Slots: -1}} {
		if _, err := local.New(c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}
