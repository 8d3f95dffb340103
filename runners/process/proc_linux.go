package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// entry is what /proc/<pid>/stat says of one process.
type entry struct {
	pid     int
	state   byte // R, S, D, Z, T, X, …
	parent  int
	session int
	start   uint64 // clock ticks since boot
}

// Boot returns the identity of this machine's current boot.
func Boot() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("this machine does not say when it booted: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// Uptime is the time since this machine booted: a clock that all its processes share and that nobody sets.
func Uptime() (time.Duration, error) {
	b, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0, fmt.Errorf("uptime: %w", err)
	}
	first, _, _ := strings.Cut(string(b), " ")
	s, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0, fmt.Errorf("uptime: %w", err)
	}
	return time.Duration(s * float64(time.Second)), nil
}

// Identify returns the identity of a process number as it is now.
func Identify(pid int) (Identity, error) {
	boot, err := Boot()
	if err != nil {
		return Identity{}, err
	}
	e, err := stat(pid)
	if err != nil {
		return Identity{}, err
	}
	return Identity{PID: pid, Start: e.start, Boot: boot}, nil
}

// stat reads one process; os.ErrNotExist when there is none of that number.
func stat(pid int) (entry, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, syscall.ESRCH) {
		err = os.ErrNotExist // it ended between open and read
	}
	if err != nil {
		return entry{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return parseStat(b)
}

// parseStat reads a line of /proc/<pid>/stat. The name in the second field is the process's own choice and may hold
// spaces, brackets and newlines: everything is counted from the last closing bracket.
func parseStat(b []byte) (entry, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return entry{}, fmt.Errorf("not a line of /proc/<pid>/stat: %.80q", b)
	}
	pid, errPID := strconv.Atoi(string(bytes.TrimSpace(b[:open])))
	f := bytes.Fields(b[end+1:]) // f[0] is field 3 of the manual page
	if errPID != nil || len(f) < 20 || len(f[0]) != 1 {
		return entry{}, fmt.Errorf("not a line of /proc/<pid>/stat: %.80q", b)
	}
	parent, errParent := strconv.Atoi(string(f[1]))
	session, errSession := strconv.Atoi(string(f[3]))
	start, errStart := strconv.ParseUint(string(f[19]), 10, 64)
	if errParent != nil || errSession != nil || errStart != nil {
		return entry{}, fmt.Errorf("not a line of /proc/<pid>/stat: %.80q", b)
	}
	return entry{pid: pid, state: f[0][0], parent: parent, session: session, start: start}, nil
}

// processes lists what runs now. Those that end while it reads are left out.
func processes() ([]entry, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer func() { _ = d.Close() }()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var out []entry
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		e, err := stat(pid)
		switch {
		case err == nil:
			out = append(out, e)
		case !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission):
			return nil, err
		}
	}
	return out, nil
}

// carries reports whether a process was started with this entry in its environment. One whose environment this
// user may not read is not ours.
func carries(pid int, mark string) bool {
	if mark == "" {
		return false
	}
	return started(pid, func(e string) bool { return e == mark })
}

// mentions reports whether a process was started with a variable of that prefix that names dir or a path in it.
func mentions(pid int, prefix, dir string) bool {
	return started(pid, func(e string) bool {
		_, v, ok := strings.Cut(e, "=")
		return ok && strings.HasPrefix(e, prefix) && (v == dir || strings.HasPrefix(v, dir+"/"))
	})
}

// started reports whether a process was started with an environment that has such an entry.
func started(pid int, such func(entry string) bool) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	for e := range bytes.SplitSeq(env, []byte{0}) {
		if such(string(e)) {
			return true
		}
	}
	return false
}
