package ringsim

import (
	"net"
	"sync"
	"time"
)

// link is one connection's outgoing queue. Its goroutine is the only writer. Its latency is its own and the same for every
// event: of two events of one instant, by two goroutines, it does not matter who was first.
type link struct {
	a    *agent
	c    net.Conn // nil: not dialled yet
	q    chan onWay
	stop chan struct{} // closed by the reader's end

	mu   sync.Mutex
	name string // whom it leads to
}

// onWay is an event and when it arrives.
type onWay struct {
	frame
	due time.Time
}

func newLink(a *agent, c net.Conn, name string) *link {
	l := &link{a: a, c: c, name: name, q: make(chan onWay, queueDepth), stop: make(chan struct{})}
	if c != nil {
		a.w.wg.Go(l.write)
	}
	return l
}

func (l *link) call(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.name = name
}

// latency is between 0.2 and 0.4 ms in virtual time, and none over TCP, which has its own.
func (l *link) latency() time.Duration {
	if _, virtual := l.a.w.net.(*lan); !virtual {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return 200*time.Microsecond + time.Duration(draw(l.a.w.cfg.Seed, "latency", l.a.m.Name, l.name)*float64(200*time.Microsecond))
}

func (l *link) put(f frame) bool { return enqueue(l.a, l.q, onWay{f, time.Now().Add(l.latency())}) }

func (l *link) close() { close(l.stop) }

// write sends what is queued to the peer that dialled.
func (l *link) write() {
	for {
		select {
		case f := <-l.q:
			if !sleep(l.a.ctx, time.Until(f.due)) || !l.a.gate.wait(l.a.ctx) || writeFrame(l.c, f.frame) != nil {
				return
			}
		case <-l.stop:
			return
		case <-l.a.ctx.Done():
			return
		}
	}
}

// last answers a FINISH; the connection ends with it.
func (l *link) last(f frame) {
	l.c.SetWriteDeadline(time.Now().Add(time.Second)) // a peer that has gone hears nothing
	writeFrame(l.c, frame{ID: "finish/" + l.a.m.Name + "/" + f.ID, Kind: kindFinish, To: f.Answer})
}

// outbound carries events to another agent, dialled from this host, for as long as this agent lives.
func (l *link) outbound(address string) {
	a := l.a
	defer func() {
		if l.c != nil {
			a.forget(l.c)
		}
	}()
	for {
		select {
		case f := <-l.q:
			if !sleep(a.ctx, time.Until(f.due)) || !a.gate.wait(a.ctx) {
				return
			}
			if !l.deliver(address, f.frame) {
				a.w.note(a.m.Name, "dropped %s: nobody at %s", f.ID, address)
			}
		case <-a.ctx.Done():
			return
		}
	}
}

// deliver writes one event, over a new connection where the old one has ended.
func (l *link) deliver(address string, f frame) bool {
	a := l.a
	for range 2 {
		if l.c == nil {
			c, err := a.w.net.dial(a.ctx, a.m.Name, address)
			if err != nil || !a.hold(c) {
				return false
			}
			l.c = c
			a.w.wg.Go(func() { a.drain(c) })
		}
		if writeFrame(l.c, f) == nil {
			return true
		}
		a.forget(l.c)
		l.c = nil
	}
	return false
}

// drain reads what comes back on a connection that this agent dialled: acknowledgements, on their way to a caller here.
func (a *agent) drain(c net.Conn) {
	for {
		f, err := readFrame(c)
		if err != nil || !a.gate.wait(a.ctx) {
			c.Close()
			return
		}
		a.route(f, nil)
	}
}
