// Command short gives the real reconciler thousands of jobs that run for a fraction of a second each, on a simulated platform
// with few places, in real time: what is measured is the dispatcher alone, since the jobs do nothing. It prints the time
// that it took beside the least that any dispatcher could take, what the dispatcher itself used of it, and the published
// figure of another scheduler's test that has the same mix of sizes and runtimes, with what that one stands for.
//
//	go run ./proof/short -jobs 15000 -places 600 -machine 20 -store mem
//	go run ./proof/short -jobs 15000 -places 150 -alike
//
// It exits with 1 when a job did not finish, or was launched twice.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime/pprof"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/bucket/open"
)

func main() {
	var c config
	flag.IntVar(&c.jobs, "jobs", 15_000, "how many")
	flag.IntVar(&c.places, "places", 600, "units of all machines together; a job takes 1, 5 or 20 of them")
	flag.IntVar(&c.machine, "machine", 20, "units of one machine, which is what one launch takes")
	flag.BoolVar(&c.alike, "alike", false, "each job takes one place, and has its launch for itself")
	store := flag.String("store", "mem", "mem, or a store URL: dir:///path, s3://bucket/prefix?…")
	profile := flag.String("cpuprofile", "", "write a CPU profile to this file")
	limit := flag.Duration("limit", time.Hour, "give up after this time")
	flag.Parse()
	if c.alike {
		c.machine = 1
	}
	if flag.NArg() > 0 || c.jobs < 1 || c.places < 1 || c.machine < 1 || c.places%c.machine != 0 || !c.alike && c.machine < mix[0].units {
		fmt.Fprintf(os.Stderr, "short: expected -jobs of at least 1, -places a multiple of -machine, -machine of at least %d unless -alike, and nothing behind the flags\n", mix[0].units)
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), *limit)
	defer cancel()
	if err := bench(ctx, c, *store, *profile); err != nil {
		fmt.Fprintln(os.Stderr, "short:", err)
		os.Exit(1)
	}
}

func bench(ctx context.Context, c config, store, profile string) error {
	b, err := openStore(ctx, store)
	if err != nil {
		return err
	}
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	got, err := run(ctx, c, b)
	if err != nil {
		return err
	}
	got.print(os.Stdout, c, store)
	return got.broken()
}

func openStore(ctx context.Context, url string) (bucket.Bucket, error) {
	if url == "mem" {
		return mem.New(), nil
	}
	return open.URL(ctx, url, open.Options{Getenv: os.Getenv, Create: true})
}
