//go:build linux

// Command chaos is the lease protocol in real processes: rounds of headway watch, agents and training programs against a
// real S3 server behind a proxy that fails on command, while processes are killed, paused and asked to leave, the network
// is cut and slow, the disk full, and the server restarted. Every round must end with everything finished, results that
// are bit-identical to an undisturbed run's, a store without findings, a platform that says it runs
// nothing any more, and no process left. The workers of rounds with an odd number are headway-agent, the others headway agent.
//
//	go run ./proof/chaos -rounds 100
//	go run ./proof/chaos -seed 7 -from 41 -rounds 1 -keep    makes one round of that seed again
//
// It exits with 1 when a round was broken, a sort of disturbance never met anybody, or of too many writes the kernel could
// not say whose they were, and keeps the folders of such rounds.
// The worker's disk is filled only where this process may mount one; where not, it says so once and counts none.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.IntVar(&o.rounds, "rounds", 10, "how many")
	flag.IntVar(&o.from, "from", 1, "number of the first one")
	flag.Uint64Var(&o.seed, "seed", 1, "of the schedules")
	flag.IntVar(&o.lanes, "lanes", 6*runtime.NumCPU(), "rounds at a time; most of a round is waiting for leases to run out")
	flag.StringVar(&o.dir, "dir", "", "folder for the rounds (default: a temporary one)")
	flag.BoolVar(&o.keep, "keep", false, "keep the folders of all rounds")
	flag.StringVar(&o.build, "build", os.Getenv("HEADWAY_BUILD"), "folder for what is built (default: in -dir)")
	flag.StringVar(&o.headway, "headway", "", "the headway binary (default: built)")
	flag.DurationVar(&o.limit, "limit", 6*time.Minute, "for one round")
	flag.Parse()
	if flag.NArg() > 0 || o.rounds < 1 || o.lanes < 1 || o.from < 1 {
		fmt.Fprintln(os.Stderr, "chaos: -rounds, -lanes and -from are 1 or more, and nothing stands behind the flags; -h lists them")
		os.Exit(2)
	}
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		stop()
		os.Exit(1)
	}
}
