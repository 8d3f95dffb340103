package headway

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	maxFileLines = 500
	maxFuncLines = 80
	maxMethods   = 6
)

// TestRules walks every file once and holds it against the rules of the house.
func TestRules(t *testing.T) {
	comments := map[string][]string{}
	packages := map[string]bool{}
	for _, file := range goFiles(t) {
		fset := token.NewFileSet()
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(fset, file, src, parser.ParseComments)
		if err != nil {
			t.Error(err)
			continue
		}
		test := strings.HasSuffix(file, "_test.go")
		dir := filepath.Dir(file)
		if !test {
			packages[dir] = true
			if f.Doc != nil {
				comments[dir] = append(comments[dir], file)
			}
		}
		if slices.Contains([]string{"util", "utils", "common", "helpers", "misc", "types", "models", "base", "errors"}, f.Name.Name) {
			t.Errorf("%s: package %s says nothing of its purpose", file, f.Name.Name)
		}
		if n := bytes.Count(src, []byte("\n")); n > maxFileLines {
			t.Errorf("%s: %d lines, at most %d: split it by purpose", file, n, maxFileLines)
		}
		for _, d := range f.Decls {
			checkDecl(t, fset, d, test)
		}
		checkNodes(t, fset, f, src, file, test)
	}
	for dir := range packages {
		if n := len(comments[dir]); n != 1 {
			t.Errorf("%s: %d files with a package comment (%v), want exactly one", dir, n, comments[dir])
		}
	}
}

func checkDecl(t *testing.T, fset *token.FileSet, d ast.Decl, test bool) {
	t.Helper()
	switch d := d.(type) {
	case *ast.FuncDecl:
		at := fset.Position(d.Pos())
		if d.Name.Name == "init" && d.Recv == nil {
			t.Errorf("%s: func init: say it in a constructor", at)
		}
		if lines := fset.Position(d.End()).Line - at.Line + 1; lines > maxFuncLines {
			t.Errorf("%s: func %s has %d lines, at most %d", at, d.Name.Name, lines, maxFuncLines)
		}
	case *ast.GenDecl:
		if d.Tok == token.VAR && !test {
			for _, s := range d.Specs {
				checkVar(t, fset, d, s.(*ast.ValueSpec))
			}
		}
	}
}

// checkVar lets pass: blank compile-time assertions, errors.New and fmt.Errorf, compiled expressions, embeds, and
// initialised values whose comment says that they are tables. Everything else at package level is state.
func checkVar(t *testing.T, fset *token.FileSet, d *ast.GenDecl, v *ast.ValueSpec) {
	t.Helper()
	doc := ""
	for _, g := range []*ast.CommentGroup{d.Doc, v.Doc, v.Comment} {
		if g != nil {
			for _, c := range g.List {
				doc += c.Text + "\n"
			}
		}
	}
	if strings.Contains(doc, "//go:embed") || strings.Contains(doc, "-ldflags") {
		return
	}
	for i, name := range v.Names {
		if name.Name == "_" {
			continue
		}
		if i < len(v.Values) {
			if call, ok := v.Values[i].(*ast.CallExpr); ok {
				fn := exprString(call.Fun)
				if fn == "errors.New" || fn == "fmt.Errorf" || fn == "regexp.MustCompile" {
					continue
				}
			}
			if strings.Contains(strings.ToLower(doc), "table") {
				continue // a table of values: written out, or computed from another one
			}
		}
		t.Errorf("%s: package-level variable %s: make it a field, a function, or a table whose comment says so", fset.Position(v.Pos()), name.Name)
	}
}

func exprString(e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		return exprString(s.X) + "." + s.Sel.Name
	}
	if id, ok := e.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

func checkNodes(t *testing.T, fset *token.FileSet, f *ast.File, src []byte, file string, test bool) {
	t.Helper()
	cmd := f.Name.Name == "main"
	lines := bytes.Split(src, []byte("\n"))
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.InterfaceType:
			if n.Methods != nil && len(n.Methods.List) > maxMethods {
				t.Errorf("%s: an interface of %d methods, at most %d", fset.Position(n.Pos()), len(n.Methods.List), maxMethods)
			}
		case *ast.CallExpr:
			at := fset.Position(n.Pos())
			switch exprString(n.Fun) {
			case "context.Background", "context.TODO":
				if !test && !cmd && !strings.HasSuffix(filepath.Dir(file), "test") {
					t.Errorf("%s: a context out of nothing: take it as a parameter", at)
				}
			case "panic":
				if !test && !bytes.Contains(lines[at.Line-1], []byte("//")) {
					t.Errorf("%s: panic without a comment on its line that says why it cannot happen", at)
				}
			case "time.Sleep":
				if test && !bytes.Contains(src, []byte("testing/synctest")) {
					t.Errorf("%s: a test that sleeps: wait for a fact", at)
				}
			case "t.Skip", "t.Skipf", "t.SkipNow", "b.Skip":
				t.Errorf("%s: a skip hides what is missing: fail, or put it behind a build tag that .ci/run sets", at)
			}
		}
		return true
	})
}

// TestGoMod keeps go.mod to a few direct modules, each with its reason on its line, and without replacements.
func TestGoMod(t *testing.T) {
	b, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(b), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "replace ") {
			t.Errorf("go.mod:%d: no replacements", i+1)
		}
		require := regexp.MustCompile(`^\t?(?:require )?[a-z0-9.-]+\.[a-z]+/\S+ v\S+|^\t[a-z0-9.]+\.[a-z]+/\S+ v\S+`).MatchString(line)
		if require && !strings.Contains(line, "//") {
			t.Errorf("go.mod:%d: %s: a direct module without its reason behind //", i+1, strings.TrimSpace(line))
		}
	}
}

// TestAgentDependencies holds what travels to every rented machine against a committed list, so that a heavy import is
// a line in a review. UPDATE=1 rewrites it.
func TestAgentDependencies(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./cmd/headway-agent")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	const golden = ".ci/agent-deps.txt"
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(golden, out, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != string(out) {
		t.Errorf("the agent's dependencies changed; UPDATE=1 go test . -run AgentDependencies rewrites %s:\n%s", golden, diffLines(string(want), string(out)))
	}
	for _, heavy := range []string{"go-git", "spf13/cobra", "google/go-cmp", "text/template", "html/template", "aws-sdk-go-v2/config", "yaml"} {
		if strings.Contains(string(out), heavy) {
			t.Errorf("the agent reaches %s", heavy)
		}
	}
}

func diffLines(a, b string) string {
	var out strings.Builder
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	for _, l := range as {
		if !slices.Contains(bs, l) {
			fmt.Fprintf(&out, "- %s\n", l)
		}
	}
	for _, l := range bs {
		if !slices.Contains(as, l) {
			fmt.Fprintf(&out, "+ %s\n", l)
		}
	}
	return out.String()
}

// TestBinarySizes builds the binaries stripped, as a release is, and holds them below a bound (MiB). Not with -trimpath, which
// compiles all of them anew and makes them smaller by the names of files alone, some 0.1 MiB.
func TestBinarySizes(t *testing.T) {
	for name, bound := range map[string]float64{"headway": 32, "headway-lane": 20, "headway-agent": 11} {
		path := filepath.Join(t.TempDir(), name)
		cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, "./cmd/"+name)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", name, err, out)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		size := float64(info.Size()) / (1 << 20)
		t.Logf("%s: %.1f MiB (bound %.0f)", name, size, bound)
		if size > bound {
			t.Errorf("%s: %.1f MiB stripped, bound %.0f: something heavy was linked, or dead code is kept alive (a call of reflect's MethodByName)", name, size, bound)
		}
	}
}

// TestTree: no path of one machine and no word about a registry's host in what is committed.
func TestTree(t *testing.T) {
	out, err := exec.Command("git", "grep", "-nE", `(^|[^A-Za-z0-9_.-])/(work|root|home)/[a-z]|proxy\.golang\.org|pypi\.org|registry\.npmjs`, "--", ".", ":!*.sum", ":!rules_test.go").Output()
	if exit, ok := err.(*exec.ExitError); err != nil && (!ok || exit.ExitCode() != 1) {
		t.Fatalf("git grep: %v", err)
	}
	if len(out) > 0 {
		t.Errorf("paths of one machine or registry hosts in tracked files:\n%s", out)
	}
}
