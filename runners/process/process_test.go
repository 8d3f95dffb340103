//go:build linux

package process

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestMain makes this test binary the processes that it starts: with the argument "child" it does as it is told.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "child" {
		child(os.Args[2])
	}
	os.Exit(m.Run())
}

func child(mode string) {
	switch mode {
	case "exit":
		fmt.Println("bye")
		os.Exit(3)
	case "starter": // starts another one and leaves at once, as a dispatcher that is killed does
		s, err := Start(Command{Argv: []string{os.Args[0], "child", "wait"}, Env: []string{os.Args[3]}, Output: os.Args[4]})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(s.Identity.PID)
		os.Exit(0)
	case "hider": // has a child without a mark, in a session of its own
		c := exec.Command(os.Args[0], "child", "stubborn")
		c.Env, c.SysProcAttr = []string{}, &syscall.SysProcAttr{Setsid: true}
		if err := c.Start(); err != nil {
			os.Exit(1)
		}
		fmt.Println(c.Process.Pid)
		signal.Ignore(syscall.SIGTERM)
	case "parent": // leaves a member of its session behind when it goes
		c := exec.Command(os.Args[0], "child", "stubborn")
		if err := c.Start(); err != nil {
			os.Exit(1)
		}
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
	}
	<-time.After(2 * time.Minute)
	os.Exit(0)
}

// run starts a child that carries a mark of this test.
func run(t *testing.T, mode string) (s *Started, mark, output string) {
	t.Helper()
	dir := t.TempDir()
	mark, output = "PROCESS_TEST="+dir, filepath.Join(dir, "out")
	t.Cleanup(func() {
		left, err := Find(mark)
		if err != nil {
			t.Error(err)
		}
		for _, id := range left {
			if err := id.signal(syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		}
	})
	s, err := Start(Command{Argv: []string{os.Args[0], "child", mode}, Env: []string{mark}, Output: output, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return s, mark, output
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

func looks(t *testing.T, id Identity, want State) {
	t.Helper()
	if got, err := id.Look(); err != nil || got != want {
		t.Errorf("state %d, %v, expected %d", got, err, want)
	}
}

func TestAnEndedChildIsGoneAndReaped(t *testing.T) {
	s, _, output := run(t, "exit")
	<-s.Done()
	looks(t, s.Identity, Gone)
	if e, err := stat(s.Identity.PID); err == nil && e.start == s.Identity.Start {
		t.Errorf("it is still in the process table: %c", e.state)
	}
	if s.Err() == nil || s.Err().Error() != "exit status 3" {
		t.Errorf("end: %v", s.Err())
	}
	if b, err := os.ReadFile(output); err != nil || string(b) != "bye\n" {
		t.Errorf("output %q, %v", b, err)
	}
}

func TestItIsItsOwnSessionAndOutlivesItsStarter(t *testing.T) {
	dir := t.TempDir()
	mark := "PROCESS_TEST=" + dir
	out, err := exec.Command(os.Args[0], "child", "starter", mark, filepath.Join(dir, "out")).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	left, err := Find(mark)
	if err != nil || len(left) != 1 || fmt.Sprintln(left[0].PID) != string(out) {
		t.Fatalf("found %v, %v, expected %s", left, err, out)
	}
	looks(t, left[0], Alive)
	if e, err := stat(left[0].PID); err != nil || e.session != left[0].PID {
		t.Errorf("session %d of process %d, %v", e.session, left[0].PID, err)
	}
	if state, err := left[0].Terminate(t.Context(), 5*time.Second, mark); err != nil || state != Gone {
		t.Errorf("%d, %v", state, err)
	}
	looks(t, left[0], Gone)
}

// A number that is reused has another start time, a machine that booted has another boot: neither is ever signalled.
func TestAReusedNumberIsNotIt(t *testing.T) {
	s, mark, _ := run(t, "wait")
	for _, other := range []Identity{
		{PID: s.Identity.PID, Start: s.Identity.Start + 1, Boot: s.Identity.Boot},
		{PID: s.Identity.PID, Start: s.Identity.Start, Boot: "another"},
	} {
		looks(t, other, Gone)
		if state, err := other.Terminate(t.Context(), 0, ""); err != nil || state != Gone {
			t.Errorf("%d, %v", state, err)
		}
	}
	looks(t, s.Identity, Alive)
	for _, bad := range []Identity{{}, {PID: 1, Start: 1, Boot: s.Identity.Boot}, {PID: -1, Start: 1, Boot: s.Identity.Boot}, {PID: s.Identity.PID, Boot: s.Identity.Boot}} {
		if state, err := bad.Terminate(t.Context(), 0, ""); err == nil || state != Unsure {
			t.Errorf("%+v: %d, %v", bad, state, err)
		}
	}
	looks(t, s.Identity, Alive)
	if state, err := s.Identity.Terminate(t.Context(), 5*time.Second, mark); err != nil || state != Gone {
		t.Errorf("%d, %v", state, err)
	}
	if state, err := s.Identity.Terminate(t.Context(), 5*time.Second, mark); err != nil || state != Gone {
		t.Errorf("the second time: %d, %v", state, err)
	}
}

func TestStubbornIsKilledAfterTheGrace(t *testing.T) {
	s, _, _ := run(t, "stubborn")
	if state, err := s.Identity.Terminate(t.Context(), 30*time.Millisecond, ""); err != nil || state != Gone {
		t.Errorf("%d, %v", state, err)
	}
	<-s.Done()
}

// The leader goes at SIGTERM and leaves a member of its session that does not: it is known from before.
func TestTheSessionGoesWithItsLeader(t *testing.T) {
	s, mark, _ := run(t, "parent")
	until(t, "the member runs", func() bool { found, err := Find(mark); return err == nil && len(found) == 2 })
	if state, err := s.Identity.Terminate(t.Context(), 5*time.Second, ""); err != nil || state != Gone {
		t.Errorf("%d, %v", state, err)
	}
	if left, err := Find(mark); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A child that hides from mark and session is found as long as its parent lives.
func TestTheTreeGoesWithItsRoot(t *testing.T) {
	s, mark, output := run(t, "hider")
	var pid int
	until(t, "the child runs", func() bool {
		b, err := os.ReadFile(output)
		n, _ := fmt.Sscanln(string(b), &pid)
		return err == nil && n == 1 && strings.HasSuffix(string(b), "\n")
	})
	hidden, err := Identify(pid)
	if err != nil {
		t.Fatal(err)
	}
	if state, err := s.Identity.Terminate(t.Context(), 20*time.Millisecond, mark); err != nil || state != Gone {
		t.Errorf("%d, %v", state, err)
	}
	looks(t, hidden, Gone)
}

// A process that has ended and that nobody reaps runs nothing: it is gone.
func TestAZombieIsGone(t *testing.T) {
	c := exec.Command(os.Args[0], "child", "exit")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := Identify(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "it is a zombie", func() bool { e, err := stat(id.PID); return err == nil && e.state == 'Z' })
	looks(t, id, Gone)
	_ = c.Wait()
}

func TestStartRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []Command{{}, {Argv: []string{"/nothing/here"}, Output: filepath.Join(dir, "out")},
		{Argv: []string{os.Args[0]}, Output: filepath.Join(dir, "no", "folder")}} {
		if _, err := Start(c); err == nil {
			t.Errorf("%+v was started", c)
		}
	}
}

func TestParseStat(t *testing.T) {
	fields := " S 1 42 43 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 5 0 987654 1 2 18446744073709551615"
	for name, want := range map[string]entry{
		"sh": {pid: 42, state: 'S', parent: 1, session: 43, start: 987654},
		// A process chooses its own name, so it may look like the fields that follow it.
		"a) R 1 1 1 (b)":  {pid: 42, state: 'S', parent: 1, session: 43, start: 987654},
		"new\nline ( ) Z": {pid: 42, state: 'S', parent: 1, session: 43, start: 987654},
	} {
		got, err := parseStat([]byte("42 (" + name + ")" + fields))
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(entry{})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", name, diff)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("42 (sh) S 1 42 43 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 5 0 987654 1 2")
	f.Add("42 (a) S)")
	f.Add(")(")
	f.Fuzz(func(t *testing.T, line string) {
		e, err := parseStat([]byte(line))
		if err == nil && (e.state == 0 || !strings.Contains(line, ")")) {
			t.Errorf("%q was read as %+v", line, e)
		}
	})
}
