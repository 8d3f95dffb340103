//go:build linux

package round

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// disk is a small file system of its own, in memory.
type disk struct{ dir string }

// diskSize is enough for the files of all agents of a round, bytes.
const diskSize = 32 << 20

func mount(dir string) (*disk, error) {
	if err := syscall.Mount("chaos", dir, "tmpfs", 0, fmt.Sprintf("size=%d", diskSize)); err != nil {
		return nil, fmt.Errorf("mount a small disk on %s: %w", dir, err)
	}
	return &disk{dir}, nil
}

// MayMount says why a small disk cannot be mounted below dir; nil: it can.
func MayMount(dir string) error {
	probe, err := os.MkdirTemp(dir, "mount-")
	if err != nil {
		return err
	}
	d, err := mount(probe)
	if err == nil {
		err = d.unmount(false)
	}
	return errors.Join(err, os.Remove(probe))
}

func (d *disk) filler() string { return filepath.Join(d.dir, "full") }

// fill writes until nothing fits any more.
func (d *disk) fill() error {
	f, err := os.Create(d.filler())
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for chunk := make([]byte, 1<<16); len(chunk) > 0; {
		_, err := f.Write(chunk)
		switch {
		case errors.Is(err, syscall.ENOSPC):
			chunk = chunk[:len(chunk)/2] // to the last byte
		case err != nil:
			return err
		}
	}
	return nil
}

func (d *disk) free() error { return os.Remove(d.filler()) }

// unmount takes it away; with keep what is on it is copied to where it was.
func (d *disk) unmount(keep bool) error {
	beside := d.dir + ".kept"
	var err error
	if keep {
		err = copyFiles(d.dir, beside)
	}
	if err := errors.Join(err, syscall.Unmount(d.dir, syscall.MNT_DETACH)); err != nil {
		return err
	}
	if keep {
		return errors.Join(os.Remove(d.dir), os.Rename(beside, d.dir))
	}
	return nil
}

// copyFiles copies regular files; what vanishes meanwhile is left out.
func copyFiles(from, to string) error {
	return filepath.WalkDir(from, func(p string, e fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(from, p)
		switch {
		case err != nil || relErr != nil:
			return errors.Join(err, relErr)
		case e.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		case !e.Type().IsRegular():
			return nil
		}
		b, err := os.ReadFile(p)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return errors.Join(err, os.WriteFile(filepath.Join(to, rel), b, 0o644))
	})
}
