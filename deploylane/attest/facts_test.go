package attest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"
)

// The table has every fact that a worker measures, and names no other but those that come with more than one rank.
func TestTheTableHasEveryFactThatWorkersMeasure(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "../../runners/agent/fingerprint/fingerprint.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	measured := map[string]bool{}
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			if lit, ok := s.(*ast.ValueSpec).Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				name, _ := strconv.Unquote(lit.Value)
				measured[name] = true
			}
		}
	}
	if len(measured) < 20 {
		t.Fatalf("found only %d facts", len(measured))
	}
	for _, f := range Facts() {
		if !measured[f.Name] && f.Class != Ranks {
			t.Errorf("%s: in the table, and no worker measures it", f.Name)
		}
		delete(measured, f.Name)
	}
	for name := range measured {
		t.Errorf("%s: measured, and not in the table", name)
	}
}
