package preflight

import (
	"fmt"
	"syscall"
)

// room is how many bytes a user without privileges may still write at a path.
func room(path string) (uint64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return uint64(s.Bavail) * uint64(s.Bsize), nil
}
