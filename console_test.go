package headway

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headway-run/headway/runners/process"
)

// TestConsole runs every console block of the README and of docs/ with the real binaries, in an empty folder for each
// page, and compares what is printed with what the page shows. "$ " begins a command; the lines after it are all of its
// output, where … stands for anything inside a line, and a line that is only … for any lines.
// A work's twelve digits stand for any, and two blanks or more for as many as a table needs.
func TestConsole(t *testing.T) {
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin, "./cmd/headway", "./cmd/headway-agent", "./cmd/headway-lane").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("pages", func(t *testing.T) { // ends when all of them have ended, so that the binaries stay until then
		for _, p := range pages(t) {
			commands := 0
			for _, b := range p.blocks {
				commands += len(b.commands())
			}
			if commands == 0 {
				continue
			}
			t.Run(p.path, func(t *testing.T) {
				t.Parallel()
				newSession(t, root, bin, p).play()
			})
		}
	})
}

// elsewhere are the commands of the README that are not run here, and what is checked instead: a table.
var elsewhere = map[string]func(t *testing.T, root string){
	"go run ./cmd/headway demo":                      demoIsRun,
	"bash .ci/run":                                   func(t *testing.T, root string) { exists(t, filepath.Join(root, ".ci", "run")) },
	"go install " + module + "/cmd/headway@latest":   func(t *testing.T, root string) { exists(t, filepath.Join(root, "cmd", "headway", "main.go")) },
	"git clone https://" + module + " && cd headway": func(t *testing.T, root string) { exists(t, filepath.Join(root, "go.mod")) },
	"headway demo":                                   demoIsRun,
}

// demoIsRun: .ci/run has a part that runs the very command of the README.
func demoIsRun(t *testing.T, root string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, ".ci", "run"))
	if err != nil {
		t.Fatal(err)
	}
	ci := string(b)
	if !regexp.MustCompile(`(?m)^demo\(\) \{[^}]*\bgo run \./cmd/headway demo\b`).MatchString(ci) || !regexp.MustCompile(`(?m)^parts=\(.*\bdemo\b`).MatchString(ci) {
		t.Error(".ci/run has no part that runs go run ./cmd/headway demo")
	}
}

func exists(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

type command struct {
	line int
	text string
	want []string
}

// commands cuts a console block into commands and what they print.
func (b block) commands() (out []command) {
	if b.lang != "console" {
		return nil
	}
	for i, l := range strings.Split(strings.TrimSuffix(b.body, "\n"), "\n") {
		if text, ok := strings.CutPrefix(l, "$ "); ok {
			out = append(out, command{line: b.line + i, text: text})
		} else if len(out) > 0 {
			out[len(out)-1].want = append(out[len(out)-1].want, l)
		}
	}
	return out
}

// pattern is what the output of a command must match, whole.
func (c command) pattern() *regexp.Regexp {
	var re strings.Builder
	re.WriteString(`^`)
	for _, l := range c.want {
		if l == "…" {
			re.WriteString(`(?:.*\n)*?`)
			continue
		}
		l = strings.ReplaceAll(regexp.QuoteMeta(strings.TrimRight(l, " ")), "…", ".*")
		l = regexp.MustCompile(`\b[0-9a-f]{12}\b`).ReplaceAllString(l, "[0-9a-f]{12}") // a work
		re.WriteString(regexp.MustCompile(` {2,}`).ReplaceAllString(l, " {2,}") + `[ ]*\n`)
	}
	re.WriteString(`$`)
	return regexp.MustCompile(re.String())
}

// expectsError: a command that ends with 1 must be shown to, so that an … does not hide an error.
func (c command) expectsError() bool {
	return strings.HasPrefix(strings.Join(c.want, "\n"), "error: ") || strings.Contains(c.text, "$?")
}

// session is the shell of one page: commands share a folder and remember where they went.
type session struct {
	t          *testing.T
	page       page
	root, home string
	dir        string
	last       int // exit code
	env        []string
}

func newSession(t *testing.T, root, bin string, p page) *session {
	t.Helper()
	home := t.TempDir()
	s := &session{t: t, page: p, root: root, home: home, dir: filepath.Join(home, "here")}
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s.env = []string{"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"), "HOME=" + home, "LANG=C.UTF-8",
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_NAME=reader", "GIT_AUTHOR_EMAIL=reader@example.com",
		"GIT_COMMITTER_NAME=reader", "GIT_COMMITTER_EMAIL=reader@example.com"}
	if p.start != "" {
		if err := os.CopyFS(s.dir, os.DirFS(filepath.Join(root, filepath.FromSlash(p.start)))); err != nil {
			t.Fatal(err)
		}
		s.must("git init -q -b main && printf '/.headway/\\n__pycache__/\\n' >.gitignore && git add -A && git commit -qm start")
	}
	t.Cleanup(s.end)
	return s
}

// end kills what a page that failed half-way has left running; what ran to its end has left nothing.
func (s *session) end() {
	found, err := process.Find("HEADWAY_STORE=dir://" + filepath.ToSlash(s.dir) + "/.headway/store")
	if err != nil {
		s.t.Error(err)
	}
	for _, p := range found {
		_ = syscall.Kill(p.PID, syscall.SIGKILL)
	}
}

func (s *session) play() {
	for _, b := range s.page.blocks {
		if path, ok := strings.CutPrefix(b.marker, "file: "); ok {
			to := filepath.Join(s.dir, filepath.FromSlash(strings.TrimSuffix(path, ", refused")))
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				s.t.Fatal(err)
			}
			if err := os.WriteFile(to, []byte(b.body), 0o644); err != nil {
				s.t.Fatal(err)
			}
		}
		for _, c := range b.commands() {
			if check, ok := elsewhere[c.text]; ok {
				check(s.t, s.root)
				continue
			}
			s.check(c)
		}
	}
}

// looks are the verbs that only look: a reader asks them again until they show what the page shows, and so does this.
var looks = regexp.MustCompile(`^headway (status|log|events|explain)\b`)

func (s *session) check(c command) {
	s.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		got := s.shell(c.text)
		if c.pattern().MatchString(got) && (s.last != 1 || c.expectsError()) {
			return
		}
		if !looks.MatchString(c.text) || time.Now().After(deadline) {
			s.t.Fatalf("%s:%d: $ %s\nshows:\n%s\nprints:\n%s", s.page.path, c.line, c.text, strings.Join(c.want, "\n"), got)
		}
		<-time.After(100 * time.Millisecond)
	}
}

func (s *session) must(line string) {
	s.t.Helper()
	if out := s.shell(line); s.last != 0 {
		s.t.Fatalf("%s: %d\n%s", line, s.last, out)
	}
}

// shell runs one line as a terminal would show it: both streams in one.
func (s *session) shell(line string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	out, err := os.Create(filepath.Join(s.home, "output"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer out.Close()
	where := filepath.Join(s.home, "where")
	cmd := exec.CommandContext(ctx, "bash", "-c", `(exit "$1"); eval "$2"; rc=$?; pwd >"$3"; exit $rc`, "bash", strconv.Itoa(s.last), line, where)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.dir, s.env, out, out
	err = cmd.Run()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		s.t.Fatalf("%s: %v", line, err)
	}
	s.last = cmd.ProcessState.ExitCode()
	if ctx.Err() != nil {
		s.t.Fatalf("%s: did not end within three minutes", line)
	}
	if b, err := os.ReadFile(where); err == nil {
		s.dir = strings.TrimSpace(string(b))
	}
	b, err := os.ReadFile(out.Name())
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}
