package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/headway-run/headway/runners/agent/courier"
	"github.com/headway-run/headway/runners/agent/files"
	"github.com/headway-run/headway/runners/agent/journal"
)

// maxConns bounds how many connections a program may hold open at a time.
const maxConns = 64

// writeLimit is how long a program may leave an answer unread before its connection is given up.
const writeLimit = 10 * time.Second

// server speaks PROTOCOL.md with the programs of one attempt.
type server struct {
	d       *desk
	k       *courier.Courier
	work    string
	attempt int64
	resume  resumeAnswer
	cwd     string // what a relative milestone path is relative to

	dir    string
	ln     net.Listener
	inside *pipes // ln, for a program inside this process; nil otherwise
	wg     sync.WaitGroup
	mu     sync.Mutex
	loop   *conn          // nil: none said hello, or it has ended
	all    map[*conn]bool // open ones

	noted time.Time // of the last note that was kept
}

// conn is one connection. Its lines are handled in order by one goroutine; pushes come from others.
type conn struct {
	net.Conn
	mu sync.Mutex // one writer at a time
}

// listen opens the socket and returns what the program finds in HEADWAY_SOCKET.
func (r *run) listen(s *server) (path string, err error) {
	if r.c.Inside == nil {
		return s.listen(r.scratch.dir)
	}
	s.inside, s.all = newPipes(), map[*conn]bool{}
	s.ln = s.inside
	return insideSocket, nil
}

// listen opens the socket in a folder of its own that only this user may enter. Socket paths are bounded at about
// 100 bytes, so a long scratch folder is given up for the temporary one, and that for /tmp.
func (s *server) listen(scratch string) (path string, err error) {
	for _, base := range []string{scratch, os.TempDir(), "/tmp"} {
		s.dir, err = os.MkdirTemp(base, "hw") // mode 0700
		if err != nil {
			continue
		}
		path = filepath.Join(s.dir, "s")
		if s.ln, err = net.Listen("unix", path); err == nil {
			s.all = map[*conn]bool{}
			return path, nil
		}
		_ = os.Remove(s.dir) // empty
	}
	return "", fmt.Errorf("open the program's socket: %w", err)
}

// serve accepts until close is called.
func (s *server) serve(ctx context.Context) {
	s.wg.Go(func() {
		for {
			c, err := s.ln.Accept()
			if err != nil {
				return // closed
			}
			s.mu.Lock()
			if len(s.all) >= maxConns {
				s.mu.Unlock()
				_ = c.Close()
				continue
			}
			held := &conn{Conn: c}
			s.all[held] = true
			s.mu.Unlock()
			s.wg.Go(func() { s.talk(ctx, held) })
		}
	})
}

// close ends all connections and waits for their goroutines.
func (s *server) close() {
	_ = s.ln.Close()
	s.mu.Lock()
	for c := range s.all {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
	_ = os.RemoveAll(s.dir)
}

// ask pushes to the loop that its next step must ask. False: there is no loop.
func (s *server) ask() bool {
	s.mu.Lock()
	c := s.loop
	s.mu.Unlock()
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.SetWriteDeadline(time.Now().Add(writeLimit))
	_, err := c.Write([]byte(pushAsk))
	return err == nil
}

func (c *conn) answer(v any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.SetWriteDeadline(time.Now().Add(writeLimit))
	return writeLine(c, v)
}

func (s *server) talk(ctx context.Context, c *conn) {
	defer func() {
		s.mu.Lock()
		delete(s.all, c)
		if s.loop == c {
			s.loop = nil
		}
		s.mu.Unlock()
		_ = c.Close()
	}()
	in := bufio.NewScanner(c)
	in.Buffer(nil, maxLine+1)
	in.Split(wholeLines)
	for in.Scan() {
		if !s.line(ctx, c, in.Bytes()) {
			return
		}
	}
	if errors.Is(in.Err(), bufio.ErrTooLong) {
		_ = c.answer(answer{Error: "bad_request", Text: fmt.Sprintf("a line of more than %d bytes", maxLine)})
	}
}

// line handles one line; false ends the connection.
func (s *server) line(ctx context.Context, c *conn, line []byte) bool {
	r, err := parseLine(line)
	var reply any
	if err == nil {
		reply, err = s.handle(ctx, c, &r)
	}
	if err == nil {
		return reply == nil || c.answer(reply) == nil
	}
	no := refusalOf(err)
	if r.oneWay() {
		return !no.Hang
	}
	return c.answer(answer{Error: no.Code, Text: journal.Bound(no.Text, 4096)}) == nil && !no.Hang
}

// refusalOf is the one place where an error becomes what a program is told.
func refusalOf(err error) *refusal {
	if e, ok := errors.AsType[*refusal](err); ok {
		return e
	}
	if e, ok := errors.AsType[*ending](err); ok {
		return &refusal{Code: e.code, Text: e.exit.Text, Hang: true}
	}
	if e, ok := errors.AsType[*files.DiskFull](err); ok {
		return &refusal{Code: "disk_full", Text: e.Error() + "; the previous milestone stays"}
	}
	if e, ok := errors.AsType[*courier.Bad](err); ok {
		return &refusal{Code: "bad_request", Text: e.Error()}
	}
	return &refusal{Code: "internal", Text: err.Error()}
}

// handle does what a request asks. A nil answer means none is due.
func (s *server) handle(ctx context.Context, c *conn, r *request) (any, error) {
	if r.Op == "hello" {
		return s.hello(ctx, c)
	}
	if r.Op == "note" {
		s.note(r)
		return nil, nil
	}
	s.mu.Lock()
	mine := s.loop == c
	s.mu.Unlock()
	if !mine {
		return nil, &refusal{Code: "not_loop", Text: "another connection is the training loop, or none said hello: only notes are taken here"}
	}
	switch r.Op {
	case "step":
		if !s.d.steppedWith(*r.N, r.outlay()) {
			return nil, badRequest("step %d after step %d: steps never go back", *r.N, s.d.at())
		}
		if r.Ask {
			return orNil(s.d.verdict(ctx))
		}
		return nil, nil
	case "resume":
		return s.resume, nil
	case "milestone":
		return s.milestone(r)
	case "phase", "phase_end":
		ph := phase{}
		if r.Op == "phase" {
			ph = phase{journal.Bound(r.Name, 64), time.Duration(r.ExpectS * float64(time.Second))}
		}
		quiet, err := s.d.enter(ctx, ph)
		return orNil(answer{OK: true, QuietS: &quiet}, err)
	case "error":
		s.d.word(r.Text)
		return nil, nil
	case "drain":
		named, failed, err := s.d.drain(ctx, true)
		s.d.stood()
		if err == nil && failed > 0 && named == 0 {
			err = &refusal{Code: "internal", Text: fmt.Sprintf("none of %d milestones arrived in the store", failed)}
		}
		return orNil(answer{OK: true, Milestone: &named}, err)
	}
	return nil, badRequest("unknown op %.40q", r.Op)
}

// note keeps one note a second among the events: a program that notes every step must not drown them.
func (s *server) note(r *request) {
	s.mu.Lock()
	now := time.Now()
	keep := now.Sub(s.noted) >= time.Second
	if keep {
		s.noted = now
	}
	s.mu.Unlock()
	if !keep {
		return
	}
	if text := noteText(r.Values, s.d.mask); text != "" {
		s.d.say("note", s.d.at(), text)
	}
}

// orNil makes a typed answer an untyped one, nil beside an error.
func orNil[T any](v T, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

func (s *server) hello(ctx context.Context, c *conn) (any, error) {
	s.mu.Lock()
	if s.loop != nil && s.loop != c {
		s.mu.Unlock()
		return nil, &refusal{Code: "not_loop", Text: "another connection is the training loop already: only notes are taken here"}
	}
	s.loop = c
	s.mu.Unlock()
	if err := s.d.await(ctx, true, s.d.fresh); err != nil {
		return nil, err
	}
	s.d.greet()
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	t, quiet := s.d.terms, s.d.quiet()
	return answer{OK: true, Protocol: protocolVersion, Work: s.work, Attempt: s.attempt,
		EverySteps: &t.MilestoneSteps, EveryS: &t.MilestoneS, QuietS: &quiet}, nil
}

func (s *server) milestone(r *request) (any, error) {
	s.d.mu.Lock()
	end := s.d.ended
	s.d.mu.Unlock()
	if end != nil {
		return nil, end
	}
	path := r.Path
	if !filepath.IsAbs(path) {
		path = filepath.Join(s.cwd, path)
	}
	defer s.d.saving()()
	n, err := s.k.Stage(path, "", r.Move, r.Step)
	if err != nil {
		s.d.refusedMilestone(r.Step, err)
		return nil, err
	}
	s.d.took(r.Step)
	return answer{OK: true, Milestone: &n}, nil
}
