package agent

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-run/headway/runners/agent/courier"
	"github.com/headway-run/headway/runners/agent/files"
)

// watcher is watch mode: a program that cannot be changed proves its progress by finished checkpoint files. A match
// of the glob (file or folder) that looks the same in two looks and was not there before is a milestone. Looking is
// on a timer; renewing is not: without a new finished file nothing is written.
type watcher struct {
	d     *desk
	k     *courier.Courier
	cwd   string // working folder of the program: the glob is relative to it
	glob  string
	every time.Duration

	kept   map[string]look // taken, or there before the program began
	before map[string]look // as of the last look
}

// look is what a candidate looked like.
type look struct {
	size  int64
	files int
	mtime time.Time
}

func newWatcher(d *desk, k *courier.Courier, cwd, glob string, intervalS float64) *watcher {
	every := time.Duration(intervalS / 20 * float64(time.Second))
	w := &watcher{d: d, k: k, cwd: cwd, glob: glob, every: min(max(every, 200*time.Millisecond), 5*time.Second)}
	w.kept = w.looks() // what was restored is no progress
	return w
}

// run looks until ctx ends.
func (w *watcher) run(ctx context.Context) {
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.look(ctx)
		}
	}
}

// looks takes in everything that matches now. A pattern that leads out of the working folder matches nothing.
func (w *watcher) looks() map[string]look {
	found := map[string]look{}
	if !filepath.IsLocal(w.glob) {
		return found
	}
	matches, err := filepath.Glob(filepath.Join(w.cwd, w.glob))
	if err != nil {
		return found
	}
	for _, m := range matches[:min(len(matches), 10_000)] {
		list, total, err := files.List(m)
		if err != nil || len(list) == 0 {
			continue // being written, or no regular file
		}
		l := look{size: total, files: len(list)}
		for _, f := range list {
			p := m
			if st, err := os.Lstat(m); err == nil && st.IsDir() {
				p = filepath.Join(m, f.Path)
			}
			if st, err := os.Lstat(p); err == nil && st.ModTime().After(l.mtime) {
				l.mtime = st.ModTime()
			}
		}
		found[m] = l
	}
	return found
}

// look takes the newest finished candidate that is new, and passes over older ones.
func (w *watcher) look(ctx context.Context) {
	now := w.looks()
	var ready []string
	for m, l := range now {
		if w.kept[m] != l && w.before[m] == l {
			ready = append(ready, m)
		}
	}
	w.before = now
	if len(ready) == 0 {
		return
	}
	slices.SortFunc(ready, func(a, b string) int { return now[a].mtime.Compare(now[b].mtime) })
	for _, m := range ready {
		w.kept[m] = now[m]
	}
	if w.take(ready[len(ready)-1]) {
		_, _, _ = w.d.drain(ctx, false) // what became of it is among the events
	}
}

// final takes the newest checkpoint of a program that has exited by itself: nothing is being written any more.
func (w *watcher) final() {
	newest, at := "", time.Time{}
	for m, l := range w.looks() {
		if w.kept[m] != l && l.mtime.After(at) {
			newest, at = m, l.mtime
		}
	}
	if newest != "" {
		w.take(newest)
	}
}

// take makes a milestone of one checkpoint.
func (w *watcher) take(match string) bool {
	step := max(stepOf(match), w.d.at())
	rel, err := filepath.Rel(w.cwd, match)
	if err != nil {
		return false
	}
	prefix := path.Dir(filepath.ToSlash(rel)) // the next attempt finds it where this one left it
	if st, err := os.Lstat(match); err == nil && st.IsDir() {
		prefix = filepath.ToSlash(rel)
	}
	if prefix == "." {
		prefix = ""
	}
	w.d.watched(step)
	if _, err := w.k.Stage(match, prefix, false, step); err != nil {
		w.d.refusedMilestone(step, err)
		return false
	}
	w.d.stepped(step)
	w.d.took(step)
	return true
}

// stepOf reads the last number in a checkpoint's name, 0 when there is none: ckpt-000400.pt is step 400.
func stepOf(name string) int64 {
	base := strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))
	end := strings.LastIndexAny(base, "0123456789") + 1
	start := end
	for start > 0 && base[start-1] >= '0' && base[start-1] <= '9' {
		start--
	}
	n, err := strconv.ParseInt(base[start:end], 10, 64)
	if err != nil || n > maxStep {
		return 0
	}
	return n
}
