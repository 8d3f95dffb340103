package local

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A worker keeps a private copy of each milestone, and a mark for its result, for as long as they are on their way, and removes
// its whole folder when it ends by itself. So what is found there of one that is gone was cut off by a kill. The names are the
// worker's own, held against them in a test; its folder has a mark of its own in front.
const copiesGlob = "headway-run-*/milestones/*"

// maxLost bounds what one answer names.
const maxLost = 8

// copyName matches a milestone's copy; others have no say, since the job's program may write there too.
func copyName() *regexp.Regexp { return regexp.MustCompile(`^milestone-(\d{1,12})-step-(\d{1,18})$`) }

// lost says what a launch that is gone had on its way: an answer never calls it closed without a word about that.
func (r *Runner) lost(dir string) string {
	if filepath.Dir(dir) != r.runDir() {
		return "" // a handle of elsewhere: nothing there is read
	}
	left, err := filepath.Glob(filepath.Join(dir, copiesGlob))
	if err != nil {
		return "" // cannot be: the pattern is ours, and unreadable folders are no error
	}
	var names []string
	form := copyName()
	for _, path := range left {
		if m := form.FindStringSubmatch(filepath.Base(path)); m != nil {
			names = append(names, fmt.Sprintf("milestone %s at step %s", m[1], m[2]))
		} else if info, err := os.Lstat(path); err == nil && filepath.Base(path) == "result" && info.Mode().IsRegular() {
			names = append(names, "the result")
		}
	}
	if slices.Sort(names); len(names) == 0 {
		return ""
	}
	more := ""
	if n := len(names) - maxLost; n > 0 {
		names, more = names[:maxLost], fmt.Sprintf(" and %d more", n)
	}
	return "; killed with this on its way, which is lost unless its last byte had arrived: " + strings.Join(names, ", ") + more
}
