// Command headway sees jobs finished on executors that owe it nothing: it reads plans from a Git repository, holds
// them against the leases in an object store, and launches, recovers and stops work. Here are the verbs and nothing
// else: flags in, calls out.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// version is set at release: -ldflags "-X main.version=…".
var version = "dev"

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	os.Exit(run(ctx, environment()))
}
