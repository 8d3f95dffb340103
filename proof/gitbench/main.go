// Command gitbench makes a plan repository of 20,000 files and 5,000 commits, serves it with git's own HTTP backend, and
// measures what a loop over it costs beside git itself: a look that finds nothing new beside git ls-remote, and a commit of
// one file that is fetched, read, held against what was accepted and decided on beside git fetch and git diff. It prints
// the memory of the real `headway watch` on the same repository, and the time of a large diff as Markdown.
//
//	go run ./proof/gitbench -headway bin/headway
//
// Nothing fails because a machine is slow: it prints ratios. It needs git.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// config is the size of the repository and how often each thing is done.
type config struct {
	teams, projects, jobs int // files: teams × projects × jobs, one job each
	commits               int
	rounds                int
	headway               string // binary for the memory of watch; empty: left out
}

func (c config) files() int { return c.teams * c.projects * c.jobs }

func main() {
	c := config{teams: 40, projects: 25, jobs: 20}
	flag.IntVar(&c.commits, "commits", 5000, "how many")
	flag.IntVar(&c.rounds, "rounds", 7, "how often each thing is measured; the median counts")
	flag.IntVar(&c.teams, "teams", 40, "folders of 500 files")
	flag.StringVar(&c.headway, "headway", "", "the binary whose memory is measured; left out, it is not")
	at := flag.String("serve", "", "serve the repositories in this folder and print the address (the benchmark starts itself with it)")
	flag.Parse()
	ctx := context.Background()
	var err error
	switch {
	case *at != "":
		err = serve(*at)
	case flag.NArg() > 0 || c.commits < 1 || c.rounds < 1 || c.teams < 1:
		fmt.Fprintln(os.Stderr, "gitbench: expected -commits, -rounds and -teams of at least 1, and nothing behind the flags")
		os.Exit(2)
	default:
		err = bench(ctx, c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gitbench:", err)
		os.Exit(1)
	}
}

func bench(ctx context.Context, c config) error {
	dir, err := os.MkdirTemp("", "gitbench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	o := &origin{dir: filepath.Join(dir, "plans.git"), c: c}
	start := time.Now()
	if err := o.make(ctx); err != nil {
		return err
	}
	fmt.Printf("%d files with a job each, %d commits, made in %s\n", c.files(), c.commits, time.Since(start).Round(time.Second))
	url, stop, err := served(dir)
	if err != nil {
		return err
	}
	defer stop()
	for _, step := range []func(context.Context, config, string, *origin, string) error{polls, commits, memory, markdown} {
		if err := step(ctx, c, dir, o, url); err != nil {
			return err
		}
	}
	return nil
}

// median is the middle one.
func median(ds []time.Duration) time.Duration {
	slices.Sort(ds)
	return ds[len(ds)/2]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/1e6) }
