package courier

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/headway-run/headway/runners/agent/files"
	"github.com/headway-run/headway/runners/bucket/mem"
)

// TestDiskFull stages on a file system of 4 MiB in a mount namespace of its own: a milestone that does not fit is
// refused with the bytes it needs, nothing of it stays, and the next small one goes up.
func TestDiskFull(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "small-disk", t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func smallDisk(dir string) int {
	if err := errors.Join(syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
		syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m")); err != nil {
		fmt.Println("mount:", err)
		return 1
	}
	src, err := os.MkdirTemp("", "milestone")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(src)
	if err := onSmallDisk(dir, src); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func onSmallDisk(dir, src string) error {
	got := make(chan Report, 1)
	k := New(context.Background(), Config{Store: mem.New(), Work: work, Attempt: 1, Dir: dir, Report: func(r Report) { got <- r }})
	defer k.Close()
	big := filepath.Join(src, "big")
	if err := os.WriteFile(big, make([]byte, 8<<20), 0o644); err != nil {
		return err
	}
	_, err := k.Stage(big, "", false, 1)
	full, ok := errors.AsType[*files.DiskFull](err)
	if !ok || full.Need != 8<<20 {
		return fmt.Errorf("a milestone of 8 MiB on 4 MiB: %v", err)
	}
	// The check before the copy is a courtesy; the copy itself must fail as cleanly.
	found, total, err := files.List(big)
	if err != nil {
		return err
	}
	err = files.CopyTree(big, found, dir)
	left, _ := os.ReadDir(dir)
	if !files.Full(err) || len(left) != 0 {
		return fmt.Errorf("a copy of %d bytes: %v, leaving %v", total, err, left)
	}
	small := filepath.Join(src, "small")
	if err := os.WriteFile(small, make([]byte, 1<<20), 0o644); err != nil {
		return err
	}
	if _, err := k.Stage(small, "", false, 2); err != nil {
		return err
	}
	if r := <-got; r.Err != nil {
		return fmt.Errorf("the milestone that fits: %w", r.Err)
	}
	return nil
}
