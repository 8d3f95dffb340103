//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestMain is the lane itself where a test starts this binary as one.
func TestMain(m *testing.M) {
	switch os.Getenv("HEADWAY_TEST_AS") {
	case "lane":
		main()
	case "reader": // says whether it may read the environment of a process
		_, err := os.ReadFile("/proc/" + os.Getenv("HEADWAY_TEST_PID") + "/environ")
		fmt.Println(errors.Is(err, fs.ErrPermission), err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// asAnother starts this binary as somebody without special rights, whoever runs the test.
func asAnother(t *testing.T, as string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = self.Close() })
	c := exec.CommandContext(t.Context(), "/proc/self/fd/3", args...) // the folder that it lies in is open to its owner alone
	c.ExtraFiles = []*os.File{self}
	c.Dir = "/"
	c.Env = []string{"HEADWAY_TEST_AS=" + as, "HEADWAY_LANE_KEY=/nowhere", "PATH=" + os.Getenv("PATH")}
	if os.Getuid() == 0 {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	return c
}

// TestTheLaneIsHidden: another program of the same user cannot read the environment of a lane, and can read that of a worker,
// by which its runner finds it.
func TestTheLaneIsHidden(t *testing.T) {
	for _, x := range []struct {
		args   []string
		hidden string
	}{{[]string{"watch", "--every", "1h"}, "true "}, {nil, "false "}} {
		lane := asAnother(t, "lane", x.args...)
		if x.args == nil { // a program like any other: it waits for its input
			lane = asAnother(t, "", "")
			lane.Path, lane.Args = "/bin/sh", []string{"sh", "-c", "echo up; read x"}
		}
		out, err := lane.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		in, err := lane.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := lane.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil { // it runs
			t.Fatal(err)
		}
		reader := asAnother(t, "reader")
		reader.Env = append(reader.Env, fmt.Sprintf("HEADWAY_TEST_PID=%d", lane.Process.Pid))
		said, err := reader.CombinedOutput()
		if err != nil || !strings.HasPrefix(string(said), x.hidden) {
			t.Errorf("%v: %v, %s", x.args, err, said)
		}
		_ = in.Close()
		_ = lane.Process.Kill()
		_, _ = io.Copy(io.Discard, out)
		_ = lane.Wait()
	}
}
