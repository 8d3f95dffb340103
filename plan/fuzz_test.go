package plan

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// FuzzLoad gives any bytes as a plan file. Load must not panic, every problem must have a position and fit on a line,
// and what is accepted must be the same when it is read again, with comments added and lines ended otherwise.
func FuzzLoad(f *testing.F) {
	paths, _ := filepath.Glob("testdata/refuse/*.txtar")
	for _, p := range paths {
		a, err := txtar.ParseFile(p)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range a.Files[:len(a.Files)-1] {
			f.Add(file.Data)
		}
	}
	f.Add([]byte(specPlan))
	f.Add([]byte(everyField))
	f.Fuzz(func(t *testing.T, data []byte) {
		tree := func(b []byte) *MemTree {
			return MakeMemTree(map[string]MemFile{ConfigFile: file(specConfig), "plans/p.yaml": {Data: b}, "examples/digits/x": file("x"), "train/x": file("y")})
		}
		p, ps := Load(tree(data))
		checkForm(t, ps)
		q, qs := Load(tree(data))
		if verdict(p, ps) != verdict(q, qs) {
			t.Fatalf("two readings differ:\n%s\n%s", verdict(p, ps), verdict(q, qs))
		}
		for i := range p.Jobs {
			j := &p.Jobs[i]
			if j.Work != q.Jobs[i].Work || j.Work != j.Digest() || len(j.Work) != 64 {
				t.Fatalf("digest of %q", j.Name)
			}
			if len(j.Argv) == 0 || len(j.On) == 0 {
				t.Fatalf("incomplete job %+v", j)
			}
		}
		inCode := func(q Problem) bool { return q.Code == "PlanInCode" } // there a comment changes the code
		if p.OK() && len(p.Jobs) > 0 && !slices.ContainsFunc(ps, inCode) && !bytes.Contains(data, []byte("|")) && !bytes.Contains(data, []byte(">")) && !bytes.ContainsAny(data, "\r\"'") {
			r, rs := Load(tree(append([]byte("# a comment\n"), data...)))
			if len(r.Jobs) != len(p.Jobs) {
				t.Fatalf("a comment changes the plan: %v", rs)
			}
			for i := range r.Jobs {
				if r.Jobs[i].Work != p.Jobs[i].Work {
					t.Fatalf("a comment changes the digest of %q", r.Jobs[i].Name)
				}
			}
		}
	})
}

// checkForm is what holds for the problems of any input.
func checkForm(t *testing.T, ps []Problem) {
	for _, q := range ps {
		s := q.String()
		if q.Pos.File == "" || q.Code == "" || q.Text == "" {
			t.Fatalf("incomplete problem %+v", q)
		}
		if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Fatalf("control character in %q", s)
		}
	}
}

// FuzzConfig gives any bytes as headway.yaml.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(specConfig))
	f.Add([]byte(refuseConfig))
	f.Add([]byte("headway: v1\nplans: ['**']\nplatforms: {a: {runner: b, c: 3}}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, ps := Load(MakeMemTree(map[string]MemFile{ConfigFile: {Data: data}, "plans/p.yaml": file(goodFile)}))
		checkForm(t, ps)
	})
}
