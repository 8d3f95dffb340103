package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// origin is the bare repository that is watched, written by git fast-import.
type origin struct {
	dir string
	c   config
	n   int // commits so far

	begun bool // the stream has a commit
}

const headwayYAML = `headway: v1
name: bench
store: embedded
plans: [plans/**/*.yaml]
platforms:
  here: {runner: local, slots: 1000}
defaults:
  on: [here]
`

// path and body are the i-th file. The job is suspended: the loop has everything to decide, and launches what a commit asks for.
func (o *origin) path(i int) string {
	perTeam := o.c.projects * o.c.jobs
	return fmt.Sprintf("plans/team-%02d/project-%02d/job-%02d.yaml", i/perTeam, i%perTeam/o.c.jobs, i%o.c.jobs)
}

func body(i, revision int) string { return planFile(i, revision, i, true) }

// planFile is one plan file. A job that is not suspended is to be launched.
func planFile(i, revision, seed int, suspend bool) string {
	return fmt.Sprintf(`jobs:
  job-%05d:
    run: python3 train.py --lr ${params.lr} --seed ${seed}
    params: {lr: 0.05, model: net-%d}
    seed: %d
    suspend: %v
    milestones: {every: 200 steps}
    labels: {team: t%02d}
    notes: revision %d
`, i, i%7, seed, suspend, i/500, revision)
}

// make writes the whole history: one commit with every file, then commits that change up to four files each.
func (o *origin) make(ctx context.Context) error {
	if err := run(ctx, "", "git", "init", "-q", "--bare", "-b", "main", o.dir); err != nil {
		return err
	}
	return o.stream(ctx, func(w *bufio.Writer) {
		o.commit(w, "all of it", func() {
			file(w, "headway.yaml", headwayYAML)
			for i := range o.c.files() {
				file(w, o.path(i), body(i, 0))
			}
		})
		for k := 1; k < o.c.commits; k++ {
			o.commit(w, fmt.Sprintf("change %d", k), func() {
				for f := range 4 {
					i := (k*7919 + f*104729) % o.c.files()
					file(w, o.path(i), body(i, k))
				}
			})
		}
	})
}

// one puts a commit of one file on top: its job gets another seed, so that it is other work, and is suspended or to be launched.
func (o *origin) one(ctx context.Context, launch bool) error {
	i := o.n * 31 % o.c.files()
	return o.stream(ctx, func(w *bufio.Writer) {
		o.commit(w, fmt.Sprintf("one file, %d", o.n), func() { file(w, o.path(i), planFile(i, o.n, 1_000_000+o.n, !launch)) })
	})
}

func (o *origin) commit(w *bufio.Writer, message string, content func()) {
	fmt.Fprintf(w, "commit refs/heads/main\ncommitter Ann <ann@example.com> %d +0000\ndata %d\n%s\n", 1_700_000_000+o.n, len(message), message)
	if o.n > 0 && !o.begun { // within one stream a branch goes on by itself
		fmt.Fprint(w, "from refs/heads/main^0\n")
	}
	o.begun = true
	content()
	fmt.Fprintln(w)
	o.n++
}

func file(w *bufio.Writer, path, body string) {
	fmt.Fprintf(w, "M 100644 inline %s\ndata %d\n%s\n", path, len(body), body)
}

// stream feeds git fast-import.
func (o *origin) stream(ctx context.Context, write func(*bufio.Writer)) error {
	cmd := exec.CommandContext(ctx, "git", "-C", o.dir, "fast-import", "--quiet", "--force")
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.Discard, &said
	if err := cmd.Start(); err != nil {
		return err
	}
	w := bufio.NewWriterSize(in, 1<<20)
	o.begun = false
	write(w)
	flushed := w.Flush()
	if err := in.Close(); err != nil && flushed == nil {
		flushed = err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("git fast-import: %w: %s", err, strings.TrimSpace(said.String()))
	}
	return flushed
}

func run(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
