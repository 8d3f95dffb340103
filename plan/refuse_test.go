package plan

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// refuseConfig is the headway.yaml of the trees in testdata/refuse that bring none.
const refuseConfig = `headway: v1
plans: [plans/**/*.yaml]
platforms:
  here: {runner: local}
  vast: {runner: vast, gpu: [RTX_4090, RTX_3090]}
  pair: {runner: kaggle, gpu: [T4x2]}
defaults:
  on: [here]
`

// TestRefuse loads every tree of testdata/refuse. Each archive ends with the problems that are expected, the jobs that
// may be acted on all the same, and the frozen ones. What an archive cannot hold stands in the lines before its first
// file: file, link and submodule with a quoted path and a quoted text, and without with the path of a file to leave out.
func TestRefuse(t *testing.T) {
	paths, err := filepath.Glob("testdata/refuse/*.txtar")
	if err != nil || len(paths) < 40 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			p, ps := Load(caseTree(t, a))
			got := verdict(p, ps)
			want := &a.Files[len(a.Files)-1]
			if *update {
				want.Data = []byte(got)
				if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(want.Data) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want.Data)
			}
			checkProblems(t, ps)
		})
	}
}

// caseTree is the tree of one archive.
func caseTree(t testing.TB, a *txtar.Archive) *MemTree {
	t.Helper()
	files := map[string]MemFile{"headway.yaml": file(refuseConfig), "train/train.py": file("print(1)\n")}
	for _, f := range a.Files[:len(a.Files)-1] {
		files[f.Name] = MemFile{Data: f.Data}
	}
	for line := range strings.Lines(string(a.Comment)) {
		what, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if what == "" || what == "#" {
			continue
		}
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		name, err := strconv.Unquote(quoted)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		text := ""
		if rest = strings.TrimSpace(rest[len(quoted):]); rest != "" {
			if text, err = strconv.Unquote(rest); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
		}
		switch what {
		case "file":
			files[name] = file(text)
		case "link":
			files[name] = MemFile{Kind: KindLink, Data: []byte(text)}
		case "submodule":
			files[name] = MemFile{Kind: KindSubmodule, Hash: strings.Repeat("1", 40)}
		case "without":
			delete(files, name)
		default:
			t.Fatalf("%q: unknown word", line)
		}
	}
	return MakeMemTree(files)
}

func verdict(p *Plan, ps []Problem) string {
	var b strings.Builder
	for _, q := range ps {
		b.WriteString(q.String() + "\n")
	}
	for _, j := range p.Jobs {
		b.WriteString("job " + j.Name + "\n")
	}
	for _, f := range p.Frozen {
		b.WriteString("frozen " + printable(f.Name) + ": " + f.Reason + "\n")
	}
	return b.String()
}

// checkProblems holds every problem to the form: a position, a code, one printable line, no secret.
func checkProblems(t testing.TB, ps []Problem) {
	t.Helper()
	for i, q := range ps {
		if q.Pos.File == "" || q.Code == "" || q.Text == "" || q.Severity == "" {
			t.Errorf("incomplete problem %+v", q)
		}
		s := q.String()
		if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0x202e }) {
			t.Errorf("problem with control characters: %q", s)
		}
		if looksSecret(s) != "" || strings.Contains(s, "0123456789abcdef") {
			t.Errorf("problem shows a secret: %s", s)
		}
		if len(s) > 4000 {
			t.Errorf("problem of %d bytes", len(s))
		}
		if i > 0 && comparePos(ps[i-1].Pos, q.Pos) > 0 {
			t.Errorf("problems out of order: %s after %s", q, ps[i-1])
		}
	}
}

// codesOf loads files and gives the codes of its errors.
func codesOf(files map[string]MemFile) (*Plan, []string) {
	if _, ok := files[ConfigFile]; !ok {
		files[ConfigFile] = MemFile{Data: []byte(refuseConfig)}
	}
	p, ps := Load(MakeMemTree(files))
	var codes []string
	for _, q := range ps {
		codes = append(codes, q.Pos.File+" "+q.Code)
	}
	return p, slices.Compact(codes)
}
