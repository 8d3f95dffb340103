//go:build linux

package round

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// AgentName is the name of the worker's own binary.
const AgentName = "headway-agent"

// shim stands where the watcher believes its own binary to be, which it starts for each launch, with the verb agent.
const shim = "#!/bin/sh\nshift\nexec '%s' \"$@\"\n"

// The local platform starts workers as `headway agent`, from the file that the watcher was started from, and has no option
// for another. So that workers are headway-agent, each life of a watcher gets a name of its own for its binary, and that
// name becomes the shim once the watcher runs.

func (r *run) shim() string { return filepath.Join(r.c.Dir, "bin", "shim") }

// writeShim does so, when workers are to be headway-agent.
func (r *run) writeShim() error {
	if r.c.Agent == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(r.shim()), 0o755); err != nil {
		return err
	}
	return os.WriteFile(r.shim(), fmt.Appendf(nil, shim, r.c.Agent), 0o755)
}

// binary is what a life of a watcher is started from.
func (r *run) binary(n, life int) (string, error) {
	if r.c.Agent == "" {
		return r.c.Headway, nil
	}
	file := filepath.Join(r.c.Dir, "bin", fmt.Sprintf("watch-%d.%d", n+1, life), "headway")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", err
	}
	return file, same(r.c.Headway, file)
}

// swap puts the shim in the place of what now runs.
func (r *run) swap(binary string) error {
	if r.c.Agent == "" {
		return nil
	}
	if err := same(r.shim(), binary+".next"); err != nil {
		return err
	}
	return os.Rename(binary+".next", binary)
}

// same makes a second name for a file, or a copy of it where it lies on another disk.
func same(file, name string) (err error) {
	if err := os.Link(file, name); err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	from, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // only read
	to, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

// workers counts the lives of workers by their binaries, as the kernel has told them of those that asked the store for
// something, and is not content with others than this round wants.
func (r *run) workers() {
	r.mu.Lock()
	defer r.mu.Unlock()
	want := filepath.Base(r.c.Headway)
	if r.c.Agent != "" {
		want = filepath.Base(r.c.Agent)
	}
	r.report.Workers = map[string]int{}
	for _, binary := range r.agents {
		r.report.Workers[binary]++
	}
	if r.report.Workers[want] == 0 || len(r.report.Workers) > 1 {
		r.report.Broken = append(r.report.Broken, fmt.Sprintf("workers ran as %v, all were to be %s", r.report.Workers, want))
	}
}
