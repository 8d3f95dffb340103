package plan

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// blobs are contents of a plan file: jobs that stand alone, and all that may lean on others or be wrong. (Table of values.)
var blobs = []string{
	"jobs:\n  %[1]s: {run: a, seed: 1, params: {lr: 0.1}}\n",
	"jobs:\n  %[1]s: {run: a, seed: 2, code: ../code}\n",
	"jobs:\n  %[1]s: {run: b, seed: 3, limits: {wall: 3h}, labels: {x: y}}\n  %[1]s-b: {run: c}\n",
	"jobs:\n  %[1]s: {like: j0, seed: 4, params: {w: 2}}\n",
	"jobs:\n  %[1]s: {run: c, needs: [j1]}\n",
	"jobs:\n  %[1]s: {run: 'x ${seed}', matrix: {seed: [1, 2]}}\n",
	"jobs:\n  j0: {run: twice}\n",
	"jobs:\n  %[1]s: {run: a, seed: 1.5}\n",
	"jobs:\n  %[1]s: {run: 'a | b'}\n",
	"jobs:\n  %[1]s: {run: c, needs: [%[1]s-b]}\n  %[1]s-b: {run: d, on: [elsewhere]}\n",
	"\ufeffjobs:\n  %[1]s: {run: bom}\n",
	"jobs:\n  %[1]s: {run: a, code: ../none}\n",
	"jobs:\n  %[1]s: {run: a, seed: 1, gpu: {any: [RTX_4090]}, on: [gpu]}\n",
}

// TestCacheIsLoad: whatever was read before, a plan comes out as if it were read for the first time.
func TestCacheIsLoad(t *testing.T) {
	reused, steps := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		files := map[string]string{"headway.yaml": cacheConfig, "code/a": "1", "plans/p0.yaml": fmt.Sprintf(blobs[0], "j0")}
		var c Cache
		calm := rapid.Bool().Draw(rt, "calm") // most real commits hold nothing but jobs that stand alone
		for range rapid.IntRange(2, 8).Draw(rt, "commits") {
			for range rapid.IntRange(0, 3).Draw(rt, "edits") {
				n := rapid.IntRange(0, 5).Draw(rt, "file")
				what := rapid.IntRange(-9, len(blobs)-1).Draw(rt, "what")
				if calm && what >= 2 {
					what %= 3
				}
				switch at := fmt.Sprintf("plans/p%d.yaml", n); what {
				case -9: // a file and, with it, all of its folder moves
					for _, f := range []string{at, "plans/team/p" + fmt.Sprint(n) + ".yaml"} {
						if b, ok := files[f]; ok {
							delete(files, f)
							files["plans/team/"+rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "to")+"/"+f[len(f)-7:]] = b
						}
					}
				case -8: // the same in two folders
					files["plans/team/x/"+at[6:]] = fmt.Sprintf(blobs[0], fmt.Sprintf("j%d", n))
				case -7:
					maps.DeleteFunc(files, func(f, _ string) bool { return strings.HasPrefix(f, "plans/team/") })
				case -6:
					files["headway.yaml"] = cacheConfig + "plans: [plans/*.yaml, 'plans/team/**/*.yaml']\n"
				case -5:
					files["notes/README"] = fmt.Sprint(n)
				case -1:
					delete(files, fmt.Sprintf("plans/p%d.yaml", n))
				case -2:
					files["code/a"] = fmt.Sprint(n)
				case -3:
					files["code/plain"] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
				case -4:
					delete(files, "code/plain")
					files["headway.yaml"] = cacheConfig + fmt.Sprintf("  limits: {retries: %d}\n", n)
				default:
					files[fmt.Sprintf("plans/p%d.yaml", n)] = fmt.Sprintf(blobs[what], fmt.Sprintf("j%d", n))
				}
			}
			tree := NewMemTree(files)
			want, _ := Load(tree)
			before := len(c.files)
			counts := &countedTree{Tree: tree}
			got, problems := c.Load(counts)
			reused += min(before, len(c.files))
			if before > 0 && counts.read("headway.yaml") == 0 {
				steps++
			}
			if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Plan{})); d != "" {
				rt.Fatalf("(-load +cache):\n%s\n%q", d, files)
			}
			if d := cmp.Diff(want.Problems, problems); d != "" {
				rt.Fatalf("problems (-load +cache):\n%s", d)
			}
			for i := range want.Jobs {
				if d := cmp.Diff(fmt.Sprintf("%s", want.canonical(i)), fmt.Sprintf("%s", got.canonical(i))); d != "" {
					rt.Fatalf("canonical (-load +cache):\n%s", d)
				}
			}
		}
	})
	if reused == 0 || steps == 0 {
		t.Errorf("%d files were taken again, %d plans were a step from the one before", reused, steps)
	}
}

const cacheConfig = `headway: v1
platforms:
  here: {runner: local}
  gpu: {runner: vast, gpu: [RTX_4090]}
defaults:
  on: [here]
`

// counted counts what is read of a tree.
type countedTree struct {
	Tree
	reads int
	files map[string]int
}

func (c *countedTree) read(path string) int { return c.files[path] }

func (c *countedTree) Read(path string, max int64) ([]byte, error) {
	if c.files == nil {
		c.files = map[string]int{}
	}
	c.reads++
	c.files[path]++
	return c.Tree.Read(path, max)
}

// TestCacheReadsWhatChanged: of many files the one that changed is read, and headway.yaml; no code folder is walked again.
func TestCacheReadsWhatChanged(t *testing.T) {
	files := map[string]string{"headway.yaml": cacheConfig, "code/a": "1"}
	for i := range 300 {
		files[fmt.Sprintf("plans/p%d.yaml", i)] = fmt.Sprintf("jobs:\n  j%[1]d: {run: a, seed: %[1]d, code: ../code}\n", i)
	}
	var c Cache
	tree := &countedTree{Tree: NewMemTree(files)}
	if _, ps := c.Load(tree); len(ps) > 0 || tree.reads != 302 {
		t.Fatalf("%d reads at first, %d problems", tree.reads, len(ps))
	}
	files["plans/p7.yaml"] = fmt.Sprintf(blobs[0], "j7x")
	tree = &countedTree{Tree: NewMemTree(files)}
	p, _ := c.Load(tree)
	if _, ok := p.Job("j7x"); !ok || tree.reads != 1 {
		t.Errorf("%d reads, want the file that changed", tree.reads)
	}
	files["README.md"], files["other/x"] = "more", "1"
	tree = &countedTree{Tree: NewMemTree(files)}
	if same, _ := c.Load(tree); tree.reads != 0 || len(same.Jobs) != 300 {
		t.Errorf("%d reads for a commit that touches nothing of the plan", tree.reads)
	}
	files["code/a"] = "2"
	tree = &countedTree{Tree: NewMemTree(files)}
	was, _ := p.Job("j1")
	now, _ := c.Load(tree)
	if j, _ := now.Job("j1"); j.Work == was.Work || tree.reads != 2 {
		t.Errorf("%d reads, want headway.yaml and the code's one file; the work is %s, was %s", tree.reads, j.Work, was.Work)
	}
}
