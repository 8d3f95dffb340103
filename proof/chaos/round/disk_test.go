//go:build linux && chaos

package round

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A full disk takes no byte more, a free one does, and what is on it can be kept. Where nothing may be mounted, the reason
// is said.
func TestDisk(t *testing.T) {
	if err := MayMount(t.TempDir()); err != nil {
		if !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.EACCES) {
			t.Errorf("no disk can be mounted: %v", err)
		}
		return
	}
	dir := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d, err := mount(dir)
	if err != nil {
		t.Fatal(err)
	}
	write := func() error { return os.WriteFile(filepath.Join(dir, "file"), make([]byte, 10_000), 0o600) }
	if err := d.fill(); err != nil {
		t.Error(err)
	}
	if err := write(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a write to a full disk: %v", err)
	}
	if err := errors.Join(d.free(), write()); err != nil {
		t.Errorf("a write to a free disk: %v", err)
	}
	if err := d.unmount(true); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || len(b) != 10_000 {
		t.Errorf("kept %d bytes, %v", len(b), err)
	}
}
