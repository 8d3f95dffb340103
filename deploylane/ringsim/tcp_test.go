package ringsim_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/headway-run/headway/deploylane/ring"
	"github.com/headway-run/headway/deploylane/ringsim"
)

// The same agents over TCP on the loopback: a ring of two hosts that is loaded, asked and unloaded, seen from a peer.
func TestOverTCP(t *testing.T) {
	t.Parallel() // it waits more than it computes
	var agents []string
	relays := map[string]string{}
	for i := range 2 {
		h := ringsim.Post().Hosts[i]
		agents = append(agents, overTCP(t, h))
		relays[h.Name] = agents[i]
	}
	c := twoStages(t, ringsim.Connect(t.Context(), relays), agents)
	c.mustLoad()
	for _, id := range []string{"one", "two"} {
		if r, err := c.ask(id); err != nil || r.Stop != ring.StopEnd || string(r.Text) != string(ringsim.Answer(ringsim.Render("say "+id))) {
			t.Errorf("%s: %+v %v", id, r, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if in, err := c.Inspect(ctx, "", agents[0]); err != nil || in.Agent != agents[0] {
		t.Errorf("from here: %+v %v", in, err)
	}
	if in, err := c.Inspect(ctx, "h1", agents[1]); err != nil || in.Agent != agents[1] || len(in.Nodes) != 1 {
		t.Errorf("from h1: %+v %v", in, err)
	}
	if _, err := c.Inspect(ctx, "h1", "tcp://127.0.0.1:1"); !errors.As(err, new(ring.Unreachable)) {
		t.Errorf("where nobody listens: %v", err)
	}
	again := ringsim.Connect(t.Context(), relays) // a process that starts anew, of the same name
	defer again.Close()
	if in, err := again.Outer("lane").Inspect(ctx, "", agents[0]); err != nil || in.Agent != agents[0] {
		t.Errorf("the next of its name: %+v %v", in, err)
	}
	for i := range 2 {
		if a, err := c.unload(i); err != nil || a.Status != ring.Succeeded {
			t.Errorf("%+v %v", a, err)
		}
	}
}

// overTCP starts a host's agent on a port of the loopback.
func overTCP(t *testing.T, h ringsim.Host) string {
	t.Helper()
	at, _ := startTCP(t, h)
	return at
}

// startTCP takes a port that was free a moment ago; somebody else may have it now.
func startTCP(t *testing.T, h ringsim.Host) (string, *ringsim.World) {
	t.Helper()
	var last error
	for range 50 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		at := "tcp://" + l.Addr().String()
		l.Close()
		h.Listen, h.Advertise, h.ReadRate = at, at, 1<<50
		w, err := ringsim.StartTCP(t.Context(), ringsim.Config{Hosts: []ringsim.Host{h}})
		if last = err; err == nil {
			t.Cleanup(w.Close)
			return at, w
		}
	}
	t.Fatal(last)
	return "", nil
}

// twoStages is a ring of two stages on two agents over TCP.
func twoStages(t *testing.T, w *ringsim.World, agents []string) *careless {
	t.Cleanup(w.Close)
	c := caller(t, w, "lane", generation)
	c.meta, c.body, c.route.Via, c.via = c.meta[:2], c.body[:2], agents[0], agents
	c.route.Stages = nil
	for i, at := range agents {
		c.route.Stages = append(c.route.Stages, ring.Hop{Agent: at, Node: c.meta[i].Node})
	}
	for i := range c.body {
		c.body[i].Stages, c.body[i].Layers, c.body[i].KV = c.route.Stages, [2]int{i * 22, 22 + i*23}, [2]int{i * 22, 22 + i*23}
	}
	c.body[1].Bound = 3_696_012
	return c
}
