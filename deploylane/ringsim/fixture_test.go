package ringsim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/deploylane/ring"
	"github.com/headway-run/headway/deploylane/ringsim"
)

const (
	h1 = "tcp://h1.ring:42011"
	h2 = "tcp://h2.ring:42012"
	// generation is of a load by the clock in milliseconds, as the post's was.
	generation = 1_789_000_000_000
)

// careless is a caller without guards: it sends what it has.
type careless struct {
	t *testing.T
	w *ringsim.World
	*ringsim.Outer
	route ring.Route
	meta  []ring.Metadata
	body  []ring.StageLoad
	via   []string
}

// world runs f in virtual time over a world; in the end no goroutine may be left.
func world(t *testing.T, c ringsim.Config, f func(*testing.T, *careless)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, err := ringsim.Start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		f(t, caller(t, w, "lane", generation))
	})
}

// caller is what the post's plan says: four stages on two hosts, everything right.
func caller(t *testing.T, w *ringsim.World, name string, load uint64) *careless {
	c := &careless{t: t, w: w, Outer: w.Outer(name), route: ring.Route{Via: h1, Load: load}}
	cuts := []int{0, 12, 23, 34, 45}
	for i := range 4 {
		agent := []string{h1, h1, h2, h2}[i]
		c.route.Stages = append(c.route.Stages, ring.Hop{Agent: agent, Node: fmt.Sprintf("step37-s%d", i)})
		c.via = append(c.via, agent)
	}
	for i := range 4 {
		bound := uint64(137_935_244)
		if i == 3 {
			bound = 3_696_012
		}
		c.meta = append(c.meta, ring.Metadata{Schema: 1, Node: c.route.Stages[i].Node, Generation: load,
			Adapter: ring.AdapterKind, AdapterContent: ring.AdapterContentLoad, Queue: 64, Completion: 192 << 20, RetainedSlots: 4, Retained: 256 << 20})
		layers := [2]int{cuts[i], cuts[i+1]}
		c.body = append(c.body, ring.StageLoad{Schema: 4, Ring: "step37", Load: load, Stage: i, Stages: c.route.Stages,
			Model: ringsim.PostModel, Digest: ringsim.PostDigest, Layers: layers, KV: layers, Override: []string{"others=CPU"},
			Device: "ROCm0", Mask: fmt.Sprint(2 * (i % 2)), Endpoint: fmt.Sprintf("127.0.0.1:%d", 42100+i),
			Batch: 128, UBatch: 32, Context: 4096, Parallel: 8, Output: 1024, Bound: bound, Needs: []string{"physical-v4"}})
	}
	return c
}

func (c *careless) command(i int, content string, body any) ring.Command {
	b, err := json.Marshal(body)
	if err != nil {
		c.t.Fatal(err)
	}
	m := c.meta[i]
	if content == ring.ContentUnload {
		m.AdapterContent = ring.AdapterContentUnload
	}
	return ring.Command{Via: c.via[i], Target: ring.Target{Kind: ring.ToAgent, Agent: c.route.Stages[i].Agent},
		Envelope: ring.Envelope{Content: content, Meta: m, Body: b}}
}

// answered is what came of one command.
type answered struct {
	ring.Answer
	err error
}

// load sends all four at once and hears every one out.
func (c *careless) load() []answered {
	var commands []ring.Command
	for i := range c.body {
		commands = append(commands, c.command(i, ring.ContentLoad, c.body[i]))
	}
	return c.send(commands)
}

// send sends all, each a moment after the one before, and hears every one out, for at most an hour each. What happens in
// one instant has no order, and a test that counts on one would be wrong now and then.
func (c *careless) send(commands []ring.Command) []answered {
	out := make([]answered, len(commands))
	var all sync.WaitGroup
	for i := range commands {
		all.Go(func() {
			later(time.Duration(i) * 10 * time.Millisecond)
			ctx, cancel := context.WithTimeout(c.t.Context(), time.Hour)
			defer cancel()
			out[i].Answer, out[i].err = c.Load(ctx, commands[i])
		})
	}
	all.Wait()
	return out
}

func (c *careless) unload(i int) (ring.Answer, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	return c.Unload(ctx, c.command(i, ring.ContentUnload, ring.StageUnload{Schema: 4, Ring: "step37", Load: c.route.Load}))
}

// mustLoad loads a ring that the test takes for granted.
func (c *careless) mustLoad() {
	c.t.Helper()
	for i, a := range c.load() {
		if a.err != nil || a.Status != ring.Succeeded || a.Resource != ring.Present {
			c.t.Fatalf("stage %d: %+v", i, a)
		}
	}
}

// ask is one whole round: session, request, receipt, finish.
func (c *careless) ask(id string) (ring.Reply, error) {
	return c.query(ring.Query{ID: id, Prompt: ringsim.Render("say " + id), MaxTokens: 32})
}

func (c *careless) query(q ring.Query) (ring.Reply, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	s, err := c.Session(ctx, c.route)
	if err != nil {
		return ring.Reply{}, err
	}
	defer func() {
		end, cancel := context.WithTimeout(c.t.Context(), time.Minute)
		defer cancel()
		s.Finish(end)
	}()
	r, err := s.Request(ctx, q)
	if err != nil {
		return r, err
	}
	_, err = s.Settle(ctx, r)
	return r, err
}

func (c *careless) inspect(address string) ring.Inspection {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	in, err := c.Inspect(ctx, "", address)
	if err != nil {
		c.t.Fatal(err)
	}
	return in
}

// later lets virtual time pass.
func later(d time.Duration) { time.Sleep(d) }
