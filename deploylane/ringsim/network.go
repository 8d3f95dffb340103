package ringsim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
)

// network is how hosts reach one another.
type network interface {
	listen(host, address string) (net.Listener, error)
	dial(ctx context.Context, from, address string) (net.Conn, error)
}

// lan is a network in memory. What an address means depends on who dials it.
type lan struct {
	w  *World
	mu sync.Mutex
	up []*listener
}

// split takes tcp://host:port or host:port apart.
func split(address string) (host, port string, err error) {
	host, port, err = net.SplitHostPort(strings.TrimPrefix(address, "tcp://"))
	if err != nil {
		return "", "", fmt.Errorf("address %q: expected tcp://host:port", address)
	}
	return host, port, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func unspecified(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

func (l *lan) listen(host, address string) (net.Listener, error) {
	bind, port, err := split(address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, other := range l.up {
		if other.host == host && other.port == port {
			return nil, fmt.Errorf("listen %s: address already in use", address)
		}
	}
	in := &listener{lan: l, host: host, port: port, local: loopback(bind), backlog: make(chan net.Conn, 128), down: make(chan struct{})}
	l.up = append(l.up, in)
	return in, nil
}

// dial connects as far as a kernel does: to a backlog. That somebody accepts is not said.
func (l *lan) dial(ctx context.Context, from, address string) (net.Conn, error) {
	name, port, err := split(address)
	if err != nil {
		return nil, err
	}
	host, ok := l.resolve(from, name)
	if !ok && l.w.cfg.Rules.OneNetwork || l.w.cfg.Rules.OneNetwork && (loopback(name) || unspecified(name)) {
		host, ok = l.advertised(address)
	}
	if !ok {
		return nil, errors.New("no such host")
	}
	in := l.at(host, port)
	if in == nil || in.local && host != from {
		return nil, errors.New("connection refused")
	}
	here, there := net.Pipe()
	select {
	case in.backlog <- there:
		return here, nil
	case <-in.down:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// resolve says which host a name is, asked on a host; "" is the caller's own, which knows everybody by name.
func (l *lan) resolve(from, name string) (string, bool) {
	if loopback(name) || unspecified(name) {
		return from, true
	}
	names := l.w.cfg.Names
	if m := l.w.hosts[from]; m != nil {
		names = m.names()
	}
	if names != nil {
		to, ok := names[name]
		return to, ok
	}
	for _, h := range l.w.cfg.Hosts {
		if other, _, err := split(h.Advertise); h.Name == name || err == nil && other == name {
			return h.Name, true
		}
	}
	return "", false
}

func (l *lan) advertised(address string) (string, bool) {
	for _, h := range l.w.cfg.Hosts {
		if h.Advertise == address {
			return h.Name, true
		}
	}
	return "", false
}

func (l *lan) at(host, port string) *listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, in := range l.up {
		if in.host == host && in.port == port {
			return in
		}
	}
	return nil
}

type listener struct {
	lan        *lan
	host, port string
	local      bool // bound to the loopback
	backlog    chan net.Conn
	once       sync.Once
	down       chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.backlog:
		return c, nil
	case <-l.down:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.down)
		l.lan.mu.Lock()
		defer l.lan.mu.Unlock()
		for i, in := range l.lan.up {
			if in == l {
				l.lan.up = append(l.lan.up[:i:i], l.lan.up[i+1:]...)
				break
			}
		}
		for {
			select {
			case c := <-l.backlog:
				c.Close()
			default:
				return
			}
		}
	})
	return nil
}

func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: l.host + ":" + l.port, Net: "lan"} }
