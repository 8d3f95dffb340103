package guard

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// Main is the guardian: args are those behind the guard word, "--" and then the program. It uses file descriptors 3
// (orders, read) and 4 (reports, written) and returns the exit code of the process.
func Main(args []string) int {
	if i := slices.Index(args, "--"); i < 0 || i+1 >= len(args) {
		return 2
	} else {
		args = args[i+1:]
	}
	// The parent-death signal is tied to the thread that started the program, so this one must live as long.
	runtime.LockOSThread()
	adopt()
	// Caught and dropped, not ignored: the program must not inherit ignored signals.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	orders, reports := os.NewFile(3, "orders"), os.NewFile(4, "reports")
	syscall.CloseOnExec(3)
	syscall.CloseOnExec(4)

	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = attributes()
	if err := cmd.Start(); err != nil {
		say(reports, report{Ended: &Ended{Code: 127, Failed: err.Error()}})
		return 127
	}
	say(reports, report{PID: cmd.Process.Pid})
	go obey(orders, cmd.Process.Pid)
	ended := reap(cmd.Process.Pid)
	sweep(cmd.Process.Pid)
	say(reports, report{Ended: &ended})
	return 0
}

func say(w io.Writer, r report) {
	b, _ := json.Marshal(r)         // plain data
	_, _ = w.Write(append(b, '\n')) // the agent is gone: obey sees the end of its orders
}

// obey carries out orders until there are none: the agent has ended, and so must everything here.
func obey(r io.Reader, pid int) {
	in := bufio.NewScanner(r)
	for in.Scan() {
		var o order
		if json.Unmarshal(in.Bytes(), &o) != nil {
			continue
		}
		if o.Signal == syscall.SIGKILL {
			killTree(pid)
			continue
		}
		_ = syscall.Kill(-pid, o.Signal) // gone already: reap says so
	}
	for { // reap ends the process as soon as the last one is gone
		killTree(pid)
		time.Sleep(pause)
	}
}

// pause lies between two looks at what is still alive.
const pause = 2 * time.Millisecond

// reap waits for the program and for whatever was adopted meanwhile.
func reap(pid int) Ended {
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return Ended{Code: 128, Failed: "wait for the program: " + err.Error()}
		case got == pid && status.Signaled():
			return Ended{Code: 128 + int(status.Signal()), Signal: status.Signal()}
		case got == pid && status.Exited():
			return Ended{Code: status.ExitStatus()}
		}
	}
}

// sweep kills what the program left behind, until no child is left.
func sweep(pid int) {
	for {
		killTree(pid)
		switch got, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); {
		case err == syscall.ECHILD:
			return
		case got == 0 || err != nil:
			time.Sleep(pause)
		}
	}
}
