package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// saysHeadway finds what a text tells people to run: the word behind "headway", and the rest of that sentence.
var saysHeadway = regexp.MustCompile(`\bheadway ([a-z][a-z-]*)([^.;:()\n]*)`) // a table of values

// inProse are the words behind "headway" where it is spoken of, and nothing is told to be run: a table of values.
var inProse = []string{"beside", "for", "has", "itself", "never", "process", "program", "reads", "refuses", "runs", "sees", "that", "would", "wrote"}

// badAdvice lists the verbs and flags that a text names and this program has not. counts gets each verb that it has.
func badAdvice(root *cobra.Command, text string, counts map[string]int) (bad []string) {
	flag := regexp.MustCompile(`--([a-z][a-z-]*)`)
	for from := 0; ; {
		at := saysHeadway.FindStringSubmatchIndex(text[from:])
		if at == nil {
			return bad
		}
		word, rest := text[from+at[2]:from+at[3]], text[from+at[4]:from+at[5]]
		from += at[3]
		if next := saysHeadway.FindStringIndex(rest); next != nil {
			rest = rest[:next[0]]
		}
		verb, _, err := root.Find([]string{word})
		if slices.Contains(inProse, word) {
			continue
		}
		if err != nil || verb == root {
			bad = append(bad, "there is no verb "+word+" (where it is no command: inProse)")
			continue
		}
		counts[word]++
		for _, f := range flag.FindAllStringSubmatch(rest, -1) {
			if verb.Flags().Lookup(f[1]) == nil && verb.InheritedFlags().Lookup(f[1]) == nil {
				bad = append(bad, word+" has no flag --"+f[1])
			}
		}
	}
}

// texts are the string literals of a file; those that are put together with + are one, with … for what is no literal,
// and each of its parts.
func texts(t *testing.T, f *ast.File) (out []string) {
	var flat func(n ast.Expr) string
	flat = func(n ast.Expr) string {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			return flat(n.X) + flat(n.Y)
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				text, err := strconv.Unquote(n.Value)
				if err != nil {
					t.Fatal(err)
				}
				return text
			}
		}
		return "…"
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if n.Op == token.ADD {
				out = append(out, flat(n))
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				out = append(out, flat(n))
			}
		}
		return true
	})
	return out
}

// TestAdviceNamesWhatExists: each command that any text of this program names is one of its verbs, and each flag behind
// it one of that verb.
func TestAdviceNamesWhatExists(t *testing.T) {
	root := newRoot(env{getenv: func(string) string { return "" }})
	commands, files := map[string]int{}, 0
	for _, dir := range []string{"../../cmd", "../../reconcile", "../../runners", "../../plan"} {
		err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
				return err
			}
			files++
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				return err
			}
			for _, text := range texts(t, f) {
				for _, bad := range badAdvice(root, text, commands) {
					t.Errorf("%s: %q: %s", name, text, bad)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 100 || commands["doctor"] < 5 || commands["apply"] < 3 || commands["release"] < 1 || commands["explain"] < 1 {
		t.Errorf("found only %v in %d files: the advice is not read", commands, files)
	}
	if bad := badAdvice(root, "see headway status --any, then headway fly; headway doctor --deep", map[string]int{}); len(bad) != 2 {
		t.Errorf("of two mistakes it finds %q", bad)
	}
}
