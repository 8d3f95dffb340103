package llamarpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headway-run/headway/deploylane/ring"
)

// maxBody bounds what is read of an answer of the head, bytes.
const maxBody = 8 << 20

// head is the server process that holds a ring together.
type head struct {
	url   string
	log   string
	cmd   *exec.Cmd
	ended chan struct{}
}

// start brings the head up over all stages of a load: split and devices pinned, never left to what the servers report.
func (e *Engine) start(ctx context.Context, any ring.StageLoad, l *load) (*head, error) {
	var endpoints, devices, split []string
	for _, s := range any.Stages {
		b := l.bodies[s.Node]
		endpoints, devices = append(endpoints, b.Endpoint), append(devices, b.Device)
		split = append(split, strconv.Itoa(b.Layers[1]-b.Layers[0]))
	}
	host, port, _ := strings.Cut(e.cfg.Listen, ":")
	args := append(e.cfg.Server[1:len(e.cfg.Server):len(e.cfg.Server)], "--rpc", strings.Join(endpoints, ","), "-dev", strings.Join(devices, ","), "-ts", strings.Join(split, ","),
		"-ngl", "999", "-m", any.Model, "-c", strconv.Itoa(any.Context), "-b", strconv.Itoa(any.Batch), "-ub", strconv.Itoa(any.UBatch), "-np", strconv.Itoa(any.Parallel),
		"-t", strconv.Itoa(e.cfg.Threads), "--no-warmup", "--host", host, "--port", port)
	out, err := os.OpenFile(e.cfg.Log, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	h := &head{url: "http://" + e.cfg.Listen, log: e.cfg.Log, ended: make(chan struct{}), cmd: exec.CommandContext(e.ctx, e.cfg.Server[0], args...)}
	h.cmd.Stdout, h.cmd.Stderr = out, out
	if err := h.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		h.cmd.Wait()
		close(h.ended)
	}()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if h.healthy(ctx) {
			return h, nil
		}
		select {
		case <-tick.C:
		case <-h.ended:
			return nil, errors.New(h.gone())
		case <-ctx.Done():
			h.end()
			return nil, fmt.Errorf("the head did not come up in time: %w", ctx.Err())
		}
	}
}

func (h *head) end() {
	h.cmd.Process.Kill()
	<-h.ended
}

// gone is why the head is not there any more; "": it is.
func (h *head) gone() string {
	if h == nil {
		return "the head was not started"
	}
	select {
	case <-h.ended:
	default:
		return ""
	}
	b, _ := os.ReadFile(h.log)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	said := lines[len(lines)-1]
	for _, l := range lines { // the first complaint is the cause, those behind it are its echoes
		if strings.Contains(l, " E ") || strings.Contains(strings.ToLower(l), "error") || strings.Contains(l, "ailed") {
			said = l
			break
		}
	}
	return fmt.Sprintf("the head ended (%s): %.300s", h.cmd.ProcessState, said)
}

// healthy is the head's own word, which says nothing of its stages.
func (h *head) healthy(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	b, err := h.ask(ctx, http.MethodGet, "/health", nil)
	return err == nil && bytes.Contains(b, []byte(`"ok"`))
}

func (h *head) ask(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, h.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Close = true // a connection each: what is left of one never hides that the head is gone
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %.300q", res.StatusCode, b)
	}
	return b, err
}

// listed is a line of the server's own device list.
var listed = regexp.MustCompile(`(?m)^\s*([A-Za-z]+[0-9]+): (\S+) \(([0-9]+) MiB, ([0-9]+) MiB free\)`)

// devices is what the head's build calls the devices of one stage's server, asked without a model: it numbers those of
// all servers through, so it is asked with all of them.
func (e *Engine) devices(ctx context.Context, address string) ([]ring.Device, error) {
	own := strings.TrimPrefix(address, "tcp://")
	all := e.cfg.Stages
	if !slices.Contains(all, own) {
		all = []string{own}
	}
	args := append(e.cfg.Server[1:len(e.cfg.Server):len(e.cfg.Server)], "--rpc", strings.Join(all, ","), "--list-devices")
	out, err := exec.CommandContext(ctx, e.cfg.Server[0], args...).CombinedOutput()
	if err != nil {
		return nil, ring.Foreign{From: address, Why: fmt.Sprintf("the device list: %v: %.300q", err, out)}
	}
	devices := []ring.Device{}
	for _, m := range listed.FindAllSubmatch(out, maxDevices*len(all)) {
		if string(m[2]) != own {
			continue
		}
		total, _ := strconv.ParseUint(string(m[3]), 10, 32)
		free, _ := strconv.ParseUint(string(m[4]), 10, 32)
		devices = append(devices, ring.Device{Name: string(m[1]), Total: total << 20, Free: free << 20})
	}
	return devices, nil
}

// session is ring.Session over the head's HTTP.
type session struct {
	e     *Engine
	l     *load
	route ring.Route
}

// Session is ring.Engine's. The engine has no sessions: what must be there is the load.
func (e *Engine) Session(_ context.Context, r ring.Route) (ring.Session, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.loads[r.Load]
	for _, s := range r.Stages {
		n := ring.Node{State: "no such load"}
		if l != nil && l.agents[s.Node] == s.Agent {
			n = l.node(s.Node, r.Load)
		}
		if n.State != "ready" {
			return nil, ring.StageFailed{Agent: s.Agent, Node: s.Node, Generation: r.Load, State: n.State}
		}
	}
	if l == nil {
		return nil, fmt.Errorf("a route without stages: name the head first")
	}
	return &session{e, l, r}, nil
}

// Request is ring.Session's. The time to the first token is that of the whole reply: it is not streamed.
func (s *session) Request(ctx context.Context, q ring.Query) (ring.Reply, error) {
	began, at := time.Now(), s.route.Stages[0]
	if !utf8.Valid(q.Prompt) {
		return ring.Reply{}, ring.TooLarge{Node: at.Node, Why: "a prompt that is no UTF-8 cannot be sent"}
	}
	body, err := json.Marshal(map[string]any{"prompt": string(q.Prompt), "n_predict": q.MaxTokens, "temperature": 0, "cache_prompt": false})
	if err != nil {
		return ring.Reply{}, err
	}
	b, err := s.l.head.ask(ctx, http.MethodPost, "/completion", body)
	switch {
	case err != nil && ctx.Err() != nil:
		return ring.Reply{}, ring.NoAnswer{To: at.Node + " at " + at.Agent, What: "request", After: time.Since(began), Last: "the head, which took the request"}
	case err != nil:
		return ring.Reply{}, s.failed(err)
	}
	var said struct {
		Content string `json:"content"`
		Stop    string `json:"stop_type"`
		Tokens  int    `json:"tokens_predicted"`
	}
	if err := json.Unmarshal(b, &said); err != nil {
		return ring.Reply{}, ring.Foreign{From: s.l.head.url, Why: err.Error()}
	}
	r := ring.Reply{ID: q.ID, Text: []byte(said.Content), Count: said.Tokens, Stop: ring.StopLength, Took: time.Since(began), First: time.Since(began)}
	if said.Stop == "eos" {
		r.Stop = ring.StopEnd
	}
	s.e.note(at.Agent, "output", at.Node, s.route.Load, q.ID)
	return r, nil
}

func (s *session) failed(err error) error {
	at, state := s.route.Stages[0], err.Error()
	grace := time.NewTimer(10 * time.Second) // a head that is about to end says why
	defer grace.Stop()
	select {
	case <-s.l.head.ended:
		state = "failed:" + s.l.head.gone()
	case <-grace.C:
	}
	return ring.StageFailed{Agent: at.Agent, Node: at.Node, Generation: s.route.Load, State: state}
}

// Settle is ring.Session's. The engine keeps no receipts: a request is closed when its head is there after it.
func (s *session) Settle(_ context.Context, r ring.Reply) (ring.Receipt, error) {
	if why := s.l.head.gone(); why != "" {
		at := s.route.Stages[0]
		return ring.Receipt{}, ring.StageFailed{Agent: at.Agent, Node: at.Node, Generation: s.route.Load, State: "failed:" + why}
	}
	return ring.Receipt{ID: r.ID, Generation: s.route.Load, Stages: len(s.route.Stages)}, nil
}

// Finish is ring.Session's. There is no connection that stays.
func (s *session) Finish(context.Context) error { return nil }
