package ring

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// localKeep writes the record of a load into <dir>/<ring>/load-<generation>.json, durable when it returns: a temporary
// file, its fsync, the rename, and the fsync of the folder. It is the first of the three writes before a command leaves.
// sync is (*os.File).Sync, but in a test of that order.
func localKeep(dir string, i *Intent, sync func(*os.File) error) (err error) {
	folder := filepath.Join(dir, i.Ring)
	if err := makeFolder(folder, sync); err != nil {
		return fmt.Errorf("the local record of generation %d: %w", i.Generation, err)
	}
	body, err := json.MarshalIndent(i, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(folder, ".load-*")
	if err != nil {
		return fmt.Errorf("the local record of generation %d: %w", i.Generation, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("the local record of generation %d: %w", i.Generation, err), f.Close(), os.Remove(f.Name()))
		}
	}()
	if _, err := f.Write(body); err != nil {
		return err
	}
	if err := sync(f); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), filepath.Join(folder, localName(i.Generation))); err != nil {
		return err
	}
	if err := syncFolder(folder, sync); err != nil {
		return err
	}
	return f.Close()
}

func localName(generation uint64) string { return fmt.Sprintf("load-%d.json", generation) }

// makeFolder makes a folder and those above it. The name of a new one is durable only when the folder that it lies in was synced:
// else a power cut takes the first record of a ring with its folder.
func makeFolder(folder string, sync func(*os.File) error) error {
	var missing []string // the innermost first
	for at := filepath.Clean(folder); ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at) {
			break
		}
		missing = append(missing, at)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	for _, made := range missing {
		if err := syncFolder(filepath.Dir(made), sync); err != nil {
			return err
		}
	}
	return nil
}

func syncFolder(folder string, sync func(*os.File) error) error {
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(sync(d), d.Close())
}

// localLoads reads the local records of a ring: generations that were chosen here, whether or not the store has heard of
// them. A file that cannot be read is an error: its generation is in its name, but its nodes are not.
func localLoads(dir, ring string) ([]Intent, error) {
	folder := filepath.Join(dir, ring)
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the local records: %w", err)
	}
	var out []Intent
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "load-") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("the local records: %w", err)
		}
		i, err := DecodeIntent(b)
		if err == nil && (i.Ring != ring || e.Name() != localName(i.Generation)) {
			err = fmt.Errorf("it is generation %d of ring %q", i.Generation, clip(i.Ring))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w; move it away once you know what it was", filepath.Join(folder, e.Name()), err)
		}
		out = append(out, i)
	}
	return out, nil
}
