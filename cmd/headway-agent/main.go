// Command headway-agent is the worker's binary: it runs one dispatch on this machine. See runners/agent.
package main

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/headway-run/headway/runners/agent"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/open"
	"github.com/headway-run/headway/runners/pyclient"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	code := agent.Main(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr, agent.Deps{Open: store, Python: pyclient.FS})
	stop()
	os.Exit(code)
}

// store opens the team's store with the keys of the environment that was handed to the agent.
func store(ctx context.Context, url string, environ []string) (bucket.Bucket, error) {
	return open.URL(ctx, url, open.Options{Getenv: func(name string) string {
		for _, e := range environ {
			if k, v, _ := strings.Cut(e, "="); k == name {
				return v
			}
		}
		return ""
	}})
}
