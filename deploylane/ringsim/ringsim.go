// Package ringsim is a serving ring of the post-mortem's kind, small enough to run in a test: agents, their brokers, an
// adapter, native stage servers and a client (ring.Engine), as goroutines over in-memory pipes in virtual time, or over
// TCP. It obeys twelve rules (Rules); each can be switched, and with none switched it behaves as the post's world did,
// traps included: what fails late costs its virtual minutes, and what was silent there is silent here.
//
// Everything that is drawn comes out of a seed and the name of an event, never out of an order of goroutines, so a run
// can be repeated. DESIGN.md says what is simulated and what is left out.
package ringsim

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headway-run/headway/deploylane/ring"
)

// Rules are departures from the post's world: the zero value is that world. The numbers are those of DESIGN.md.
type Rules struct {
	RefuseUnknownNode  bool // 1: an event for a node that is not there is answered, not sent on into silence
	UnboundedQueues    bool // 2: queues never hand an event back
	ReuseGenerations   bool // 3: a node id may have a generation again
	JournalOptional    bool // 4: LOAD goes without a journal, and a broken one kills nobody
	CheckFirst         bool // 5: capabilities, device and bound are looked at before weights are read
	LenientGeneration  bool // 6: a wrong load generation is refused and leaves no mark
	ForgivingRelease   bool // 7: nobody compares a receipt's generation with the head's
	OneNetwork         bool // 8: every address leads to the agent that advertises it, from wherever it is dialled
	FinishOptional     bool // 9: a slot comes back with its connection
	MemoryStays        bool // 10: an unloaded stage's memory does not come back
	OneClock           bool // 11: no host's clock differs
	ServerHasTemplates bool // 12: the server renders the turn format itself
}

// Host is one machine with one agent.
type Host struct {
	Name      string
	Listen    string // of the agent: 0.0.0.0:42011
	Advertise string // its identity: tcp://h1.ring:42011
	// Names leads from the host part of an address to a host, as this host resolves it. Nil: to every host by what the
	// others advertise. A loopback or unspecified address is always the host itself.
	Names map[string]string

	Release  string
	Build    string
	Needs    []string // what the agent wants of a native server
	Native   ring.Native
	Devices  []ring.Device
	Models   []Weights
	Retained uint64 // bytes of the agent's store for completions and edges
	Slots    int    // connections; 0: 256

	Journal  Journal
	Memory   uint64        // bytes
	ReadRate uint64        // of weights, bytes/s
	Slower   float64       // slow load: the time of reading is multiplied; 0: 1
	OOMAt    float64       // the share of its weights at which a stage is killed; 0: only when memory is full
	Back     time.Duration // until the memory of an ended server is free again
	Clock    time.Duration // the host's wall clock less the world's; Jump changes it
}

// Journal is the state of an agent's operational journal.
type Journal struct {
	Off      bool
	Dir      string
	ReadOnly bool
	Free     uint64 // bytes; a full disk kills the agent at the first event that it should write
}

// Weights is a model file on a host.
type Weights struct {
	Path   string
	Digest string
	Bytes  uint64
	Whole  uint64 // bytes that the file should have; more than Bytes: it is truncated
	Layers int
	Hidden uint64 // width of the hidden state, floats
	Cut    uint64 // tensors that cross a cut
}

// Config is one world.
type Config struct {
	Seed   uint64
	Rules  Rules
	Hosts  []Host
	Names  map[string]string // as Host.Names, for the callers' own host
	Faults []Fault
	Noise  Noise
}

// World is a running ring without a model in it.
type World struct {
	cfg   Config
	ctx   context.Context
	end   context.CancelFunc
	wg    sync.WaitGroup
	begin time.Time
	net   network
	hosts map[string]*machine

	mu      sync.Mutex
	trace   []Entry
	spends  []Spend
	fired   map[int]int // fault → how often it matched
	callers map[string]int
}

// Start brings up the agents of all hosts. Close must end it.
func Start(ctx context.Context, c Config) (*World, error) {
	w := newWorld(ctx, c)
	for _, h := range c.Hosts {
		if w.hosts[h.Name] != nil || h.Name == "" {
			w.end()
			return nil, fmt.Errorf("host %q: expected a name of its own", h.Name)
		}
		w.hosts[h.Name] = newMachine(h)
	}
	w.net = &lan{w: w}
	for _, name := range slices.Sorted(maps.Keys(w.hosts)) {
		if err := w.Restart(name); err != nil {
			w.Close()
			return nil, err
		}
	}
	return w, nil
}

func newWorld(ctx context.Context, c Config) *World {
	w := &World{cfg: c, begin: time.Now(), hosts: map[string]*machine{}, fired: map[int]int{}, callers: map[string]int{}}
	w.ctx, w.end = context.WithCancel(ctx)
	return w
}

// Close ends every goroutine of the world and waits for them.
func (w *World) Close() {
	w.end()
	for _, name := range slices.Sorted(maps.Keys(w.hosts)) {
		w.Kill(name)
	}
	w.wg.Wait()
}

// Restart starts a host's agent; a running one is killed first. Nodes die with their agent; the tombstones are in its
// journal.
func (w *World) Restart(host string) error {
	w.Kill(host)
	m := w.hosts[host]
	l, err := w.net.listen(host, m.Listen)
	if err != nil {
		return fmt.Errorf("agent of %s: %w", host, err)
	}
	a := newAgent(w, m, l)
	m.mu.Lock()
	m.agent = a
	m.mu.Unlock()
	a.log("P4_EVENT_AGENT_READY " + m.Advertise)
	w.wg.Go(a.accept)
	w.wg.Go(a.lifecycle)
	return nil
}

// Kill ends a host's agent and its stage servers at once, as SIGKILL does.
func (w *World) Kill(host string) {
	if a := w.agent(host); a != nil {
		a.kill()
	}
}

// Freeze stops an agent, as SIGSTOP does, or lets it go on.
func (w *World) Freeze(host string, on bool) {
	if a := w.agent(host); a != nil {
		a.gate.shut(on)
	}
}

// KillServer ends the native server of one node.
func (w *World) KillServer(host, node string) {
	if n := w.node(host, node); n != nil {
		n.server.kill()
	}
}

// FreezeServer stops the native server of one node, or lets it go on. Its agent goes on saying that all is well.
func (w *World) FreezeServer(host, node string, on bool) {
	if n := w.node(host, node); n != nil {
		n.server.gate.shut(on)
	}
}

// Jump sets a host's clock off by d.
func (w *World) Jump(host string, d time.Duration) {
	m := w.hosts[host]
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clock = d
}

// Change alters a host before its agent's next question of it; the agent's own identity and sockets stay.
func (w *World) Change(host string, alter func(*Host)) {
	m := w.hosts[host]
	m.mu.Lock()
	defer m.mu.Unlock()
	alter(&m.Host)
}

// Log is what the agent of a host wrote where a person would look.
func (w *World) Log(host string) []string {
	m := w.hosts[host]
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.lines)
}

func (w *World) agent(host string) *agent {
	m := w.hosts[host]
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.agent
}

func (w *World) node(host, id string) *node {
	a := w.agent(host)
	if a == nil {
		return nil
	}
	return a.find(id, 0)
}

// Entry is one line of the omniscient trace: what no person in the post's world could see.
type Entry struct {
	At   time.Duration // since the world began
	Host string
	What string
}

// Trace is everything that happened, by time and then by text. Equal worlds have equal ones.
func (w *World) Trace() []Entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := slices.Clone(w.trace)
	slices.SortFunc(out, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Host, b.Host), cmp.Compare(a.What, b.What))
	})
	return out
}

// Sent counts what callers sent that could change something; a guard that refused in time leaves it at 0.
func (w *World) Sent() int {
	n := 0
	for _, e := range w.Trace() {
		if e.Host == "" && strings.HasPrefix(e.What, "sent ") {
			n++
		}
	}
	return n
}

func (w *World) note(host, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace = append(w.trace, Entry{time.Since(w.begin), host, fmt.Sprintf(format, args...)})
}

// Spend is one LOAD's time.
type Spend struct {
	Host       string
	Node       string
	Generation uint64
	Load       uint64
	Began      time.Duration // since the world began
	Took       time.Duration
	Status     ring.Status
	Detail     string
}

// Spent lists every LOAD that an adapter began, by begin and node.
func (w *World) Spent() []Spend {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := slices.Clone(w.spends)
	slices.SortFunc(out, func(a, b Spend) int {
		return cmp.Or(cmp.Compare(a.Began, b.Began), cmp.Compare(a.Node, b.Node))
	})
	return out
}

// Lost is the time of the loads that came to nothing: over every load generation of which a stage did not succeed, from
// its first LOAD's begin to its last one's end.
func (w *World) Lost() time.Duration {
	type span struct {
		from, to time.Duration
		failed   bool
	}
	loads := map[uint64]span{}
	for _, s := range w.Spent() {
		l, seen := loads[s.Load]
		if !seen {
			l.from = s.Began
		}
		l.to = max(l.to, s.Began+s.Took)
		l.failed = l.failed || s.Status != ring.Succeeded
		loads[s.Load] = l
	}
	var sum time.Duration
	for _, l := range loads {
		if l.failed {
			sum += l.to - l.from
		}
	}
	return sum
}

// draw is a number in [0, 1) that a seed gives to a name.
func draw(seed uint64, parts ...string) float64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d", seed)
	for _, p := range parts {
		fmt.Fprintf(h, "\x00%s", p)
	}
	x := h.Sum64() // its high bits hardly depend on the last bytes: mix them
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return float64(x>>11) / (1 << 53)
}
