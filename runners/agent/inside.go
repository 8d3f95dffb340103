package agent

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"sync"
	"syscall"

	"github.com/headway-run/headway/runners/agent/guard"
)

// Inside runs the program in the agent's own process, for simulations and tests: no child process, no Unix socket, no
// measuring, so that a run lives in the fake time of a testing/synctest bubble and many stand beside each other. All
// between the program and the store is the same as ever. There is no guardian and none is needed: nothing outlives
// the process.
type Inside struct {
	// Program is the user's program; it returns its exit code, or 128+15 where SIGTERM ended it. ctx ends with SIGKILL:
	// its connections are closed by then, and it must return.
	Program func(ctx context.Context, p Program) (code int)
	// Life ends when the machine is lost: the program is killed and Run returns, by way of requests that fail at once.
	// Whoever ends it must see to it that Config.Bucket lets no request through from then on. nil: never.
	Life  context.Context
	Facts map[string]string // the fingerprint

	// Config.Scratch, where it is set, must exist. What dead runs left in it is not looked for.
}

// Program is what a program inside the process is given.
type Program struct {
	Argv   []string
	Dir    string    // its working folder; the process's own is another
	Env    []string  // its environment; the process's own is another
	Output io.Writer // stdout and stderr
	Term   context.Context
	Dial   func() (net.Conn, error) // a new connection to the agent's socket; closed when the program ends
}

// process is a started program; *guard.Process is one.
type process interface {
	Done() <-chan struct{}
	Ended() guard.Ended
	Signal(s syscall.Signal)
}

var (
	_ process = (*guard.Process)(nil)
	_ process = (*inner)(nil)
)

// life is the context of everything that a notice to leave must not interrupt.
func (c *Config) life(ctx context.Context) context.Context {
	if c.Inside != nil && c.Inside.Life != nil {
		return c.Inside.Life
	}
	return context.WithoutCancel(ctx)
}

// scratch makes the folder for this run's files.
func (c *Config) scratch() (*scratch, error) {
	if c.Inside != nil && c.Scratch != "" {
		return ownScratch(c.Scratch)
	}
	return newScratch(c.Scratch)
}

// inner is a program inside the process.
type inner struct {
	term  context.CancelFunc
	kill  context.CancelFunc
	done  chan struct{}
	ended guard.Ended
}

// startInside starts it; the store's context ending kills it.
func startInside(store context.Context, in *Inside, c guard.Command, ln *pipes) *inner {
	ctx, kill := context.WithCancel(store)
	term, asked := context.WithCancel(ctx)
	p := &inner{term: asked, kill: kill, done: make(chan struct{})}
	hangUp := context.AfterFunc(ctx, ln.hangUp)
	go func() {
		defer close(p.done)
		defer kill()
		code := in.Program(ctx, Program{Argv: c.Argv, Dir: c.Dir, Env: c.Env, Output: c.Output, Term: term, Dial: ln.dial})
		p.ended = guard.Ended{Code: code}
		switch {
		case ctx.Err() != nil:
			p.ended = guard.Ended{Code: 128 + int(syscall.SIGKILL), Signal: syscall.SIGKILL}
		case term.Err() != nil && code == 128+int(syscall.SIGTERM):
			p.ended.Signal = syscall.SIGTERM
		}
		hangUp()
		ln.hangUp()
	}()
	return p
}

// Done implements process.
func (p *inner) Done() <-chan struct{} { return p.done }

// Ended implements process.
func (p *inner) Ended() guard.Ended { <-p.done; return p.ended }

// Signal implements process.
func (p *inner) Signal(s syscall.Signal) {
	if s == syscall.SIGKILL {
		p.kill()
		return
	}
	p.term()
}

// facts are the measured ones' stand-in.
func (in *Inside) facts() map[string]string { return maps.Clone(in.Facts) }

// pipes is a listener whose connections stay inside the process.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once

	mu    sync.Mutex
	gone  bool       // the program has ended
	nears []net.Conn // its ends
}

var _ net.Listener = (*pipes)(nil)

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

var errHungUp = errors.New("the agent's socket is closed")

// dial is the program's side.
func (l *pipes) dial() (net.Conn, error) {
	near, far := net.Pipe()
	l.mu.Lock()
	gone := l.gone
	l.nears = append(l.nears, near)
	l.mu.Unlock()
	if gone {
		return nil, errHungUp
	}
	select {
	case l.conns <- far:
		return near, nil
	case <-l.closed:
		return nil, errHungUp
	}
}

// hangUp closes what the program has open, as the kernel does at a process's end.
func (l *pipes) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = true
	for _, c := range l.nears {
		_ = c.Close()
	}
	l.nears = nil
}

// Accept implements net.Listener.
func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *pipes) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *pipes) Addr() net.Addr { return &net.UnixAddr{Name: insideSocket, Net: "unix"} }

// insideSocket is HEADWAY_SOCKET of a program that has to use Program.Dial instead.
const insideSocket = "inside"
