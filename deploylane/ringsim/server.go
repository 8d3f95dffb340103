package ringsim

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// How long the short parts of a LOAD take in virtual time.
const (
	spawnTime  = time.Second
	deviceTime = 2 * time.Second
	chunks     = 20 // in which weights are read
)

// wireRows is the most rows that a result can carry.
const wireRows = 1 << 16

// server is a native stage server: a process that its agent started.
type server struct {
	w    *World
	m    *machine
	ctx  context.Context
	end  context.CancelFunc
	gate gate

	mu   sync.Mutex
	held uint64 // memory
	over bool
}

func newServer(a *agent) *server {
	s := &server{w: a.w, m: a.m}
	s.ctx, s.end = context.WithCancel(a.ctx)
	return s
}

// kill ends the process; its memory comes back when the host has it.
func (s *server) kill() {
	s.end()
	s.mu.Lock()
	held, over := s.held, s.over
	s.held, s.over = 0, true
	s.mu.Unlock()
	if !over {
		s.w.giveBack(s.m, held, s.w.cfg.Rules.MemoryStays)
	}
}

func (s *server) grow(n uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || !s.m.take(n) {
		return false
	}
	s.held += n
	return true
}

func (s *server) resident() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// takes is what a short part of a LOAD costs: in real time hardly anything, nobody learns from waiting.
func (w *World) takes(d time.Duration) time.Duration {
	if _, virtual := w.net.(*lan); virtual {
		return d
	}
	return d / 100
}

// start is rule 5, in the post's order: what is wrong with device or bound is found behind the weights.
func (a *agent) start(n *node) (reported uint64, err error) {
	s, b := n.server, n.body
	if b.Stage < 0 || b.Stage >= len(b.Stages) || len(b.Stages) > 1<<10 {
		return 0, fmt.Errorf("stage %d of a ring of %d", b.Stage, len(b.Stages))
	}
	gone := fmt.Errorf("the native server exited")
	if !a.step(s.ctx, n, "load/received") || !sleep(s.ctx, a.w.takes(spawnTime)) || !a.step(s.ctx, n, "load/spawned") {
		return 0, gone
	}
	h := a.m.host()
	for _, need := range append(slices.Clone(h.Needs), n.body.Needs...) {
		if !slices.Contains(h.Native.Hello, need) {
			return 0, fmt.Errorf("stage server HELLO omits %s", need)
		}
	}
	if !a.step(s.ctx, n, "load/hello") {
		return 0, gone
	}
	i := slices.IndexFunc(h.Models, func(f Weights) bool { return f.Path == n.body.Model })
	if i < 0 {
		return 0, fmt.Errorf("%s: no such file", n.body.Model)
	}
	n.model = h.Models[i]
	if a.w.cfg.Rules.CheckFirst {
		if err := n.device(h); err != nil {
			return 0, err
		}
		if _, err := n.ready(h); err != nil {
			return 0, err
		}
	}
	if err := a.read(n, h); err != nil {
		return 0, err
	}
	if !a.step(s.ctx, n, "load/read") || !sleep(s.ctx, a.w.takes(deviceTime)) {
		return 0, gone
	}
	if err := n.device(h); err != nil {
		return 0, err
	}
	if !a.step(s.ctx, n, "load/device") {
		return 0, gone
	}
	if reported, err = n.ready(h); err != nil {
		return 0, err
	}
	if !a.step(s.ctx, n, "load/ready") {
		return 0, gone
	}
	return reported, nil
}

// read takes the stage's weights into memory, in virtual minutes. Without an override for the tensors of the other
// stages they are taken too.
func (a *agent) read(n *node, h Host) error {
	f, layers := n.model, n.body.Layers[1]-n.body.Layers[0]
	if f.Layers <= 0 || layers <= 0 || h.ReadRate == 0 {
		return fmt.Errorf("%s: no layers [%d,%d) in it", f.Path, n.body.Layers[0], n.body.Layers[1])
	}
	size := f.Bytes
	if len(n.body.Override) > 0 || layers == f.Layers {
		size = f.Bytes / uint64(f.Layers) * uint64(min(layers, f.Layers))
	}
	took := time.Duration(float64(size) / float64(h.ReadRate) * h.Slower * float64(time.Second))
	for i := range chunks {
		done := 100 * i / chunks
		if h.OOMAt > 0 && float64(i) >= h.OOMAt*chunks || !n.server.grow(size/chunks) {
			if n.server.ctx.Err() != nil {
				return fmt.Errorf("the native server exited")
			}
			return fmt.Errorf("out of memory at %d %% of the weights", done)
		}
		if !sleep(n.server.ctx, took/chunks) || !a.step(n.server.ctx, n, "load/weights") {
			return fmt.Errorf("the native server exited at %d %% of the weights", done)
		}
	}
	if f.Bytes < f.Whole {
		return fmt.Errorf("%s: tensor data is not within the file bounds: truncated", f.Path)
	}
	return nil
}

// device finds the stage's device among what the build offers behind its mask, which numbers anew from 0.
func (n *node) device(h Host) error {
	var offered []string
	for i, d := range h.Devices {
		if n.body.Mask == "" || slices.Contains(strings.Split(n.body.Mask, ","), strconv.Itoa(i)) {
			offered = append(offered, strings.TrimRight(d.Name, "0123456789")+strconv.Itoa(len(offered)))
		}
	}
	if !slices.Contains(offered, n.body.Device) {
		return fmt.Errorf("no such device: %s", n.body.Device)
	}
	return nil
}

// ready is the server's READY against the profile, exactly, and the agent's admission.
func (n *node) ready(h Host) (uint64, error) {
	b := n.body
	if b.UBatch < 1 || b.UBatch > b.Batch || b.Batch > wireRows || b.Parallel < 1 || b.Parallel > 1<<16 {
		return 0, fmt.Errorf("shape: 1 <= n_ubatch <= n_batch <= %d and n_seq_max > 0, found %d, %d, %d", wireRows, b.UBatch, b.Batch, b.Parallel)
	}
	tail := b.Stage == len(b.Stages)-1
	reported := bound(tail, uint64(b.Batch), uint64(b.UBatch), uint64(b.Parallel), n.model.Cut, n.model.Hidden)
	if reported != b.Bound {
		return 0, fmt.Errorf("max_physical_result_bytes: the stage server reports %d, the profile has %d", reported, b.Bound)
	}
	if reported > n.meta.Completion || n.meta.Completion > n.meta.Retained || n.meta.Retained > h.Retained {
		return 0, fmt.Errorf("the retained store does not admit it: result %d, completion %d, node %d, store %d bytes", reported, n.meta.Completion, n.meta.Retained, h.Retained)
	}
	return reported, nil
}
