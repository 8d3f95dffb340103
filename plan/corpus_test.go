package plan

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// site is one place of the source that reports a problem.
type site struct {
	code, pos string
	words     string // the longest run of letters of its message that does not depend on the input; "" when there is none
}

// sites finds in the source whatever this package can report: the literals that are handed to a method that reports
// or put into something called code, and the message beside them.
func sites(t *testing.T) []site {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	var out []site
	add := func(list []ast.Expr, i int) {
		lit, ok := list[i].(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING || !codeForm.MatchString(lit.Value) {
			return
		}
		s := site{code: strings.Trim(lit.Value, `"`), pos: set.Position(lit.Pos()).String()}
		if i+1 < len(list) {
			s.words = fixedWords(list[i+1])
		}
		out = append(out, s)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if s, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"refuse", "warn", "fail", "ref"}, s.Sel.Name) {
					for i := range min(3, len(n.Args)) { // the code is the first, second or third argument
						add(n.Args, i)
					}
				}
			case *ast.AssignStmt:
				for i, l := range n.Lhs {
					if len(n.Lhs) == len(n.Rhs) && named(l, "code") {
						add(n.Rhs, i)
					}
				}
			case *ast.KeyValueExpr:
				if named(n.Key, "code") {
					add([]ast.Expr{n.Value}, 0)
				}
			}
			return true
		})
	}
	return out
}

var (
	codeForm = regexp.MustCompile(`^"[A-Z][A-Za-z]+"$`)               // table of one value: the form of a code
	verbForm = regexp.MustCompile(`%[-+ #0]*[0-9]*[a-zA-Z]|%%|[\n"]`) // table of one value: what cuts a message
)

// fixedWords is the longest part of a message that its literals give.
func fixedWords(x ast.Expr) (longest string) {
	ast.Inspect(x, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if s, is := call.Fun.(*ast.SelectorExpr); !is || s.Sel.Name != "Sprintf" {
				return false // literals in there are no part of the message, or not as they stand
			}
		}
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text, _ := strconv.Unquote(lit.Value)
			for _, part := range verbForm.Split(text, -1) {
				if len(part) > len(longest) {
					longest = part
				}
			}
		}
		return true
	})
	if len(strings.Fields(longest)) < 2 {
		return ""
	}
	return longest
}

func named(x ast.Expr, name string) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return strings.EqualFold(x.Name, name)
	case *ast.SelectorExpr:
		return strings.EqualFold(x.Sel.Name, name)
	}
	return false
}

// corpusProblems gives the problems of every archive of testdata/refuse.
func corpusProblems(t *testing.T) map[string][]Problem {
	t.Helper()
	paths, err := filepath.Glob("testdata/refuse/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string][]Problem)
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, ps := Load(caseTree(t, txtar.Parse(b)))
		out[strings.TrimSuffix(filepath.Base(path), ".txtar")] = ps
	}
	return out
}

// largeCases are refusals that no archive can hold: what is too large, and trees that cannot be read.
func largeCases() map[string]func() []Problem {
	loading := func(t Tree) func() []Problem {
		return func() []Problem { _, ps := load(t, amplifierLimits); return ps }
	}
	good := map[string]MemFile{ConfigFile: file(refuseConfig), "plans/p.yaml": file("jobs:\n  code: {run: x, code: ../c}\n"), "c/x": file("1")}
	with := func(more map[string]MemFile) *MemTree {
		m := maps.Clone(good)
		maps.Copy(m, more)
		return MakeMemTree(m)
	}
	plans := make(map[string]MemFile, MaxPlanFiles+1)
	for i := range MaxPlanFiles + 1 {
		plans[fmt.Sprintf("plans/%d.yaml", i)] = file("")
	}
	out := map[string]func() []Problem{
		"many plan files": loading(with(plans)),
		"many code files": loading(with(crowd(MaxCodeFiles + 1))),
		"large code":      loading(claims{MemTree: with(nil), name: "c/x", size: MaxCodeBytes + 1}),
		"empty code":      loading(claims{MemTree: with(map[string]MemFile{"plans/p.yaml": file("jobs:\n  a: {run: x, code: ../empty}\n")}), empty: map[string]int{"empty": 0}}),
		"deep code":       loading(with(map[string]MemFile{"c/" + strings.Repeat("d/", 4*MaxDepth+1) + "x": file("")})),
		"large plan file": loading(with(map[string]MemFile{"plans/q.yaml": file(strings.Repeat("#", MaxFileBytes+1))})),
		"large config":    loading(with(map[string]MemFile{ConfigFile: file(strings.Repeat("#", MaxConfig+1))})),
		"many nodes":      loading(with(map[string]MemFile{"plans/q.yaml": file(strings.Repeat("a:\n", maxSeparators))})),
		"many problems":   loading(with(map[string]MemFile{"plans/q.yaml": file("jobs:\n  a: {run: x, params: {" + strings.Repeat("a: 1,", maxProblems+2) + "}}\n")})),
		"deep nesting":    loading(with(map[string]MemFile{"plans/q.yaml": file(strings.Repeat("[", 40) + strings.Repeat("]", 40))})),
	}
	broken := errors.New("the pack is broken")
	for _, p := range []string{"", "plans", "c", "c/x", ConfigFile} {
		out["broken "+p] = loading(faultyTree{with(nil), p, broken})
	}
	out["missing object"] = loading(faultyTree{with(nil), "plans/p.yaml", fs.ErrNotExist})
	out["many settings"] = func() []Problem {
		_, ps := load(with(map[string]MemFile{"plans/q.yaml": file("jobs:\n  a: {run: x, params: {k: " + strings.Repeat("v", 10_000) + "}, matrix: {seed: [1, 2, 3, 4, 5]}}\n" +
			"  b: {like: a, seed: 0, replica: 1}\n  c: {like: a, replica: 2}\n  d: {like: a, replica: 3}\n  e: {like: a, replica: 4}\n")}), limits{jobs: 100, inputs: 100, copied: 100, canonical: 210_000})
		return ps
	}
	for name, c := range amplifiers() {
		out[name] = loading(with(map[string]MemFile{"plans/q.yaml": file(c.text)}))
	}
	return out
}

// noCase are the refusals that no input is known for, by their words. (Table of values.)
var noCase = map[string]string{
	"the YAML parser failed on this file": "the parser would have to panic; the fuzz test looks for such a file",
}

// TestEveryRefusalHasACase: whatever this package can report is reported in a case, code and words, so that the
// sentence that people see is one that somebody has read.
func TestEveryRefusalHasACase(t *testing.T) {
	known := sites(t)
	codes := make(map[string]bool)
	for _, s := range known {
		codes[s.code] = true
	}
	if len(known) < 140 || len(codes) < 70 {
		t.Errorf("only %d refusals with %d codes were found in the source", len(known), len(codes))
	}
	said := make(map[string][]string) // messages by code
	note := func(name string, ps []Problem) {
		for _, p := range ps {
			if !codes[p.Code] {
				t.Errorf("%s: code %s is in no call that this test finds", name, p.Code)
			}
			said[p.Code] = append(said[p.Code], p.Text)
		}
		checkProblems(t, ps)
	}
	for name, ps := range corpusProblems(t) {
		note(name, ps)
	}
	for name, problems := range largeCases() {
		note(name, problems())
	}
	doc := ReadDocument("ring.yaml", []byte("keep: 256\n")) // what only other files than plans hold
	doc.Root().Fields("keep")["keep"].Bytes(0)
	note("a document", doc.Problems())
	for _, s := range known {
		has := func(text string) bool { return strings.Contains(text, s.words) }
		if !slices.ContainsFunc(said[s.code], has) && noCase[s.words] == "" {
			t.Errorf("%s: no case is refused with %s and %q", s.pos, s.code, s.words)
		}
	}
}
