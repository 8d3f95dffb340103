// Command scale measures a dispatcher at work: a real S3 server, a real headway watch process, and many jobs that hold
// their leases. It prints each figure beside its target, in one run:
//
//	.ci/bench/scale 10000
//
// What is real: the server (its address comes in HEADWAY_TEST_S3), the watch and status processes, the plans and the Git
// repository, every record in the store, and each lease, which is captured and renewed by the worker's own code
// (witness.Capture, Holder.Renew) in thirds of its length. What is not: nothing computes. The leases of the first part
// are held by this process, so that they weigh nothing in what is measured; in the second part, 1,000 plans in one
// commit, the platform is the simulated one, whose workers live inside headway watch and do weigh.
//
// It exits with 1 when a measurement could not be made; a figure beyond its target is printed as one.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	jobs, plans int
	flood       int64
	lease       time.Duration
	measure     time.Duration
	headway     string
	keep        bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.IntVar(&o.jobs, "jobs", 1000, "jobs that hold their leases at once")
	flag.IntVar(&o.plans, "plans", 1000, "plans in the one commit of the second part; 0: leave it out")
	flag.Int64Var(&o.flood, "flood", 0, "measure one job that prints this many bytes a second, and nothing else")
	flag.DurationVar(&o.lease, "lease", 10*time.Minute, "length of each lease, renewed by thirds")
	flag.DurationVar(&o.measure, "measure", time.Minute, "how long to measure")
	flag.StringVar(&o.headway, "headway", "", "the headway binary")
	flag.BoolVar(&o.keep, "keep", false, "keep the folder of the plans and logs")
	flag.Parse()
	if flag.NArg() > 0 || o.jobs < 1 || o.plans < 0 || o.headway == "" || o.lease < 15*time.Second {
		fmt.Fprintln(os.Stderr, "scale: -headway names the binary, -jobs is 1 or more, -lease 15s or more, and nothing stands behind the flags; -h lists them")
		os.Exit(2)
	}
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		stop()
		os.Exit(1)
	}
}

// run makes all measurements, one after the other.
func run(ctx context.Context, o options) error {
	s, err := serverOf(os.Getenv("HEADWAY_TEST_S3"))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "headway-scale-")
	if err != nil {
		return err
	}
	if o.keep {
		fmt.Println("folder:", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	if o.flood > 0 {
		return flood(ctx, o, s, dir)
	}
	if err := held(ctx, o, s, dir); err != nil {
		return err
	}
	if o.plans == 0 {
		return nil
	}
	return committed(ctx, o, s, dir)
}
