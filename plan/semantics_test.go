package plan

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// unopened fails when one file is read.
type unopened struct {
	*MemTree
	t    *testing.T
	path string
}

func (u unopened) Read(p string, max int64) ([]byte, error) {
	if p == u.path {
		u.t.Errorf("%s was opened", p)
	}
	return u.MemTree.Read(p, max)
}

// A file of 10 MB is refused by the size that its tree states, without a byte of it being read; one whose size the tree does
// not state is refused by the reader, which is told how much is accepted. The others are read.
func TestATenMegabyteFileIsNotRead(t *testing.T) {
	files := map[string]string{ConfigFile: refuseConfig, "plans/big.yaml": strings.Repeat("# ten megabytes\n", 10<<20/16), "plans/good.yaml": goodFile}
	tree := NewMemTree(files)
	for name, c := range map[string]Tree{
		"of a known size":     unopened{tree, t, "plans/big.yaml"},
		"of a size not known": claims{MemTree: tree, name: "plans/big.yaml", size: -1},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			p, ps := Load(c)
			runtime.ReadMemStats(&after)
			if len(ps) != 1 || ps[0].Code != "TooLarge" || ps[0].Pos.File != "plans/big.yaml" || !slices.Equal(p.Broken, []string{"plans/big.yaml"}) {
				t.Errorf("%v", ps)
			}
			if _, ok := p.Job("good"); !ok {
				t.Error("the good file was not read")
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 2<<20 {
				t.Errorf("%d KiB were allocated for a file that is refused", used>>10)
			}
		})
	}
}

// A hundred thousand jobs, the most there may be: read, accepted, held against what was accepted, and shown, in memory that
// is bounded for each of them.
func TestAHundredThousandJobs(t *testing.T) {
	seeds := strings.Join(numbers(MaxMatrix), ", ")
	files := map[string]string{ConfigFile: refuseConfig}
	for i := range MaxJobs / MaxMatrix {
		files[fmt.Sprintf("plans/p%d.yaml", i)] = fmt.Sprintf("jobs:\n  j%d: {run: \"train ${seed}\", params: {model: m%d}, matrix: {seed: [%s]}}\n", i, i, seeds)
	}
	tree := NewMemTree(files)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	p, ps := Load(tree)
	if len(ps) > 0 || len(p.Jobs) != MaxJobs {
		t.Fatal(len(p.Jobs), ps)
	}
	a := Accept(p, "c1")
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := (after.HeapAlloc - before.HeapAlloc) / MaxJobs; each > 4<<10 {
		t.Errorf("%d bytes stay for each job", each)
	}
	d := Diff(p, &a, nil)
	if len(d.Changes) != MaxJobs || d.Totals.Waiting != MaxJobs {
		t.Errorf("%+v", d.Totals)
	}
	if s := d.Markdown(0); len(s) > MarkdownMax {
		t.Errorf("%d bytes of comment", len(s))
	}
	runtime.KeepAlive(p)
}

// What a name, a file, a folder of plans and a folder of code are called is no identity: nothing of it makes other work, and
// the diff has nothing to do.
func TestNamesOfFilesAndFoldersAreNoIdentity(t *testing.T) {
	files := func(planFile, code string) map[string]string {
		up := strings.Repeat("../", strings.Count(planFile, "/"))
		return map[string]string{ConfigFile: refuseConfig, planFile: "jobs:\n  a: {run: x, code: " + up + code + "}\n", code + "/x.py": "1\n"}
	}
	before, _ := Load(NewMemTree(files("plans/p.yaml", "train")))
	a := Accept(before, "c1")
	for _, c := range [][2]string{{"plans/q.yaml", "train"}, {"plans/team/deep/p.yaml", "train"}, {"plans/p.yaml", "programs/train"}} {
		now, ps := Load(NewMemTree(files(c[0], c[1])))
		d := Diff(now, &a, map[Digest]Observed{before.Jobs[0].Work: {State: StateHeld, Attempt: 1}})
		if len(ps) > 0 || d.Any() || d.Totals.Unchanged != 1 || now.Jobs[0].Work != before.Jobs[0].Work {
			t.Errorf("%v: %v, %+v", c, ps, d.Totals)
		}
	}
}

// Line ends and a byte order mark are no identity either, whatever a line holds.
func TestLineEndsAreNoIdentity(t *testing.T) {
	text := "jobs:\n  a:\n    run: |-\n      train\n      --more\n    notes: \"x\"\n    params: {a: 1,\n      b: 2}\n"
	var works []Digest
	for _, s := range []string{text, strings.ReplaceAll(text, "\n", "\r\n"), "\xef\xbb\xbf" + text} {
		p, ps := Load(NewMemTree(map[string]string{ConfigFile: strings.ReplaceAll(refuseConfig, "\n", "\r\n"), "plans/p.yaml": s}))
		if len(p.Jobs) != 1 {
			t.Fatalf("%q: %v", s, ps)
		}
		works = append(works, p.Jobs[0].Work)
	}
	if d := cmp.Diff([]Digest{works[0], works[0], works[0]}, works); d != "" {
		t.Error(d)
	}
}
