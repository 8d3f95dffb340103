package ringsim

import (
	"fmt"
	"sync"
	"time"

	"github.com/headway-run/headway/deploylane/ring"
)

// machine is a host as it runs. Its memory and its journal outlive its agent.
type machine struct {
	Host

	mu    sync.Mutex
	agent *agent
	used  uint64            // memory
	clock time.Duration     // off the world's
	tombs map[string]uint64 // node → highest generation ever; in the journal
	lines []string
}

func newMachine(h Host) *machine {
	if h.Slots == 0 {
		h.Slots = 256
	}
	if h.Slower == 0 {
		h.Slower = 1
	}
	return &machine{Host: h, clock: h.Clock, tombs: map[string]uint64{}}
}

func (m *machine) names() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.Names
}

// host is a copy of what can be changed meanwhile.
func (m *machine) host() Host {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.Host
}

// take reserves memory; false: there is not that much.
func (m *machine) take(n uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n > m.Memory-min(m.used, m.Memory) {
		return false
	}
	m.used += n
	return true
}

func (m *machine) give(n uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
}

// giveBack frees memory when the kernel and the driver are done with the process.
func (w *World) giveBack(m *machine, n uint64, stays bool) {
	if n == 0 || stays {
		return
	}
	w.wg.Go(func() {
		sleep(w.ctx, m.host().Back)
		m.give(n)
	})
}

// bury records that a node had a generation; false: it is not above every earlier one.
func (m *machine) bury(node string, generation uint64, again bool) (last uint64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, seen := m.tombs[node]
	if seen && generation <= last && !again {
		return last, false
	}
	m.tombs[node] = max(last, generation)
	return last, true
}

// inspection is what the host says of itself; nodes and slots are the agent's.
func (w *World) inspection(m *machine) ring.Inspection {
	m.mu.Lock()
	defer m.mu.Unlock()
	retained := m.Retained
	native := m.Native
	out := ring.Inspection{
		Agent: m.Advertise, Release: m.Release, Build: m.Build, Retained: &retained,
		Needs: m.Needs, Native: &native, Devices: m.Devices,
		Memory:  &ring.Memory{Total: m.Memory, Free: m.Memory - min(m.used, m.Memory)},
		Journal: &ring.Journal{On: !m.Journal.Off, Dir: m.Journal.Dir, Writable: !m.Journal.Off && !m.Journal.ReadOnly && m.Journal.Free > 0, Free: m.Journal.Free},
	}
	if m.Journal.Off {
		out.Journal.Dir = ""
	}
	for _, f := range m.Models {
		digest := f.Digest
		if f.Bytes < f.Whole {
			digest = fmt.Sprintf("sha256:%064x", f.Bytes) // of what is there
		}
		out.Models = append(out.Models, ring.Model{Path: f.Path, Digest: digest, Bytes: f.Bytes})
	}
	clock := m.clock
	if w.cfg.Rules.OneClock {
		clock = 0
	}
	out.ClockMS = time.Now().Add(clock).UnixMilli()
	return out
}
