package goclient

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"sync/atomic"
)

const (
	maxLine  = 64 << 10
	maxError = 16 << 10
)

// answer is every answer of the agent.
type answer struct {
	OK         bool    `json:"ok"`
	Error      string  `json:"error"`
	Text       string  `json:"text"`
	Push       string  `json:"push"`
	Work       string  `json:"work"`
	Attempt    int64   `json:"attempt"`
	EverySteps int64   `json:"every_steps"`
	EveryS     float64 `json:"every_s"`
	QuietS     float64 `json:"quiet_s"`
	Due        bool    `json:"due"`
	Stop       *string `json:"stop"`
	Path       *string `json:"path"`
	Step       int64   `json:"step"`
	Milestone  int64   `json:"milestone"`
}

// wire is the connection. A goroutine reads, so that a push or the agent's end is known without a system call.
type wire struct {
	net.Conn
	answers chan answer
	asked   atomic.Bool // the next step must ask
	gone    atomic.Bool // the agent has hung up
}

func newWire(c net.Conn) *wire {
	w := &wire{Conn: c, answers: make(chan answer, 1)}
	go w.read()
	return w
}

func (w *wire) read() {
	defer close(w.answers)
	defer w.gone.Store(true)
	in := bufio.NewScanner(w.Conn)
	in.Buffer(nil, maxLine+1)
	for in.Scan() {
		var a answer
		if json.Unmarshal(bytes.TrimSpace(in.Bytes()), &a) != nil {
			return // not our protocol: as good as gone
		}
		if a.Push != "" {
			if a.Push == "ask" {
				w.asked.Store(true)
			}
			continue
		}
		select {
		case w.answers <- a:
		default:
			return // an answer to no question
		}
	}
}

func (w *wire) send(line []byte) error {
	_, err := w.Write(line)
	return err
}

func (w *wire) close() {
	_ = w.Conn.Close()
	for range w.answers { // until the reader is gone
	}
}

// ask sends a request and waits for its answer.
func (r *Run) ask(m map[string]any) (answer, error) {
	if r.over != nil && !errors.Is(r.over, ErrYielded) {
		return answer{}, r.over
	}
	b, err := json.Marshal(m)
	if err != nil {
		return answer{}, misuse("%v", err)
	}
	if len(b) >= maxLine {
		return answer{}, misuse("a request of %d bytes, at most %d are sent", len(b), maxLine)
	}
	if err := r.flush(); err != nil && !errors.Is(err, ErrYielded) {
		return answer{}, err
	}
	return r.exchange(append(b, '\n'))
}

// exchange is the one place where an answer becomes an error.
func (r *Run) exchange(line []byte) (answer, error) {
	if err := r.c.send(line); err != nil {
		// What the agent said before it hung up counts more than the broken pipe.
		if a, ok := <-r.c.answers; ok && !a.OK {
			return r.refused(a)
		}
		r.over = ErrLeaseLost
		return answer{}, r.over
	}
	a, ok := <-r.c.answers
	if !ok {
		r.over = ErrLeaseLost
		return answer{}, r.over
	}
	if !a.OK {
		return r.refused(a)
	}
	return a, nil
}

func (r *Run) refused(a answer) (answer, error) {
	switch a.Error {
	case "lease_lost":
		r.over = ErrLeaseLost
		return a, r.over
	case "revoked":
		r.over = ErrRevoked
		return a, r.over
	}
	return a, &Error{a.Error, a.Text}
}
