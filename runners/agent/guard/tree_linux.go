package guard

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

const prSetChildSubreaper = 36 // linux/prctl.h

// adopt makes this process the parent of every orphan among its descendants.
func adopt() {
	// Fails only on kernels older than 3.4; then what moved to another group escapes, and sweep still ends.
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0)
}

func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

const setPipeSize = 1031 // F_SETPIPE_SZ, linux/fcntl.h

// widen makes a pipe hold n bytes, where it may.
func widen(c syscall.Conn, n int) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { // a pipe that stays as it is carries the same
			_, _, _ = syscall.Syscall(syscall.SYS_FCNTL, fd, setPipeSize, uintptr(n))
		})
	}
}

// killTree sends SIGKILL to the program's group and to every descendant of this process.
func killTree(pid int) {
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	for _, p := range descendants(os.Getpid(), parents()) {
		_ = syscall.Kill(p, syscall.SIGKILL)
	}
}

// parents reads the parent of every visible process; empty without /proc.
func parents() map[int]int {
	all, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	parent := make(map[int]int, len(all))
	for _, e := range all {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // ended meanwhile
		}
		// "pid (name) state ppid …": the name may hold anything, so count from its last bracket.
		fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
		if len(fields) < 2 {
			continue
		}
		if ppid, err := strconv.Atoi(string(fields[1])); err == nil {
			parent[pid] = ppid
		}
	}
	return parent
}

// descendants lists the processes below root. A table read while processes come and go may hold a cycle; every
// process is looked at once.
func descendants(root int, parent map[int]int) []int {
	children := map[int][]int{}
	for pid, ppid := range parent {
		children[ppid] = append(children[ppid], pid)
	}
	seen := map[int]bool{root: true}
	var out []int
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		for _, c := range children[queue[0]] {
			if !seen[c] {
				seen[c] = true
				out, queue = append(out, c), append(queue, c)
			}
		}
	}
	return out
}
