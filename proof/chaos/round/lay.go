//go:build linux

package round

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"time"

	"github.com/headway-run/headway/examples"
)

//go:embed paced.py
var paced []byte

// Shape is how large the work of a round is. The works of all rounds of one shape are the same.
type Shape struct {
	Trainings int           // jobs, of different seeds; the first one's model is then scored by a backtest
	Steps     int64         // of one training
	Every     int64         // steps between milestones
	Pace      time.Duration // pause before each step
	Rows      int           // of the data
}

// Usual takes some four seconds when nobody disturbs it.
func Usual() Shape {
	return Shape{Trainings: 3, Steps: 300, Every: 20, Pace: 10 * time.Millisecond, Rows: 200}
}

// Jobs are the names of the trainings.
func (s Shape) Jobs() (names []string) {
	for i := range s.Trainings {
		names = append(names, fmt.Sprintf("digits-%d", i+1))
	}
	return names
}

const config = `headway: v1
store: "%s"
plans: [plans/*.yaml]
platforms:
  here: {runner: local, slots: %d, scratch: "%s", grace: %s, capture: %s}
defaults:
  on: [here]
  limits: {retries: 60}
`

// job needs nothing but the standard library: looking for more (without -S) takes most of a short program's time.
const job = `  %s:
    kind: train
    code: ../digits
    run: python3 -S paced.py --lr 0.05 --hidden 6 --batch 4 --steps %d --seed ${seed}
    seed: %d
    env: {PACE: "%g"}
    milestones: {every: %d steps}
    metrics: {val_accuracy: higher}
`

const backtest = `  backtest:
    kind: backtest
    needs: [digits-1]
    code: ../digits
    run: python3 -S backtest.py --model ${needs.digits-1}
    score: {name: accuracy, at_least: 0.1}
`

// lay writes the plan repository of a round and commits it: the digits example, smaller.
func (r *run) lay() error {
	plan := "jobs:\n"
	for i, name := range r.c.Shape.Jobs() {
		plan += fmt.Sprintf(job, name, r.c.Shape.Steps, i+1, r.c.Shape.Pace.Seconds(), r.c.Shape.Every)
	}
	files := map[string][]byte{
		"headway.yaml":      fmt.Appendf(nil, config, r.c.Server.URL(r.proxy.Addr(), r.prefix), r.c.Shape.Trainings+1, r.scratch(), grace, capture),
		"plans/digits.yaml": []byte(plan + backtest),
		"digits/paced.py":   paced,
		".gitignore":        []byte(".headway/\n"),
	}
	err := fs.WalkDir(examples.Digits, "digits/digits", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files["digits/"+path.Base(p)], err = fs.ReadFile(examples.Digits, p)
		return err
	})
	if err != nil {
		return err
	}
	if files["digits/digits.csv.gz"], err = first(files["digits/digits.csv.gz"], r.c.Shape.Rows); err != nil {
		return err
	}
	for name, body := range files {
		name = filepath.Join(r.repo(), filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, body, 0o644); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"}, {"commit", "-qm", "a small plan"}} {
		if err := r.git(args...); err != nil {
			return err
		}
	}
	return nil
}

// first keeps the first rows of the data.
func first(packed []byte, rows int) ([]byte, error) {
	in, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	lines := bufio.NewScanner(in)
	for n := 0; n < rows && lines.Scan(); n++ {
		if _, err := fmt.Fprintln(w, lines.Text()); err != nil {
			return nil, err
		}
	}
	err = errors.Join(lines.Err(), w.Close())
	return out.Bytes(), err
}

func (r *run) git(args ...string) error {
	c := exec.Command("git", args...)
	c.Dir = r.repo()
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull,
		"GIT_AUTHOR_NAME=chaos", "GIT_AUTHOR_EMAIL=chaos@example.com", "GIT_COMMITTER_NAME=chaos", "GIT_COMMITTER_EMAIL=chaos@example.com")
	if out, err := r.output(c); err != nil {
		return fmt.Errorf("git %v: %w\n%s", args, err, out)
	}
	return nil
}

// output runs a command to its end and returns what it printed.
func (r *run) output(c *exec.Cmd) ([]byte, error) {
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := r.c.Family.Start(c); err != nil {
		return nil, err
	}
	err := r.c.Family.Wait(c)
	return out.Bytes(), err
}
