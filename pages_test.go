package headway

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// page is README.md or a file of docs/, cut into its fenced blocks. A comment alone on the line before a block says
// what the tests do with it; readers of the rendered page do not see it:
//
//	<!-- start: FOLDER -->  the page's commands begin in a committed copy of this folder of the repository
//	<!-- file: PATH -->     the next block is written to PATH before the commands after it run
//	                        (PATH, refused: the block is one that the program must not accept)
//	<!-- from: PATH -->     the next block is this file of the repository, byte for byte
//	<!-- said -->           every `code` up to the next empty line is text that the program prints
type page struct {
	path   string
	lines  []string
	blocks []block
	start  string
}

type block struct {
	line   int // of its first line, from 1
	lang   string
	body   string
	marker string // "file: plans/a.yaml"; empty: none
}

func pages(t *testing.T) []page {
	t.Helper()
	paths, err := filepath.Glob("docs/*.md")
	if err != nil || len(paths) < 5 {
		t.Fatalf("found %d pages in docs: %v", len(paths), err)
	}
	var out []page
	for _, p := range append([]string{"README.md"}, paths...) {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, parsePage(t, p, string(b)))
	}
	return out
}

func parsePage(t *testing.T, path, text string) page {
	t.Helper()
	p := page{path: path, lines: strings.Split(text, "\n")}
	marker := ""
	for i := 0; i < len(p.lines); i++ {
		l := p.lines[i]
		if m, ok := strings.CutPrefix(l, "<!-- "); ok && strings.HasSuffix(m, " -->") {
			marker = strings.TrimSuffix(m, " -->")
			if s, ok := strings.CutPrefix(marker, "start: "); ok {
				p.start, marker = s, ""
			}
			continue
		}
		lang, ok := strings.CutPrefix(l, "```")
		if !ok {
			if strings.TrimSpace(l) != "" {
				marker = ""
			}
			continue
		}
		b := block{line: i + 2, lang: lang, marker: marker}
		for i++; i < len(p.lines) && p.lines[i] != "```"; i++ {
			b.body += p.lines[i] + "\n"
		}
		if i == len(p.lines) {
			t.Fatalf("%s:%d: this block is never closed", path, b.line)
		}
		p.blocks, marker = append(p.blocks, b), ""
	}
	return p
}

// TestLinks: a link to a file of this repository finds it, and one whose text is the name of a test finds that test:
// what the README promises is held by the test that it names.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\[([^]]*)\]\(([^)#]+)(#[^)]*)?\)|(?:src|srcset)="([^"]+)"`)
	tests := 0
	for _, p := range pages(t) {
		for i, l := range p.lines {
			for _, m := range link.FindAllStringSubmatch(l, -1) {
				target := m[2] + m[4]
				if strings.Contains(target, "://") {
					continue
				}
				b, err := os.ReadFile(filepath.Join(filepath.Dir(p.path), target))
				if info, serr := os.Stat(filepath.Join(filepath.Dir(p.path), target)); err != nil && (serr != nil || !info.IsDir()) {
					t.Errorf("%s:%d: %s is not there", p.path, i+1, target)
					continue
				}
				name := strings.Trim(m[1], "`")
				if !regexp.MustCompile(`^Test[A-Z]\w+$`).MatchString(name) {
					continue
				}
				tests++
				if !strings.Contains(string(b), "\nfunc "+name+"(t *testing.T) {") {
					t.Errorf("%s:%d: %s has no %s", p.path, i+1, target, name)
				}
			}
		}
	}
	if tests < 5 {
		t.Errorf("only %d links to tests: the README names the test of each promise", tests)
	}
}

// TestCopies: a block that shows a file of the repository shows it as it is.
func TestCopies(t *testing.T) {
	copies := 0
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			from, ok := strings.CutPrefix(b.marker, "from: ")
			if !ok {
				continue
			}
			copies++
			want, err := os.ReadFile(from)
			if err != nil {
				t.Error(err)
			} else if string(want) != b.body {
				t.Errorf("%s:%d: this is not %s as it is now", p.path, b.line, from)
			}
		}
	}
	if copies == 0 {
		t.Error("no block shows a file: the markers are not read")
	}
}

// TestQuotedTexts: what a page quotes from the program's mouth stands in its code. An … in a quotation stands for what
// the program fills in.
func TestQuotedTexts(t *testing.T) {
	var code strings.Builder
	for _, f := range goFiles(t) {
		if !strings.HasSuffix(f, "_test.go") {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			code.Write(b)
		}
	}
	quoted := 0
	for _, p := range pages(t) {
		said := false
		for i, l := range p.lines {
			switch {
			case l == "<!-- said -->":
				said = true
			case strings.TrimSpace(l) == "":
				said = false
			case said:
				for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(l, -1) {
					for part := range strings.SplitSeq(m[1], "…") {
						quoted++
						if !strings.Contains(code.String(), strings.TrimSpace(part)) {
							t.Errorf("%s:%d: no code says %q", p.path, i+1, strings.TrimSpace(part))
						}
					}
				}
			}
		}
	}
	if quoted < 5 {
		t.Errorf("only %d quoted texts: the markers are not read", quoted)
	}
}
