package plan

import (
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func file(s string) MemFile { return MemFile{Data: []byte(s)} }

const goodFile = "jobs:\n  good: {run: x}\n"

// utf16 encodes ASCII text.
func utf16(s string, big bool) string {
	var b strings.Builder
	for i := range len(s) {
		if big {
			b.WriteString("\x00" + s[i:i+1])
		} else {
			b.WriteString(s[i:i+1] + "\x00")
		}
	}
	return b.String()
}

func TestEncodings(t *testing.T) {
	for _, c := range []struct{ name, data, want, says string }{
		{"utf-16 le bom", "\xff\xfe" + utf16(goodFile, false), "Encoding", "the file is UTF-16"},
		{"utf-16 be bom", "\xfe\xff" + utf16(goodFile, true), "Encoding", "the file is UTF-16"},
		{"utf-16 le", utf16(goodFile, false), "Encoding", "UTF-16 (little endian"},
		{"utf-16 be", utf16(goodFile, true), "Encoding", "UTF-16 (big endian"},
		{"utf-32", "\xff\xfe\x00\x00", "Encoding", "UTF-32"},
		{"nul", "jobs:\n  good: {run: x\x00}\n", "Encoding", "p.yaml:2:16: a NUL byte"},
		{"latin-1", "jobs:\n  good: {run: \xe9}\n", "Encoding", "p.yaml:2:15: byte 0xe9 is not UTF-8"},
		{"escape", "jobs:\n  good: {run: \x1b[31m}\n", "ControlCharacter", "U+001B"},
		{"bidi", "jobs:\n  good: {run: a\u202eb}\n", "ControlCharacter", "U+202E"},
		{"lone cr", "jobs:\r  good: {run: x}\n", "ControlCharacter", "U+000D"},
		{"tab inside", "jobs:\n  good: {run:\tx}\n", "Tab", "p.yaml:2:14: a tab"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, ps := Load(MakeMemTree(map[string]MemFile{ConfigFile: file(refuseConfig), "plans/p.yaml": file(c.data)}))
			if len(p.Jobs) != 0 || len(ps) == 0 || ps[0].Code != c.want || !strings.Contains(ps[0].String(), c.says) {
				t.Errorf("%v", ps)
			}
			checkProblems(t, ps)
		})
	}
}

func TestBOMAndCRLFAreAccepted(t *testing.T) {
	plain, _ := Load(NewMemTree(map[string]string{ConfigFile: refuseConfig, "plans/p.yaml": goodFile}))
	odd, ps := Load(NewMemTree(map[string]string{ConfigFile: refuseConfig, "plans/p.yaml": "\xef\xbb\xbf" + strings.ReplaceAll(goodFile, "\n", "\r\n")}))
	if len(ps) != 1 || ps[0].Code != "BOM" || ps[0].Severity != Warning || !odd.OK() {
		t.Errorf("problems %v", ps)
	}
	if len(odd.Jobs) != 1 || odd.Jobs[0].Work != plain.Jobs[0].Work {
		t.Errorf("%+v", odd.Jobs)
	}
}

func TestOddEntriesOfThePlanRoot(t *testing.T) {
	p, codes := codesOf(map[string]MemFile{
		"plans/good.yaml":        file(goodFile),
		"plans/esc\x1b[2J.yaml":  file("jobs: {e: {run: x}}"),
		"plans/new\nline.yaml":   file("jobs: {n: {run: x}}"),
		"plans/byte\xff.yaml":    file("jobs: {b: {run: x}}"),
		"plans/link.yaml":        {Kind: KindLink, Data: []byte("/etc/passwd")},
		"plans/dirlink":          {Kind: KindLink, Data: []byte("../..")},
		"plans/sub":              {Kind: KindSubmodule, Hash: strings.Repeat("1", 40)},
		"plans/folder.yaml/x.md": file("x"),
		"plans/notes.txt":        file("not a plan"),
		"plans/exec.yaml":        {Data: []byte("jobs: {x: {run: x, seed: 2}}"), Exec: true},
		"plans/big.yaml":         file("jobs: {}\n#" + strings.Repeat("x", MaxFileBytes)),
	})
	want := []string{
		"plans/big.yaml TooLarge", "plans/byte\xff.yaml BadFileName", "plans/dirlink SymlinkInPlanRoot",
		"plans/esc\x1b[2J.yaml BadFileName", "plans/folder.yaml IsAFolder", "plans/link.yaml SymlinkInPlanRoot",
		"plans/new\nline.yaml BadFileName", "plans/sub SubmoduleInPlanRoot",
	}
	if d := cmp.Diff(want, codes); d != "" {
		t.Error(d)
	}
	var names []string
	for _, j := range p.Jobs {
		names = append(names, j.Name)
	}
	if d := cmp.Diff([]string{"good", "x"}, names); d != "" {
		t.Error(d)
	}
	checkProblems(t, p.Problems)
	if s := p.Problems[1].String(); !strings.HasPrefix(s, `"plans/byte\xff.yaml": `) {
		t.Errorf("name is not quoted: %s", s)
	}
}

func TestCodeFolders(t *testing.T) {
	lfs := "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
	for _, c := range []struct {
		name string
		code map[string]MemFile
		want string
	}{
		{"plain", map[string]MemFile{"c/x.py": file("x"), "c/.github/x": file(""), "c/..x": file(""), "c/ü": file(""), "c/d/x.py": file("x")}, ""},
		{"link inside", map[string]MemFile{"c/x.py": file("x"), "c/d/y": {Kind: KindLink, Data: []byte("../x.py")}}, "SymlinkInCode"},
		{"link out", map[string]MemFile{"c/x.py": file("x"), "c/y": {Kind: KindLink, Data: []byte("../other")}}, "SymlinkInCode"},
		{"link absolute", map[string]MemFile{"c/y": {Kind: KindLink, Data: []byte("/etc/passwd")}}, "SymlinkInCode"},
		{"folder is a link", map[string]MemFile{"c": {Kind: KindLink, Data: []byte("train")}}, "SymlinkInCode"},
		{"submodule", map[string]MemFile{"c/x.py": file("x"), "c/sub": {Kind: KindSubmodule, Hash: strings.Repeat("2", 40)}}, "SubmoduleInCode"},
		{"folder is a submodule", map[string]MemFile{"c": {Kind: KindSubmodule, Hash: strings.Repeat("2", 40)}}, "SubmoduleInCode"},
		{"lfs", map[string]MemFile{"c/deep/er/w.bin": file(lfs)}, "LFSPointer"},
		{"many files", crowd(MaxCodeFiles + 1), "TooManyFiles"},
		{"deep", map[string]MemFile{"c/" + strings.Repeat("d/", 4*MaxDepth+1) + "x": file("")}, "TooDeep"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.code["plans/p.yaml"] = file("jobs:\n  a: {run: x, code: ../c}\n")
			p, codes := codesOf(c.code)
			var want []string
			if c.want != "" {
				want = []string{"plans/p.yaml " + c.want}
			}
			if d := cmp.Diff(want, codes); d != "" {
				t.Errorf("%s\n%v", d, p.Problems)
			}
		})
	}
}

// crowd is a code folder of n files.
func crowd(n int) map[string]MemFile {
	m := make(map[string]MemFile, n)
	for i := range n {
		m[fmt.Sprintf("c/%d/%d", i/1000, i)] = file("")
	}
	return m
}

// claims is a tree that says of one file how large it is, and holds folders that Git never makes.
type claims struct {
	*MemTree
	name  string
	size  int64
	empty map[string]int // folders that hold so many empty folders and nothing else
}

func (c claims) Entries(dir string) ([]Entry, error) {
	if n, ok := c.empty[dir]; ok {
		es := make([]Entry, n)
		for i := range es {
			es[i] = Entry{Name: fmt.Sprint(i), Kind: KindDir}
		}
		return es, nil
	}
	es, err := c.MemTree.Entries(dir)
	if err != nil && strings.HasPrefix(dir, "empty/") {
		return nil, nil
	}
	for i := range es {
		if path.Join(dir, es[i].Name) == c.name {
			es[i].Size = c.size
		}
	}
	for d := range c.empty {
		if parentOf(d) == dir {
			es = append(es, Entry{Name: path.Base(d), Kind: KindDir})
		}
	}
	return es, err
}

// TestCodeFolderBounds: bounds that no tree in memory can cross cheaply.
func TestCodeFolderBounds(t *testing.T) {
	for _, c := range []struct {
		name string
		tree claims
		want string
	}{
		{"as large as may be", claims{name: "c/x", size: MaxCodeBytes}, ""},
		{"too large", claims{name: "c/x", size: MaxCodeBytes + 1}, "TooLarge"},
		{"too large together", claims{name: "c/x", size: MaxCodeBytes - 1}, "TooLarge"},
		{"no sizes", claims{name: "c/x", size: -1}, ""},
		{"nothing but folders", claims{empty: map[string]int{"empty": 3}}, "EmptyFolder"},
		{"folders without end", claims{empty: map[string]int{"empty": MaxCodeEntries + 1}}, "TooManyFiles"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string]string{ConfigFile: refuseConfig, "plans/p.yaml": "jobs:\n  a: {run: x, code: ../c}\n", "c/x": ""}
			if c.tree.empty != nil {
				files["plans/p.yaml"] = "jobs:\n  a: {run: x, code: ../empty}\n"
			}
			if strings.HasSuffix(c.name, "together") {
				files["c/y"] = "12"
			}
			c.tree.MemTree = NewMemTree(files)
			_, ps := Load(c.tree)
			got := ""
			for _, q := range ps {
				got += q.Code
			}
			if got != c.want {
				t.Errorf("got %v, want %q", ps, c.want)
			}
		})
	}
}

// bombs are files that would cost a careless reader much more than their size.
func bombs() map[string]string {
	alias := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'z'; c++ {
		alias += fmt.Sprintf("%c: &%c [%s*%c]\n", c, c, strings.Repeat(fmt.Sprintf("*%c,", c-1), 8), c-1)
	}
	return map[string]string{
		"alias bomb":          alias,
		"open brackets":       strings.Repeat("[", MaxFileBytes),
		"open braces":         strings.Repeat("{a: ", MaxFileBytes/4),
		"closed brackets":     strings.Repeat("[", 5000) + strings.Repeat("]", 5000),
		"dashes":              strings.Repeat("- ", MaxFileBytes/2),
		"questions":           strings.Repeat("? ", MaxFileBytes/2),
		"commas":              "[" + strings.Repeat("a,", MaxFileBytes/2-1),
		"one-letter keys":     strings.Repeat("a:\n", MaxFileBytes/3),
		"deeper every line":   deepening(),
		"long line":           "jobs: " + strings.Repeat("x", MaxFileBytes-6),
		"quotes":              strings.Repeat(`"`, MaxFileBytes),
		"comments":            strings.Repeat("#\n", MaxFileBytes/2),
		"anchors":             strings.Repeat("&a ", MaxFileBytes/3),
		"oversized":           strings.Repeat("a: b\n", MaxFileBytes),
		"matrix of a million": "jobs:\n  a:\n    run: x\n    matrix: {seed: [" + strings.Join(numbers(1000), ",") + "], replica: [" + strings.Join(numbers(1000), ",") + "]}\n",
	}
}

func deepening() string {
	var b strings.Builder
	for i := 0; b.Len() < MaxFileBytes-1000; i++ {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func numbers(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprint(i))
	}
	return out
}

// TestBombs bounds what a hostile file may allocate, all told. Bytes are counted, not seconds: a machine may be slow.
func TestBombs(t *testing.T) {
	const most = 4 << 20
	for name, data := range bombs() {
		t.Run(name, func(t *testing.T) {
			tree := NewMemTree(map[string]string{ConfigFile: refuseConfig, "plans/p.yaml": data, "plans/good.yaml": goodFile})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			p, ps := Load(tree)
			runtime.ReadMemStats(&after)
			used := after.TotalAlloc - before.TotalAlloc
			t.Logf("%d bytes of file: %d KiB allocated, %d objects, first problem: %v", len(data), used>>10, after.Mallocs-before.Mallocs, ps[:min(1, len(ps))])
			if used > most {
				t.Errorf("%d KiB were allocated, at most %d are accepted", used>>10, most>>10)
			}
			if p.OK() || !slices.Contains(p.Broken, "plans/p.yaml") {
				t.Errorf("accepted: %v", ps)
			}
			if _, ok := p.Job("good"); !ok {
				t.Error("the good file was not read")
			}
		})
	}
}
