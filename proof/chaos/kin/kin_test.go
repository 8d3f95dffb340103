//go:build linux

package kin_test

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headway-run/headway/proof/chaos/kin"
)

// await waits for a fact about the family.
func await(t *testing.T, f *kin.Family, what string, is func([]*kin.Proc) bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; <-time.After(5 * time.Millisecond) {
		alive, err := f.Look()
		if err != nil {
			t.Fatal(err)
		}
		if is(alive) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited for %s; alive are %v", what, alive)
		}
	}
}

func find(all []*kin.Proc, pid int) *kin.Proc {
	for _, p := range all {
		if p.PID == pid {
			return p
		}
	}
	return nil
}

// An orphan in a session of its own is still of the family, its end leaves no zombie, and what it was is known.
func TestOrphans(t *testing.T) {
	f, err := kin.New()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := exec.Command("sh", "-c", `HEADWAY_ATTEMPT=3 HEADWAY_WORK=abc setsid sh -c 'echo $$; exec sleep 1000' & read -r _; exit 0`)
	c.Dir = dir
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Start(c); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	_ = in.Close() // its parent ends
	if err := f.Wait(c); err != nil {
		t.Fatal(err)
	}
	var orphan *kin.Proc
	await(t, f, "the orphan", func(all []*kin.Proc) bool {
		orphan = find(all, pid)
		return orphan != nil && orphan.Parent == os.Getpid() && orphan.Role == kin.Program // in the middle of an exec it has no name
	})
	if orphan.Role != kin.Program || orphan.Number != 3 || orphan.Work != "abc" || !orphan.In(dir) || orphan.In(dir+"x") || !orphan.Lives() {
		t.Errorf("it is %+v", orphan)
	}
	if err := orphan.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, f, "its burial", func(all []*kin.Proc) bool {
		_, err := os.Stat("/proc/" + strconv.Itoa(pid))
		return find(all, pid) == nil && os.IsNotExist(err)
	})
	if err := orphan.Signal(syscall.SIGTERM); err != kin.ErrGone {
		t.Errorf("a signal to a process that has ended: %v", err)
	}
	reused := *orphan
	reused.PID = os.Getpid()
	reused.Start++ // this process may have begun in the orphan's own hundredth of a second
	if me, err := os.ReadFile("/proc/self/stat"); err != nil || strings.Contains(string(me), " "+strconv.FormatUint(reused.Start, 10)+" ") {
		reused.Start++
	}
	if err := reused.Signal(syscall.SIGKILL); err != kin.ErrGone {
		t.Errorf("a signal to another process of that number: %v", err)
	}
}

// A connection's far end is found among the family's processes, below one folder.
func TestBehind(t *testing.T) {
	f, err := kin.New()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	c := exec.Command("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/"+strconv.Itoa(l.Addr().(*net.TCPAddr).Port)+"; read -r _; exit 0")
	c.Dir = dir
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Start(c); err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p, err := f.Behind(conn.RemoteAddr().String(), conn.LocalAddr().String(), dir)
	if err != nil || p.PID != c.Process.Pid {
		t.Errorf("found %v (%v), want process %d", p, err, c.Process.Pid)
	}
	if p, err := f.Behind(conn.RemoteAddr().String(), conn.LocalAddr().String(), dir+"/elsewhere"); err == nil {
		t.Errorf("found %v in another folder", p)
	}
	if p, err := f.Behind("127.0.0.1:1", conn.LocalAddr().String(), dir); err == nil {
		t.Errorf("found %v behind a port that nobody has", p)
	}
	_ = in.Close()
	if err := f.Wait(c); err != nil {
		t.Error(err)
	}
}
