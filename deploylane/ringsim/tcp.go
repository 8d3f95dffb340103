package ringsim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// tcp is the network of a process of its own: one host, and relays to the others, through their agents.
type tcp struct {
	host   string
	relays map[string]string // host → how its agent is reached from here
}

// StartTCP runs the agent of one host over TCP, until Close. What the rules say about time passes in real time.
func StartTCP(ctx context.Context, c Config) (*World, error) {
	if len(c.Hosts) != 1 {
		return nil, fmt.Errorf("%d hosts in one process: expected one", len(c.Hosts))
	}
	w := newWorld(ctx, c)
	w.hosts[c.Hosts[0].Name] = newMachine(c.Hosts[0])
	w.net = &tcp{host: c.Hosts[0].Name}
	if err := w.Restart(c.Hosts[0].Name); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Connect is a world without hosts of its own: a place for callers (Outer) of agents over TCP. Relays lead from a host's
// name to the address at which its agent is reached from here; through it that host's view of an address is had.
func Connect(ctx context.Context, relays map[string]string) *World {
	w := newWorld(ctx, Config{})
	w.net = &tcp{relays: relays}
	return w
}

func (t *tcp) listen(_, address string) (net.Listener, error) {
	return net.Listen("tcp", strings.TrimPrefix(address, "tcp://"))
}

func (t *tcp) dial(ctx context.Context, from, address string) (net.Conn, error) {
	var d net.Dialer
	if from == t.host {
		return d.DialContext(ctx, "tcp", strings.TrimPrefix(address, "tcp://"))
	}
	relay := t.relays[from]
	if relay == "" {
		return nil, fmt.Errorf("no relay leads to host %q", from)
	}
	c, err := d.DialContext(ctx, "tcp", strings.TrimPrefix(relay, "tcp://"))
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := writeFrame(c, frame{ID: "relay", Kind: kindRelay, Body: []byte(address)}); err != nil {
		c.Close()
		return nil, err
	}
	f, err := readFrame(c)
	if err == nil && f.Kind != kindReady {
		w, _ := unpack(f)
		err = errors.New(w.State)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}
