package ringsim

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/headway-run/headway/deploylane/ring"
)

// finishTime bounds the wait for the peer's word on a FINISH.
const finishTime = 5 * time.Second

// maxHeard bounds what a caller remembers of what it heard.
const maxHeard = 1 << 14

// Outer is a caller: it alone knows the placement, and dials from a host of its own that resolves every name.
type Outer struct {
	w    *World
	name string

	mu     sync.Mutex
	count  map[string]int
	events []ring.Event // the newest maxHeard
	heard  uint64       // how many there were
	open   map[*channel]bool
}

var _ ring.Engine = (*Outer)(nil)

// Outer makes a caller. Two that live at once should have two names; one that comes after another of its name is told
// apart by its number, and over TCP by a word of its own: agents outlive callers, and what they have seen before they drop.
func (w *World) Outer(name string) *Outer {
	if _, real := w.net.(*tcp); real {
		name += "~" + rand.Text()
	}
	w.mu.Lock()
	w.callers[name]++
	if n := w.callers[name]; n > 1 {
		name = fmt.Sprintf("%s~%d", name, n)
	}
	w.mu.Unlock()
	return &Outer{w: w, name: name, count: map[string]int{}, open: map[*channel]bool{}}
}

// Vanish is the caller's own SIGKILL: every connection ends, without FINISH.
func (o *Outer) Vanish() {
	o.mu.Lock()
	open := maps.Clone(o.open)
	o.mu.Unlock()
	for c := range open {
		c.drop()
	}
}

// key names an exchange after what it is about, so that names do not depend on who came first.
func (o *Outer) key(format string, args ...any) string {
	base := o.name + "/" + strings.ReplaceAll(fmt.Sprintf(format, args...), "/", "|")
	o.mu.Lock()
	defer o.mu.Unlock()
	o.count[base]++
	return fmt.Sprintf("%s#%d", base, o.count[base])
}

func (o *Outer) event(f frame, w work) string {
	hop := few(w.Source)
	if w.Node != "" {
		hop = fmt.Sprintf("%s@%d at %s", few(w.Node), w.Gen, hop)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.heard++; len(o.events) >= maxHeard { // an agent that never stops does not fill the caller's memory
		o.events = append([]ring.Event(nil), o.events[maxHeard/2:]...)
	}
	o.events = append(o.events, ring.Event{Number: o.heard, At: time.Now(), Hop: hop, Kind: few(f.Kind), Node: few(w.Node), Generation: w.Gen, Detail: few(w.State)})
	return fmt.Sprintf("%s (%s)", hop, few(f.Kind))
}

// few bounds what is remembered of an agent's words.
func few(s string) string { return s[:min(len(s), 300)] }

// Events is ring.Engine's.
func (o *Outer) Events(_ context.Context, after uint64) ([]ring.Event, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := sort.Search(len(o.events), func(i int) bool { return o.events[i].Number > after })
	return append([]ring.Event(nil), o.events[i:]...), nil
}

// Inspect is ring.Engine's.
func (o *Outer) Inspect(ctx context.Context, from ring.Viewpoint, address string) (ring.Inspection, error) {
	began, key := time.Now(), o.key("inspect %s from %s", address, from)
	c, err := o.dial(ctx, from, address, key)
	if err != nil {
		return ring.Inspection{}, o.unreached(ctx, began, from, address, "INSPECT", err)
	}
	defer c.finish(ctx)
	x := c.begin(key)
	// Whom it is for is what is asked: the agent that answers at this address, whatever it calls itself.
	c.send(frame{ID: key, Kind: kindInspect, To: target{Kind: ring.ToAgent}, Answer: target{Kind: toOuter, Channel: c.name}})
	f, w, err := x.wait(ctx, began, address, "INSPECT")
	if err != nil {
		return ring.Inspection{}, err
	}
	if f.Kind != kindInspected || w.Report == nil {
		return ring.Inspection{}, ring.Foreign{From: address, Why: fmt.Sprintf("%q to an INSPECT", few(f.Kind))}
	}
	in := *w.Report
	in.From, in.Dialled = from, address
	return in, nil
}

// Load is ring.Engine's.
func (o *Outer) Load(ctx context.Context, c ring.Command) (ring.Answer, error) {
	return o.command(ctx, c, kindLoad, "LOAD")
}

// Unload is ring.Engine's.
func (o *Outer) Unload(ctx context.Context, c ring.Command) (ring.Answer, error) {
	return o.command(ctx, c, kindUnload, "UNLOAD")
}

func (o *Outer) command(ctx context.Context, c ring.Command, kind, what string) (ring.Answer, error) {
	body, err := c.Envelope.Encode()
	if err != nil {
		return ring.Answer{}, err
	}
	began, key := time.Now(), o.key("%s %s@%d to %s", kind, c.Envelope.Meta.Node, c.Envelope.Meta.Generation, c.Target)
	ch, err := o.dial(ctx, "", c.Via, key)
	if err != nil {
		return ring.Answer{}, o.unreached(ctx, began, "", c.Via, what, err)
	}
	defer ch.finish(ctx)
	x := ch.begin(key)
	ch.send(frame{ID: key, Kind: kind, Content: c.Envelope.Content, Body: body, Answer: target{Kind: toOuter, Channel: ch.name},
		To: target{Kind: c.Target.Kind, Agent: c.Target.Agent, Node: c.Target.Node, Generation: c.Target.Generation}})
	f, w, err := x.wait(ctx, began, c.Target.String(), what)
	switch {
	case err != nil:
		return ring.Answer{}, err
	case f.Kind == kindNoNode:
		return ring.Answer{Schema: 1, Agent: w.Source, Node: c.Target.Node, Generation: c.Target.Generation, Status: ring.Rejected, Resource: ring.Absent, Detail: "UnknownNode"}, nil
	case f.Kind != kindResult || w.Result == nil:
		return ring.Answer{}, ring.Foreign{From: c.Target.String(), Why: fmt.Sprintf("%q to a %s", few(f.Kind), what)}
	}
	return *w.Result, nil
}

// unreached is the error of a dial: nothing was sent.
func (o *Outer) unreached(ctx context.Context, began time.Time, from ring.Viewpoint, address, what string, err error) error {
	if ctx.Err() != nil {
		return ring.NoAnswer{To: address, What: what, After: time.Since(began)}
	}
	return ring.Unreachable{From: from, Address: address, Why: err.Error()}
}

// channel is one connection of a caller.
type channel struct {
	o    *Outer
	c    net.Conn
	name string
	out  chan frame
	done chan struct{} // the reader's end
	quit chan struct{} // the writer's
	once sync.Once
	bye  chan struct{} // the peer's FINISH

	mu   sync.Mutex
	subs map[string]*exchange
}

// exchange is what is heard about one thing that was sent.
type exchange struct {
	c     *channel
	heard chan frame
	last  string
}

// dial opens the connection of one exchange, and names it after that.
func (o *Outer) dial(ctx context.Context, from ring.Viewpoint, address, key string) (*channel, error) {
	conn, err := o.w.net.dial(ctx, string(from), address)
	if err != nil {
		return nil, err
	}
	c := &channel{o: o, c: conn, name: "channel/" + key, out: make(chan frame, 256),
		done: make(chan struct{}), quit: make(chan struct{}), bye: make(chan struct{}), subs: map[string]*exchange{}}
	o.mu.Lock()
	o.open[c] = true
	o.mu.Unlock()
	o.w.wg.Go(c.read)
	o.w.wg.Go(c.write)
	return c, nil
}

// drop ends the connection as it is.
func (c *channel) drop() {
	c.once.Do(func() { close(c.quit) })
	c.c.Close()
	c.o.mu.Lock()
	delete(c.o.open, c)
	c.o.mu.Unlock()
}

func (c *channel) send(f frame) {
	if f.Kind != kindInspect && f.Kind != kindFinish {
		c.o.w.note("", "sent %s to %s", f.Kind, cmp.Or(f.To.Node, f.To.Agent))
	}
	select {
	case c.out <- f:
	case <-c.done:
	case <-c.quit:
	}
}

func (c *channel) write() {
	for {
		select {
		case f := <-c.out:
			if writeFrame(c.c, f) != nil {
				return
			}
		case <-c.quit:
			return
		case <-c.done:
			return
		}
	}
}

func (c *channel) read() {
	defer close(c.done)
	for {
		f, err := readFrame(c.c)
		if err != nil {
			return
		}
		if f.Kind == kindFinish {
			close(c.bye)
			return
		}
		w, err := unpack(f)
		if err != nil {
			continue
		}
		last := c.o.event(f, w)
		if x := c.sub(w, f); x != nil {
			c.mu.Lock()
			x.last = last
			c.mu.Unlock()
			select {
			case x.heard <- f:
			default: // more than anybody asked for
			}
		}
	}
}

// sub finds whom a frame is for: a request's own name, or that of the event that it acknowledges, which begins with it.
func (c *channel) sub(w work, f frame) *exchange {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range []string{w.Request, strings.TrimPrefix(f.ID, "result/"), strings.TrimPrefix(f.ID, "inspected/")} {
		for id != "" {
			if x := c.subs[id]; x != nil {
				return x
			}
			id = id[:max(strings.LastIndex(id, "/"), 0)]
		}
	}
	return nil
}

func (c *channel) begin(key string) *exchange {
	x := &exchange{c: c, heard: make(chan frame, 256)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subs[key] = x
	return x
}

// wait is the next thing heard that is more than an acknowledgement; every silence has a name.
func (x *exchange) wait(ctx context.Context, began time.Time, to, what string) (frame, work, error) {
	for {
		var f frame
		select {
		case f = <-x.heard: // what was heard before the end counts, unless nothing of it is an answer
			if ctx.Err() != nil && (f.Kind == kindQueued || f.Kind == kindAccepted) {
				return frame{}, work{}, x.silence(began, to, what, "")
			}
		default:
			select {
			case f = <-x.heard:
			case <-x.c.done:
				return frame{}, work{}, x.silence(began, to, what, "; then the connection ended")
			case <-ctx.Done():
				return frame{}, work{}, x.silence(began, to, what, "")
			}
		}
		switch f.Kind {
		case kindQueued, kindAccepted: // not an answer
		case kindFull:
			return frame{}, work{}, ring.Busy{To: to, Depth: queueDepth}
		default:
			w, err := unpack(f)
			return f, w, err
		}
	}
}

func (x *exchange) silence(began time.Time, to, what, more string) error {
	x.c.mu.Lock()
	defer x.c.mu.Unlock()
	last := x.last
	if last != "" || more != "" {
		last = strings.TrimPrefix(last+more, "; ")
	}
	return ring.NoAnswer{To: to, What: what, After: time.Since(began), Last: last}
}

// finish ends the connection as it should be. Where the context is over it goes on beside: the slot must come back.
func (c *channel) finish(ctx context.Context) error {
	if ctx.Err() != nil {
		c.o.w.wg.Go(func() { c.goodbye(c.o.w.ctx) })
		return ctx.Err()
	}
	return c.goodbye(ctx)
}

func (c *channel) goodbye(ctx context.Context) error {
	defer c.drop()
	t := time.NewTimer(finishTime)
	defer t.Stop()
	c.send(frame{ID: c.name + "/finish", Kind: kindFinish, Answer: target{Kind: toOuter, Channel: c.name}})
	select {
	case <-c.bye:
		return nil
	case <-c.done:
		select {
		case <-c.bye:
			return nil
		default:
			return errors.New("the connection ended before its FINISH was answered")
		}
	case <-t.C:
		return ring.NoAnswer{To: c.name, What: "FINISH", After: finishTime}
	case <-ctx.Done():
		return ctx.Err()
	}
}
