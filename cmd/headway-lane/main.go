// Command headway-lane releases models: it reads signed tags from a Git repository and takes each from its candidate to its
// release, with rights of its own. Here are the verbs and nothing else: flags in, calls out.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// version is set at release: -ldflags "-X main.version=…".
var version = "dev"

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if !worker(os.Args) {
		if err := hide(); err != nil {
			fmt.Fprintf(os.Stderr, "warning: programs of this user can read the lane's memory: %v\n", err)
		}
	}
	os.Exit(run(ctx, environment()))
}

// worker says that this process is a worker's: its runner finds it by its environment, and it holds no key of the lane.
func worker(args []string) bool { return len(args) > 1 && (args[1] == "agent" || args[1] == "worker") }
