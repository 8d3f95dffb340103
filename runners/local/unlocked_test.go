package local

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"testing"
)

// A scratch folder that may not be written is nobody else's doing.
func TestWhyTheLockWasNotHad(t *testing.T) {
	if got := unlocked(fmt.Errorf("open lock: %w", fs.ErrPermission)); strings.Contains(got, "another dispatcher") || !strings.Contains(got, "scratch names another") {
		t.Error(got)
	}
	if got := unlocked(fmt.Errorf("lock: %w", context.DeadlineExceeded)); !strings.HasPrefix(got, "another dispatcher") {
		t.Error(got)
	}
}
