//go:build !linux

package dir

import "syscall"

// mtime is the time of a file's last change, nanoseconds since 1970.
func mtime(st *syscall.Stat_t) int64 { return st.Mtimespec.Nano() }
