package main

import "syscall"

// prSetDumpable is PR_SET_DUMPABLE of prctl(2).
const prSetDumpable = 4

// hide keeps other programs of the same user from reading this process' memory and environment below /proc and from attaching to
// it: trained code runs as that user on the runner local. What is started from here can be read again.
func hide() error {
	if _, _, no := syscall.RawSyscall(syscall.SYS_PRCTL, prSetDumpable, 0, 0); no != 0 {
		return no
	}
	return nil
}
