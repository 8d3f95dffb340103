//go:build unix && !linux

package guard

import "syscall"

func adopt() {}

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// killTree sends SIGKILL to the program's group; what moved to another group escapes.
func killTree(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// widen does nothing: only Linux lets a pipe be made larger.
func widen(syscall.Conn, int) {}
