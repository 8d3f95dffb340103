package headway

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/deploylane"
	"github.com/headway-run/headway/deploylane/tag"
	"github.com/headway-run/headway/plan"
)

// help asks the real program for the help of a verb; "" for that of the whole.
type help struct {
	bin  string
	seen map[string]string
}

func newHelp(t *testing.T) *help {
	t.Helper()
	h := &help{bin: filepath.Join(t.TempDir(), "headway"), seen: map[string]string{}}
	if out, err := exec.Command("go", "build", "-o", h.bin, "./cmd/headway").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return h
}

func (h *help) of(t *testing.T, verb string) string {
	t.Helper()
	if text, ok := h.seen[verb]; ok {
		return text
	}
	args := []string{"--help"}
	if verb != "" {
		args = []string{verb, "--help"}
	}
	out, err := exec.Command(h.bin, args...).CombinedOutput()
	if err != nil && verb != "agent" { // the worker has flags of its own and prints its usage as an error
		t.Fatalf("headway %s --help: %v", verb, err)
	}
	h.seen[verb] = string(out)
	return string(out)
}

// verbs lists what `headway --help` names.
func (h *help) verbs(t *testing.T) (out []string) {
	t.Helper()
	for l := range strings.SplitSeq(h.of(t, ""), "\n") {
		if m := regexp.MustCompile(`^  ([a-z]+)  +\S`).FindStringSubmatch(l); m != nil && m[1] != "help" && m[1] != "headway" {
			out = append(out, m[1])
		}
	}
	slices.Sort(out)
	return out
}

// TestVerbs: docs/cli.md has a row for every verb, and only for verbs that exist; every flag that any page names
// behind a verb is one of that verb; every page that a help text names is there.
func TestVerbs(t *testing.T) {
	h := newHelp(t)
	known := h.verbs(t)
	var documented []string
	for _, p := range pages(t) {
		for i, l := range p.lines {
			row := regexp.MustCompile("^\\| (`[a-z]+[^|]*`) \\|").FindStringSubmatch(l)
			if p.path == filepath.FromSlash("docs/cli.md") && row != nil {
				for _, m := range regexp.MustCompile("`([a-z]+)").FindAllStringSubmatch(row[1], -1) {
					documented = append(documented, m[1])
				}
				checkFlags(t, h, p.path, i+1, documented[len(documented)-1], l)
			}
			for _, after := range strings.Split(l, "headway ")[1:] {
				m := regexp.MustCompile("^(?:-C \\S+ )?([a-z]+)((?: [^|&;>`]*)?)").FindStringSubmatch(after)
				if m != nil && slices.Contains(known, m[1]) {
					checkFlags(t, h, p.path, i+1, m[1], m[2])
				} else if m != nil && (strings.Contains(l, "$ headway "+m[1]) || strings.Contains(l, "`headway "+m[1])) {
					t.Errorf("%s:%d: headway has no verb %s", p.path, i+1, m[1])
				}
			}
		}
	}
	for _, verb := range known {
		for _, name := range regexp.MustCompile(`docs/[\w-]+\.md`).FindAllString(h.of(t, verb), -1) {
			exists(t, name)
		}
	}
	slices.Sort(documented)
	if diff := cmp.Diff(known, documented); diff != "" {
		t.Errorf("verbs (-headway --help +docs/cli.md):\n%s", diff)
	}
}

// checkFlags: every --flag and -f in text is in the help of verb.
func checkFlags(t *testing.T, h *help, path string, line int, verb, text string) {
	t.Helper()
	for _, m := range regexp.MustCompile("(?:^|[ `(])(--[a-z][a-z-]*|-[a-zA-Z]\\b)").FindAllStringSubmatch(text, -1) {
		if !regexp.MustCompile(`(?m)(^|[ ,])` + regexp.QuoteMeta(m[1]) + `([ ,]|$)`).MatchString(h.of(t, verb)) {
			t.Errorf("%s:%d: headway %s has no %s", path, line, verb, m[1])
		}
	}
}

// TestFieldsTable: the tables of fields in docs/plan-files.md are what `headway schema fields` prints. UPDATE=1
// rewrites them.
func TestFieldsTable(t *testing.T) {
	const path, begin, end = "docs/plan-files.md", "<!-- fields -->\n", "<!-- /fields -->\n"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), begin)
	inside, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no %s … %s", path, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	want := plan.FieldsMarkdown()
	if inside == want {
		return
	}
	if os.Getenv("UPDATE") == "" {
		t.Fatalf("the tables in %s are not those of headway schema fields; UPDATE=1 go test . -run FieldsTable rewrites them:\n%s", path, cmp.Diff(want, inside))
	}
	if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestYAML: every YAML block of a page is accepted as it stands: a whole headway.yaml, a whole plan file, or some
// fields of a job; or a whole lane/lane.yaml or lane/policy.yaml.
func TestYAML(t *testing.T) {
	found := 0
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			if b.lang != "yaml" || strings.Contains(b.marker, "refused") {
				continue
			}
			found++
			if strings.HasPrefix(b.body, "lane:") { // lane/lane.yaml
				if _, err := deploylane.Read(deploylane.File, []byte(b.body), []string{"local"}); err != nil {
					t.Errorf("%s:%d: this block is not accepted: %v", p.path, b.line, err)
				}
				continue
			}
			if strings.HasPrefix(b.body, "stages:") { // lane/policy.yaml
				if _, err := tag.ReadPolicy([]byte(b.body)); err != nil {
					t.Errorf("%s:%d: this block is not accepted: %v", p.path, b.line, err)
				}
				continue
			}
			config := "headway: v1\nplatforms:\n  here: {runner: local, slots: 2}\n  kaggle: {runner: local, gpu: [T4x2]}\n  vast: {runner: local, gpu: [RTX_4090, A100]}\ndefaults: {on: [here]}\n"
			text := "jobs:\n  base: {run: python3 train.py, code: ../code}\n"
			switch {
			case regexp.MustCompile(`(?m)^headway:`).MatchString(b.body):
				config = b.body
			case regexp.MustCompile(`(?m)^jobs:`).MatchString(b.body):
				text = b.body
			default:
				text += "  it:\n    run: python3 other.py\n    code: ../code\n    " + strings.ReplaceAll(strings.TrimSpace(b.body), "\n", "\n    ") + "\n"
			}
			files := map[string]string{"headway.yaml": config, "plans/a.yaml": text}
			for _, code := range regexp.MustCompile(`code: \.\./(\w+)`).FindAllStringSubmatch(text, -1) {
				files[code[1]+"/train.py"] = "\n"
			}
			if _, problems := plan.Load(plan.NewMemTree(files)); len(problems) > 0 {
				t.Errorf("%s:%d: this block is not accepted: %v", p.path, b.line, problems)
			}
		}
	}
	if found < 5 {
		t.Errorf("only %d YAML blocks: the pages are not read", found)
	}
}

// TestNotActedOnYet keeps the list of fields without an effect true: a field that some code outside of plan reads must
// leave it, and one that none reads must be in it.
func TestNotActedOnYet(t *testing.T) {
	b, err := os.ReadFile("docs/plan-files.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(b), "## Not acted on yet\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var code strings.Builder
	shown := []string{"reconcile/platform.go", "reconcile/census.go", "reconcile/crew.go"} // what watches for changes of the configuration, prints a price, groups jobs
	for _, f := range goFiles(t) {
		if !strings.HasSuffix(f, "_test.go") && !strings.HasPrefix(filepath.ToSlash(f), "plan/") && !slices.Contains(shown, filepath.ToSlash(f)) {
			src, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			code.Write(src)
		}
	}
	for field, selector := range map[string]string{
		"limits.wall": ".Limits.Wall", "limits.paid": ".Limits.Paid", "limits.price": ".Limits.Price", "limits.parallel": ".Limits.Parallel",
		"limits.retries": ".Limits.Retries", "max_price": ".MaxPrice", "score": ".Score.AtLeast", "priority": ".Priority", "suspend": ".Suspend",
		"requires": ".Requires", "metrics": ".Metrics", "trust": ".Trust",
	} {
		used, listed := regexp.MustCompile(regexp.QuoteMeta(selector)+`\b`).MatchString(code.String()), strings.Contains(section, "`"+field+"`")
		if used == listed {
			t.Errorf("%s: code reads it: %v; docs/plan-files.md says that nothing acts on it: %v", field, used, listed)
		}
	}
}
