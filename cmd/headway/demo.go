package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/examples"
	"github.com/headway-run/headway/runners/audit"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/counting"
	"github.com/headway-run/headway/runners/bucket/open"
)

// demo is the whole road in a temporary folder, told as it happens. Everything in it is real: a Git repository, the
// loop as a process of its own, worker processes, a model that is trained, SIGKILL.
type demo struct {
	env
	dir   string // temporary folder
	repo  string
	path  string // folder in front of the PATH of what is launched; empty: none
	store bucket.Bucket
	watch *exec.Cmd
	logs  *os.File
	begin time.Time
}

func newDemo(e env) *cobra.Command {
	var keep bool
	c := &cobra.Command{Use: "demo", Short: "all of it in under two minutes, with a real training run that is killed on purpose", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			d := &demo{env: e, begin: time.Now()}
			err := d.run(c.Context())
			d.stopWatch()
			if keep || err != nil && d.dir != "" {
				fmt.Fprintf(e.stdout, "\nEverything is left for a look in %s\n  repository  %s\n  store       %s\n", d.dir, d.repo, filepath.Join(d.repo, stateFolder, "store"))
				return err
			}
			if d.dir != "" {
				return os.RemoveAll(d.dir)
			}
			return err
		}}
	c.Flags().BoolVar(&keep, "keep", false, "leave the repository and the store for a look")
	return c
}

// run is the story; each chapter checks what it says.
func (d *demo) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	for _, chapter := range []func(context.Context) error{d.prepare, d.train, d.kill, d.finish, d.change, d.revert, d.check} {
		if err := chapter(ctx); err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("the demo was stopped: %w", err)
			}
			return err
		}
	}
	d.say("\n%s %s from the first commit to the last check.", d.paint(green, "Done:"), ago(time.Since(d.begin)))
	return nil
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.stdout, format+"\n", args...) }

func (d *demo) chapter(format string, args ...any) {
	d.say("\n%s", d.paint(bold, fmt.Sprintf(format, args...)))
}

// prepare makes the repository from the example and commits it.
func (d *demo) prepare(ctx context.Context) (err error) {
	if d.dir, err = os.MkdirTemp("", "headway-demo-"); err != nil {
		return err
	}
	d.repo = filepath.Join(d.dir, "digits")
	digits, err := fs.Sub(examples.Digits, "digits")
	if err != nil {
		return err
	}
	if err := writeTree(digits, d.repo); err != nil {
		return err
	}
	python := ""
	if _, err := exec.LookPath("python3"); err != nil {
		// The same model over the Go client, inside this binary, under a name that the plan can use.
		python = " (no python3 here: its Go twin trains instead)"
		if err := d.useTwin(); err != nil {
			return err
		}
	}
	d.chapter("1. A plan is committed")
	d.say("A new Git repository with one plan: train a classifier on 1,797 handwritten digits, then test it%s.", python)
	if err := ignoreState(d.repo); err != nil {
		return err
	}
	d.show("plans/digits.yaml")
	hash, err := commitAll(d.repo, "train the digits")
	if err != nil {
		return err
	}
	d.say("committed %s", hash[:8])
	url := folderURL(filepath.Join(d.repo, stateFolder, "store"))
	if err := os.MkdirAll(filepath.Join(d.repo, stateFolder, "store"), 0o755); err != nil {
		return err
	}
	b, err := open.URL(ctx, url, open.Options{Create: true})
	if err != nil {
		return err
	}
	d.store = b
	return d.startWatch(ctx)
}

// useTwin makes the plan run this binary's own programs, found on the PATH under the name headway.
func (d *demo) useTwin() error {
	bin := filepath.Join(d.dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	if err := os.Symlink(d.self, filepath.Join(bin, "headway")); err != nil {
		return err
	}
	d.path = bin
	if err := d.edit("plans/digits.yaml", "run: python3 train.py", "run: headway example digits train"); err != nil {
		return err
	}
	return d.edit("plans/digits.yaml", "run: python3 backtest.py", "run: headway example digits backtest")
}

// show prints a file of the repository, indented.
func (d *demo) show(path string) {
	b, err := os.ReadFile(filepath.Join(d.repo, path))
	if err != nil {
		return
	}
	for _, l := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		if strings.HasPrefix(strings.TrimSpace(l), "#") {
			continue
		}
		d.say("    %s", d.paint(dim, l))
	}
}

// startWatch runs the loop as a process of its own; it is stopped by its pid alone.
func (d *demo) startWatch(ctx context.Context) (err error) {
	if d.logs, err = os.Create(filepath.Join(d.dir, "watch.log")); err != nil {
		return err
	}
	d.watch = exec.CommandContext(ctx, d.self, "-C", d.repo, "watch", "--interval", "500ms")
	d.watch.Stdout, d.watch.Stderr = d.logs, d.logs
	if d.path != "" {
		d.watch.Env = append(os.Environ(), "PATH="+d.path+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
	d.watch.Cancel = func() error { return d.watch.Process.Signal(os.Interrupt) }
	d.watch.WaitDelay = 10 * time.Second
	return d.watch.Start()
}

func (d *demo) stopWatch() {
	if d.watch == nil || d.watch.Process == nil {
		return
	}
	_ = d.watch.Process.Signal(os.Interrupt)
	_ = d.watch.Wait()
	_ = d.logs.Close()
	d.watch = nil
}

// edit replaces text in a file of the repository; the text must be there.
func (d *demo) edit(path, old, new string) error {
	name := filepath.Join(d.repo, path)
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if !strings.Contains(string(b), old) {
		return fmt.Errorf("%s does not hold %q: the example changed", path, old)
	}
	return os.WriteFile(name, []byte(strings.Replace(string(b), old, new, 1)), 0o644)
}

// check holds the invariants against what lies in the store, with every byte of every file.
func (d *demo) check(ctx context.Context) error {
	d.chapter("7. The invariants, checked on what lies in the store")
	d.stopWatch()
	counted := counting.New(d.store)
	report, err := audit.Check(ctx, counted, audit.Options{Deep: true})
	if err != nil {
		return err
	}
	if err := printAudit(d.env, report, nil); err != nil {
		return err
	}
	if len(report.Findings) > 0 {
		return fmt.Errorf("%d findings in the store: this is a defect of headway", len(report.Findings))
	}
	return nil
}

// writeTree writes an embedded example into a new folder.
func writeTree(src fs.FS, dst string) error {
	return fs.WalkDir(src, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dst, filepath.FromSlash(path))
		if entry.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		b, err := fs.ReadFile(src, path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, b, 0o644)
	})
}
