package guard

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "guard":
			os.Exit(Main(os.Args[2:]))
		case "host": // an agent that only starts a program and waits for its own death
			p, err := Start(Command{Guard: self(), Argv: os.Args[2:], Env: os.Environ(), Output: os.Stdout})
			if err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			<-p.Done()
			os.Exit(0)
		}
	}
	goleak.VerifyTestMain(m)
}

func self() []string { return []string{"/proc/self/exe", "guard"} }

// gone waits for the fact that pid is no running process of ours.
func gone(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; <-time.After(time.Millisecond) { // a fact with a deadline
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(b), ") Z ") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("process %d is still alive: %s", pid, b)
		}
	}
}

func pidFrom(t *testing.T, file string) int {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); <-time.After(time.Millisecond) {
		if b, err := os.ReadFile(file); err == nil && strings.HasSuffix(string(b), "\n") {
			n, err := strconv.Atoi(strings.TrimSpace(string(b)))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("%s was not written", file)
	return 0
}

// The program starts a grandchild that ignores SIGTERM in a session of its own, and stays.
const family = `trap '' TERM; setsid sh -c 'trap "" TERM; echo $$ >'"$1"'/grand.tmp; mv '"$1"'/grand.tmp '"$1"'/grand; sleep 1000; sleep 1000' & echo $$ >$1/child.tmp; mv $1/child.tmp $1/child; wait; sleep 1000`

func TestKilledAgentLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	host := exec.Command("/proc/self/exe", "host", "sh", "-c", family, "sh", dir)
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	child, grand := pidFrom(t, filepath.Join(dir, "child")), pidFrom(t, filepath.Join(dir, "grand"))
	if err := host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = host.Wait()
	gone(t, child)
	gone(t, grand)
}

func TestKilledGuardianTakesTheProgramAlong(t *testing.T) {
	dir := t.TempDir()
	p, err := Start(Command{Guard: self(), Argv: []string{"sh", "-c", family, "sh", dir}, Env: os.Environ()})
	if err != nil {
		t.Fatal(err)
	}
	grand := pidFrom(t, filepath.Join(dir, "grand"))
	_ = p.guardian.Process.Kill()
	<-p.Done()
	gone(t, p.PID)
	_ = syscall.Kill(-grand, syscall.SIGKILL) // in another session: beyond what is promised when the guardian is shot
	if got := p.Ended(); got.Signal != syscall.SIGKILL {
		t.Errorf("ended as %+v, want SIGKILL", got)
	}
}

func TestStubbornTreeIsKilled(t *testing.T) {
	dir := t.TempDir()
	p, err := Start(Command{Guard: self(), Argv: []string{"sh", "-c", family, "sh", dir}, Env: os.Environ()})
	if err != nil {
		t.Fatal(err)
	}
	grand := pidFrom(t, filepath.Join(dir, "grand"))
	p.Signal(syscall.SIGTERM)
	p.Signal(syscall.SIGKILL)
	<-p.Done()
	gone(t, p.PID)
	gone(t, grand)
	if got := p.Ended(); got.Signal != syscall.SIGKILL || got.Code != 137 {
		t.Errorf("ended as %+v, want SIGKILL and 137", got)
	}
}

// A program can stop its guardian, or a user both; they are ended all the same.
func TestStoppedGuardianIsWoken(t *testing.T) {
	begin := filepath.Join(t.TempDir(), "go") // the guardian has said what it started
	p, err := Start(Command{Guard: self(), Argv: []string{"sh", "-c", "while [ ! -e $0 ]; do :; done; kill -STOP $PPID; kill -STOP $$", begin}, Env: os.Environ()})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(begin, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(2 * time.Minute); ; <-time.After(time.Millisecond) { // a fact with a deadline
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
		if err == nil && strings.Contains(string(b), ") T ") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("process %d does not stop: %s", p.PID, b)
		}
	}
	p.Signal(syscall.SIGKILL)
	select {
	case <-p.Done():
	case <-time.After(2 * time.Minute):
		_ = p.guardian.Process.Kill()
		t.Fatal("SIGKILL waits for a guardian that is stopped")
	}
	gone(t, p.PID)
}

func TestExitAndOutput(t *testing.T) {
	for _, c := range []struct {
		script string
		want   Ended
		out    string
	}{
		{"echo out; echo err >&2; exit 3", Ended{Code: 3}, "out\nerr\n"},
		{"kill -TERM $$", Ended{Code: 143, Signal: syscall.SIGTERM}, ""},
		{"setsid sleep 1000 & exit 0", Ended{Code: 0}, ""}, // what it leaves behind does not keep us waiting
	} {
		var out bytes.Buffer
		p, err := Start(Command{Guard: self(), Argv: []string{"sh", "-c", c.script}, Env: os.Environ(), Output: &out})
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Ended(); got != c.want || out.String() != c.out {
			t.Errorf("%s: ended %+v with %q, want %+v with %q", c.script, got, out.String(), c.want, c.out)
		}
	}
}

func TestProgramThatIsNotThere(t *testing.T) {
	_, err := Start(Command{Guard: self(), Argv: []string{"no-such-program"}, Env: os.Environ()})
	if err == nil || !strings.Contains(err.Error(), "no-such-program") {
		t.Errorf("got %v, want an error that names the program", err)
	}
}
