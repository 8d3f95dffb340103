package ringsim

import (
	"io"
	"net"
	"sync"
)

// relay connects a caller with an address as this host sees it, which is what SSH's own forwarding would do: it is how a
// caller looks at an edge from where the edge begins.
func (a *agent) relay(c net.Conn, f frame) {
	to, err := a.w.net.dial(a.ctx, a.m.Name, string(f.Body))
	if err != nil {
		writeFrame(c, frame{ID: "relay/" + f.ID, Kind: kindFailed, Body: pack(work{State: err.Error()})})
		return
	}
	if !a.hold(to) {
		return
	}
	defer a.forget(to)
	if writeFrame(c, frame{ID: "relay/" + f.ID, Kind: kindReady}) != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { io.Copy(to, c); to.Close() })
	both.Go(func() { io.Copy(c, to); c.Close() })
	both.Wait()
}
