// Command standalone is one agent of the ring simulator as a process over TCP, for tests that need real sockets and
// network namespaces: what an address means is then the kernel's word, and no table's.
//
//	standalone agent LISTEN ADVERTISED [MODEL]
//
// It is a host as those of ringsim.Post, whose weights are read at once, and serves until it is
// ended. MODEL is a file that it has as its model, by the digest of what is in it.
package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/headway-run/headway/deploylane/ringsim"
)

func main() {
	if len(os.Args) < 4 || len(os.Args) > 5 || os.Args[1] != "agent" {
		fmt.Fprintln(os.Stderr, "usage: standalone agent LISTEN ADVERTISED [MODEL]")
		os.Exit(2)
	}
	if err := run(os.Args[2], os.Args[3], os.Args[4:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(listen, advertised string, models []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	h := ringsim.Post().Hosts[0]
	h.Name, h.Listen, h.Advertise = "here", listen, advertised
	h.ReadRate, h.Back = 1<<50, 10*time.Millisecond // real time: weights come at once, and memory comes back soon
	for _, file := range models {
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		h.Models[0].Path, h.Models[0].Digest = file, fmt.Sprintf("sha256:%x", sha256.Sum256(b))
	}
	w, err := ringsim.StartTCP(ctx, ringsim.Config{Hosts: []ringsim.Host{h}})
	if err != nil {
		return err
	}
	fmt.Println(w.Log("here")[0])
	<-ctx.Done()
	w.Close()
	return nil
}
