package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/open"
)

// server is the S3 server of the tests, as .ci/s3server says it.
type server struct {
	Endpoint string `json:"endpoint"`
	Access   string `json:"access"`
	Secret   string `json:"secret"`
	Region   string `json:"region"`
	Bucket   string `json:"bucket"`
}

func serverOf(line string) (server, error) {
	var s server
	if err := json.Unmarshal([]byte(line), &s); err != nil {
		return s, fmt.Errorf("HEADWAY_TEST_S3 does not describe a server (%w): run .ci/bench/scale", err)
	}
	return s, nil
}

// url is a store of its own on this server.
func (s server) url(prefix string) string {
	q := url.Values{"endpoint": {s.Endpoint}, "region": {s.Region}, "path_style": {"true"}}
	return "s3://" + s.Bucket + "/" + prefix + "?" + q.Encode()
}

func (s server) env(name string) string {
	return map[string]string{"AWS_ACCESS_KEY_ID": s.Access, "AWS_SECRET_ACCESS_KEY": s.Secret, "AWS_REGION": s.Region}[name]
}

func (s server) open(ctx context.Context, prefix string) (bucket.Bucket, error) {
	return open.URL(ctx, s.url(prefix), open.Options{Getenv: s.env})
}

// project is a folder with plans, under Git.
type project struct {
	dir string
	s   server
	o   options
}

// perFile is how many jobs stand in one plan file of the first part.
const perFile = 100

const config = `headway: v1
store: %q
plans: [plans/**/*.yaml]
platforms:
  here: {runner: local, slots: 1}
  moon: {runner: sim, slots: 100000, start: 10ms, steps: 100000, step: 30s, milestone: 100000}
defaults:
  on: [moon]
`

// newProject makes the folder and its first commit: one job that is suspended.
func newProject(ctx context.Context, o options, s server, dir, name string) (*project, error) {
	p := &project{dir: filepath.Join(dir, name), s: s, o: o}
	if err := os.MkdirAll(filepath.Join(p.dir, "plans"), 0o755); err != nil {
		return nil, err
	}
	files := map[string]string{"headway.yaml": fmt.Sprintf(config, s.url(name)), ".gitignore": ".headway/\n",
		"plans/first.yaml": "jobs:\n  first:\n    kind: train\n    run: 'true'\n    suspend: true\n"}
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(p.dir, file), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	if err := p.git(ctx, "init", "-q", "-b", "main"); err != nil {
		return nil, err
	}
	return p, p.commit(ctx)
}

func (p *project) commit(ctx context.Context) error {
	if err := p.git(ctx, "add", "-A"); err != nil {
		return err
	}
	return p.git(ctx, "commit", "-q", "-m", "plans")
}

func (p *project) git(ctx context.Context, args ...string) error {
	c := exec.CommandContext(ctx, "git", append([]string{"-C", p.dir, "-c", "user.name=scale", "-c", "user.email=scale@example.com"}, args...)...)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(out))
	}
	return nil
}

// plans writes n jobs, each to a file, and commits them. The files stand in folders of a hundred.
func (p *project) plans(ctx context.Context, n, each int) error {
	for from := 0; from < n; from += each {
		var b strings.Builder
		b.WriteString("jobs:\n")
		for i := from; i < min(from+each, n); i++ {
			fmt.Fprintf(&b, "  job-%05d:\n    kind: train\n    run: train --width ${params.width} --rate ${params.rate}\n    params: {width: %d, rate: 0.001}\n    seed: %d\n    labels: {team: vision, sweep: s%d}\n    limits: {retries: 3}\n", i, 64+i%8*64, i, i/100)
		}
		dir := filepath.Join(p.dir, "plans", fmt.Sprintf("%03d", from/each/100))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%05d.yaml", from)), []byte(b.String()), 0o644); err != nil {
			return err
		}
	}
	return p.commit(ctx)
}

// works reads the plan as the product does.
func (p *project) works() ([]plan.Job, error) {
	read, problems := plan.Load(plan.NewMemTree(p.files()))
	for _, q := range problems {
		if q.Severity == plan.Error {
			return nil, fmt.Errorf("the bench's own plan: %s", q)
		}
	}
	var jobs []plan.Job
	for _, j := range read.Jobs {
		if !j.Suspend {
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}

func (p *project) files() map[string]string {
	out := map[string]string{}
	files, _ := filepath.Glob(filepath.Join(p.dir, "plans", "*", "*.yaml"))
	more, _ := filepath.Glob(filepath.Join(p.dir, "plans", "*.yaml"))
	code, _ := filepath.Glob(filepath.Join(p.dir, "prog", "*"))
	for _, f := range slices.Concat(files, more, code, []string{filepath.Join(p.dir, "headway.yaml")}) {
		if b, err := os.ReadFile(f); err == nil {
			rel, _ := filepath.Rel(p.dir, f)
			out[filepath.ToSlash(rel)] = string(b)
		}
	}
	return out
}
