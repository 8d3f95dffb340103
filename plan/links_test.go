package plan

import (
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// watchedTree notes what is opened.
type watchedTree struct {
	Tree
	mu     sync.Mutex
	opened map[string]bool
}

func (w *watchedTree) note(p string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opened[p] = true
}

func (w *watchedTree) Entries(dir string) ([]Entry, error) {
	w.note(dir)
	return w.Tree.Entries(dir)
}

func (w *watchedTree) Read(p string, max int64) ([]byte, error) {
	w.note(p)
	return w.Tree.Read(p, max)
}

// Links in the plan root are refused by name, wherever they lead, and neither they nor what is behind them is ever opened.
func TestLinksInThePlanRootAreNeverOpened(t *testing.T) {
	link := func(to string) MemFile { return MemFile{Kind: KindLink, Data: []byte(to)} }
	tree := &watchedTree{opened: map[string]bool{}, Tree: MakeMemTree(map[string]MemFile{
		ConfigFile:            file(refuseConfig),
		"plans/ok.yaml":       file(goodFile),
		"plans/absolute.yaml": link("/etc/passwd"),
		"plans/relative.yaml": link("../../outside.yaml"),
		"plans/inside.yaml":   link("ok.yaml"),
		"plans/chain.yaml":    link("link.yaml"),
		"plans/link.yaml":     link("chain.yaml"),
		"plans/folder":        link("../other"),
		"plans/root":          link("/"),
		"other/secret.yaml":   file("jobs: {secret: {run: x}}"),
	})}
	p, problems := Load(tree)
	var refused []string
	for _, q := range problems {
		if q.Code == "SymlinkInPlanRoot" && q.Severity == Error {
			refused = append(refused, strings.TrimPrefix(q.Pos.File, "plans/"))
		}
	}
	want := []string{"absolute.yaml", "chain.yaml", "folder", "inside.yaml", "link.yaml", "relative.yaml", "root"}
	if diff := cmp.Diff(want, refused); diff != "" {
		t.Error(diff)
	}
	if _, ok := p.Job("good"); !ok || len(p.Jobs) != 1 {
		t.Errorf("%d jobs", len(p.Jobs))
	}
	for at := range tree.opened {
		if at != "" && at != "." && at != "plans" && at != ConfigFile && at != "plans/ok.yaml" {
			t.Errorf("opened: %s", at)
		}
	}
}
