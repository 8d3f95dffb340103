package ring

import (
	"context"
	"fmt"
	"time"
)

// Engine is a serving ring as its caller meets it. Every method ends by its context; one that ends without an answer
// returns NoAnswer, never success. A method may be called from several goroutines.
type Engine interface {
	// Inspect asks the agent at an address, dialled from a host of the ring. It changes nothing.
	Inspect(ctx context.Context, from Viewpoint, address string) (Inspection, error)
	// Load sends a LOAD and waits for its terminal answer. A refusal is an Answer, not an error.
	Load(ctx context.Context, c Command) (Answer, error)
	// Unload sends an UNLOAD and waits for its terminal answer.
	Unload(ctx context.Context, c Command) (Answer, error)
	// Session opens a session over all stages of a route; it returns when all of them are ready.
	Session(ctx context.Context, r Route) (Session, error)
	// Events are what the caller's own connection saw after number after, oldest first: acknowledgements of hops,
	// states of stages. What an engine does not report is not there.
	Events(ctx context.Context, after uint64) ([]Event, error)
}

// Session is a client's connection to a loaded ring. Exactly one Finish must end it: a client that goes without one
// leaks a slot of the head's agent for ever.
type Session interface {
	// Request sends one request and waits for its output. Its receipt is still open then.
	Request(ctx context.Context, q Query) (Reply, error)
	// Settle waits until the ring closed the receipt of a reply, which is when every stage has released it.
	Settle(ctx context.Context, r Reply) (Receipt, error)
	// Finish sends the FINISH frame and waits for the peer's close.
	Finish(ctx context.Context) error
}

// Viewpoint is the name of a host from which an address is dialled; "": the caller's own.
type Viewpoint string

// TargetKind says what a broker is to find.
type TargetKind string

// The kinds of target. A node exists only between its LOAD and its UNLOAD: LOAD goes to an agent.
const (
	ToAgent TargetKind = "agent"
	ToNode  TargetKind = "node"
)

// Target is the only part of a command that brokers read.
type Target struct {
	Kind       TargetKind
	Agent      string // an agent's identity, byte for byte as it advertises itself: tcp://host:port
	Node       string // ToNode alone
	Generation uint64 // ToNode alone
}

func (t Target) String() string {
	if t.Kind == ToNode {
		return fmt.Sprintf("node %s@%d at %s", t.Node, t.Generation, t.Agent)
	}
	return fmt.Sprintf("agent %s", t.Agent)
}

// Command is an envelope on its way. Via is the address that the caller's connection dials, from its own host; the
// target is found by the broker there.
type Command struct {
	Via      string
	Target   Target
	Envelope Envelope
}

// Status is an agent's word about a lifecycle command.
type Status string

// The terminal answers. Rejected changed nothing; Failed began and did not come to its end.
const (
	Succeeded Status = "succeeded"
	Rejected  Status = "rejected"
	Failed    Status = "failed"
)

// Resource says whether memory and process of a node exist.
type Resource string

// Unknown is a stop for every automatism: neither load nor unload may follow without a look by a person.
const (
	Absent  Resource = "absent"
	Present Resource = "present"
	Unknown Resource = "unknown"
)

// Answer is the result of a lifecycle command, as ContentResult carries it. Everything in it is the agent's claim.
type Answer struct {
	Schema     int      `json:"schema"`
	Agent      string   `json:"agent"`
	Node       string   `json:"node_id"`
	Generation uint64   `json:"node_generation"`
	Status     Status   `json:"status"`
	Resource   Resource `json:"resource_state"`
	Detail     string   `json:"detail,omitempty"` // the engine's own sentence; hostile text
	Bound      uint64   `json:"max_physical_result_bytes,omitempty"`
	Memory     uint64   `json:"resident_bytes,omitempty"`
}

// Route is a loaded ring as a client needs it, in ring order; the head is the first.
type Route struct {
	Via    string // the address of the head's agent
	Stages []Hop
	// Load is the generation that every stage compares with its own for exact equality.
	Load uint64
}

// Hop is one stage of a route.
type Hop struct {
	Agent string `json:"agent"`
	Node  string `json:"node"`
}

// Query is one request. The engine applies no template: Prompt goes to the model as it is.
type Query struct {
	ID        string
	Prompt    []byte
	MaxTokens int
}

// Stop says why a reply ended.
type Stop string

// A canary wants StopEnd: a prompt without its turn format is continued to the length.
const (
	StopEnd    Stop = "eos"
	StopLength Stop = "length"
)

// Reply is the output of one request.
type Reply struct {
	ID    string
	Text  []byte
	Count int // tokens
	Stop  Stop
	First time.Duration // to the first token, on the caller's clock
	Took  time.Duration
}

// Receipt is a closed account of a request.
type Receipt struct {
	ID         string
	Generation uint64 // that the stages released
	Stages     int    // that released it
}

// Event is one thing that the caller's connection saw.
type Event struct {
	Number     uint64
	At         time.Time // the caller's clock
	Hop        string    // agent, or node@generation
	Kind       string    // queued, forwarded, started, weights, ready, released, dropped, state, …
	Node       string
	Generation uint64
	Detail     string
}
