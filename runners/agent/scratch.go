package agent

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/headway-run/headway/runners/record"
)

// scratch is the folder of one run. A file locked by the kernel stands beside it for as long as the agent lives, so
// that what a killed agent left behind is known to be nobody's and goes at the next start.
type scratch struct {
	dir  string
	lock *os.File // nil: the folder has no leftovers to know
}

const scratchPrefix = "headway-run-"

// newScratch makes the folder below base and removes the leftovers of dead runs there.
func newScratch(base string) (*scratch, error) {
	if base == "" {
		base = os.TempDir()
	}
	base, err := filepath.Abs(base)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(base, 0o755); err != nil {
		return nil, fmt.Errorf("make the scratch folder: %w", err)
	}
	sweepScratch(base)
	name := filepath.Join(base, scratchPrefix+record.Nonce()[:12])
	lock, err := os.OpenFile(name+".lock", os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make the scratch folder: %w", err)
	}
	s := &scratch{dir: name, lock: lock}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		s.remove()
		return nil, fmt.Errorf("lock the scratch folder: %w", err)
	}
	if err := s.lay(); err != nil {
		s.remove()
		return nil, err
	}
	return s, nil
}

// ownScratch makes the folder of a run that is a part of a bigger process: base is its caller's, who sees to leftovers.
func ownScratch(base string) (*scratch, error) {
	s := &scratch{dir: filepath.Join(base, scratchPrefix+record.Nonce()[:12])}
	if err := s.lay(); err != nil {
		s.remove()
		return nil, err
	}
	return s, nil
}

// lay makes the folders that every run needs.
func (s *scratch) lay() error {
	for _, dir := range []string{s.dir, s.at("code"), s.at("result"), s.at("milestones")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return fmt.Errorf("make the scratch folder: %w", err)
		}
	}
	return nil
}

func (s *scratch) at(sub string) string { return filepath.Join(s.dir, sub) }

// hide makes the paths below the folder relative to it in a text.
func (s *scratch) hide(text string) string {
	return strings.ReplaceAll(text, s.dir+string(filepath.Separator), "")
}

func (s *scratch) remove() {
	_ = os.RemoveAll(s.dir) // the program's own files may refuse; the next sweep tries again
	if s.lock == nil {
		return
	}
	_ = os.Remove(s.lock.Name())
	_ = s.lock.Close()
}

// sweepScratch removes what dead runs left below base. Best effort: it never touches what it cannot lock.
func sweepScratch(base string) {
	locks, err := filepath.Glob(filepath.Join(base, scratchPrefix+"*.lock"))
	if err != nil {
		return
	}
	for _, name := range locks {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(strings.TrimSuffix(name, ".lock"))
			_ = os.Remove(name)
		}
		_ = f.Close()
	}
}

// layOut copies an embedded folder to dir.
func layOut(from fs.FS, dir string) error {
	if from == nil {
		return nil
	}
	return fs.WalkDir(from, ".", func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dir, filepath.FromSlash(p))
		if e.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		b, err := fs.ReadFile(from, p)
		if err != nil {
			return err
		}
		return os.WriteFile(to, b, 0o644)
	})
}
