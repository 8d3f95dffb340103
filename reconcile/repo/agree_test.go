package repo

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"pgregory.net/rapid"

	"github.com/headway-run/headway/plan"
)

// This is what holds the reader of plans and the packer together: a code folder that `headway validate` accepts is one
// that a launch can pack, and the other way round. Only sizes that a tree does not give, and files that change
// meanwhile, are left to the packer alone.

const agreeConfig = "headway: v1\nplatforms: {here: {runner: local}}\ndefaults: {on: [here]}\n"

// validates says what the reader of plans has against the code folder c of a tree; "" when nothing.
func validates(t plan.Tree) string {
	_, ps := plan.Load(t)
	for _, p := range ps {
		if p.Severity == plan.Error {
			return p.String()
		}
	}
	return ""
}

// agree fails the test when one of the two refuses what the other accepts.
func agree(ctx context.Context, t rapid.TB, tree plan.Tree, name string, refused bool) {
	t.Helper()
	says := validates(tree)
	_, err := Pack(ctx, tree, "c")
	if (says != "") != refused || (err != nil) != refused {
		t.Errorf("%s: plan says %q, Pack says %v; want refused: %v", name, says, err, refused)
	}
}

// withPlan adds to a code folder the plan that names it.
func withPlan(content map[string]file) map[string]file {
	m := maps.Clone(content)
	m[plan.ConfigFile] = file{body: agreeConfig}
	m["plans/p.yaml"] = file{body: "jobs:\n  a: {run: x, code: ../c}\n"}
	return m
}

// inMemory is the same tree without a repository.
func inMemory(content map[string]file) *plan.MemTree {
	m := map[string]plan.MemFile{}
	for p, f := range content {
		m[p] = plan.MemFile{Data: []byte(f.body), Kind: f.kind, Exec: f.exec}
		if f.kind == plan.KindSubmodule {
			m[p] = plan.MemFile{Kind: f.kind, Hash: f.body}
		}
	}
	return plan.MakeMemTree(m)
}

// hostile are code folders by what is odd about them; the ones that begin with "good" are accepted.
func hostile() map[string]map[string]file {
	link, module := file{kind: plan.KindLink, body: "x"}, file{kind: plan.KindSubmodule, body: strings.Repeat("ab", 20)}
	pointer := lfsPointer + "v1\noid sha256:00\nsize 12\n"
	trees := map[string]map[string]file{
		"good: plain":             files("c/x", "1", "c/d/x", "2", "c/lib.py", "", "c/lib/a", ""),
		"good: near misses":       files("c/.github/x", "1", "c/..x", "", "c/x..", "", "c/git~2", "", "c/.gitignore", "", "c/ü ä", "", "c/\u00a0", ""),
		"good: longest name":      files("c/"+strings.Repeat("n", 255), ""),
		"good: nearly a pointer":  files("c/x", pointer+strings.Repeat("x", 1024), "c/y", "version https://git-lfs"),
		"good: program":           {"c/x": {exec: true, body: "1"}},
		"good: equal elsewhere":   files("c/a/x", "", "c/b/X", ""),
		"link":                    {"c/x": {body: "1"}, "c/l": link},
		"link deep down":          {"c/d/e/l": link},
		"the folder is a link":    {"c": link},
		"submodule":               {"c/x": {body: "1"}, "c/d/m": module},
		"the folder is submodule": {"c": module},
		"the folder is a file":    files("c", "1"),
		"no such folder":          files("d/x", "1"),
		"pointer":                 files("c/d/model.bin", pointer),
		"case":                    files("c/Readme", "1", "c/readme", "2"),
		"case of folders":         files("c/A/x", "1", "c/a/y", "2"),
		"case, not ASCII":         files("c/Ä", "1", "c/ä", "2"),
		"file and folder":         files("c/lib", "1", "c/LIB/x", "2"),
		"longer than 255 bytes":   files("c/"+strings.Repeat("n", 256), ""),
	}
	for _, name := range []string{".", "..", ".git", ".GIT", ".git.", ".git ", "git~1", "GIT~1", "a\\b", "a\nb", "a\tb", "\x1b[2J", "\x7f", "\xff", "a\u200db", "\ufeff"} {
		trees[fmt.Sprintf("named %q", name)] = files("c/x", "1", "c/"+name, "2")
		trees[fmt.Sprintf("folder named %q", name)] = files("c/x", "1", "c/"+name+"/y", "2")
	}
	return trees
}

func TestPlanAndPackAgree(t *testing.T) {
	o := newOrigin(t)
	r := watch(t, Options{Remote: o.dir})
	for name, content := range hostile() {
		content = withPlan(content)
		refused := !strings.HasPrefix(name, "good")
		tr, err := r.Tree(o.commitTree(o.tree(content), name))
		if err != nil {
			t.Fatal(err)
		}
		agree(t.Context(), t, tr, name+", committed", refused)
		agree(t.Context(), t, inMemory(content), name+", in memory", refused)
	}
}

// TestPlanAndPackAgreeOnOddObjects: trees that no program of Git's writes.
func TestPlanAndPackAgreeOnOddObjects(t *testing.T) {
	o := newOrigin(t)
	r := watch(t, Options{Remote: o.dir})
	blob := o.object(plumbing.BlobObject, []byte("1")).String()
	empty := o.rawTree(nil).String()
	x := plan.Entry{Name: "x", Hash: blob}
	for name, list := range map[string][]plan.Entry{
		"no entries":         nil,
		"only folders":       {{Name: "d", Kind: plan.KindDir, Hash: empty}, {Name: "e", Kind: plan.KindDir, Hash: empty}},
		"one name twice":     {x, x},
		"a folder of a file": {x, {Name: "x", Kind: plan.KindDir, Hash: o.rawTree([]plan.Entry{x}).String()}},
		"a missing object":   {{Name: "x", Hash: strings.Repeat("1", 40)}},
		"a missing folder":   {x, {Name: "d", Kind: plan.KindDir, Hash: strings.Repeat("1", 40)}},
	} {
		root := o.tree(withPlan(files()))
		tr, err := r.Tree(o.commitTree(root, "base"))
		if err != nil {
			t.Fatal(err)
		}
		top, err := tr.Entries("")
		if err != nil {
			t.Fatal(err)
		}
		top = append([]plan.Entry{{Name: "c", Kind: plan.KindDir, Hash: o.rawTree(list).String()}}, top...)
		if tr, err = r.Tree(o.commitTree(o.rawTree(top), name)); err != nil {
			t.Fatal(err)
		}
		agree(t.Context(), t, tr, name, true)
	}
}

func TestPlanAndPackAgreeOnFolders(t *testing.T) {
	for name, content := range hostile() {
		dir := t.TempDir()
		for p, f := range withPlan(content) {
			if f.kind != plan.KindFile || path.Clean(p) != p || strings.Contains(strings.ToLower(p), "/.git") || len(path.Base(p)) > 255 {
				name = "" // no disk holds it, or Git leaves it out
				break
			}
			write(t, dir, p, f.body)
		}
		if name != "" {
			agree(t.Context(), t, open(t, dir), name+", on disk", !strings.HasPrefix(name, "good"))
		}
	}
}

// TestPlanAndPackAgreeAtRandom makes folders of the names and kinds that matter.
func TestPlanAndPackAgreeAtRandom(t *testing.T) {
	names := rapid.SampledFrom([]string{"a", "A", "b", "B", "ä", "Ä", ".git", ".gitx", "x\ny", "x", "d1", "d2"})
	rapid.Check(t, func(rt *rapid.T) {
		content := files("plans/x", "")
		for range rapid.IntRange(0, 6).Draw(rt, "files") {
			// Folders and files have names apart, so that no path is a folder of another: no map of files can say so.
			p := "c/" + strings.Repeat(rapid.SampledFrom([]string{"p/", "P/", "q/"}).Draw(rt, "folder"), rapid.IntRange(0, 2).Draw(rt, "depth")) + names.Draw(rt, "name")
			kind := rapid.SampledFrom([]plan.EntryKind{plan.KindFile, plan.KindFile, plan.KindFile, plan.KindFile, plan.KindLink, plan.KindSubmodule}).Draw(rt, "kind")
			content[p] = file{kind: kind, body: strings.Repeat("ab", 20)}
		}
		tree := inMemory(withPlan(content))
		_, err := Pack(t.Context(), tree, "c")
		agree(t.Context(), rt, tree, fmt.Sprint(slices.Sorted(maps.Keys(content))), err != nil)
	})
}

func TestPlanAndPackAgreeOnBounds(t *testing.T) {
	if MaxBundleFiles != plan.MaxCodeFiles || MaxBundle != plan.MaxCodeBytes {
		t.Errorf("a plan accepts %d files and %d bytes, a bundle %d and %d", plan.MaxCodeFiles, plan.MaxCodeBytes, MaxBundleFiles, MaxBundle)
	}
	crowd := map[string]file{}
	for i := range MaxBundleFiles + 1 {
		crowd[fmt.Sprintf("c/%d/%d", i/1000, i)] = file{}
	}
	agree(t.Context(), t, inMemory(withPlan(crowd)), "too many files", true)
	agree(t.Context(), t, claims{inMemory(withPlan(files("c/x", "")))}, "too many bytes", true)
}

// claims is a tree whose file c/x says that it is larger than may be.
type claims struct{ *plan.MemTree }

func (c claims) Entries(dir string) ([]plan.Entry, error) {
	es, err := c.MemTree.Entries(dir)
	if dir == "c" {
		es[0].Size = MaxBundle + 1
	}
	return es, err
}

func (c claims) Read(p string, max int64) ([]byte, error) {
	if p == "c/x" && max < MaxBundle+1 {
		return nil, &Error{Class: TooLarge, Err: plan.ErrTooLarge}
	}
	return c.MemTree.Read(p, max)
}
