package ring

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// NoAnswer is silence with a name: nothing terminal came back in time, and what became of the command is not known.
type NoAnswer struct {
	To    string // whom the command was for
	What  string // LOAD, UNLOAD, INSPECT, session, request, receipt, finish
	After time.Duration
	Last  string // which hop acknowledged last, and what; "": none did
}

func (e NoAnswer) Error() string {
	last := "no hop acknowledged it"
	if e.Last != "" {
		last = "the last acknowledgement came from " + e.Last
	}
	return fmt.Sprintf("no answer to %s from %s after %s; %s: inspect the agents before anything else is sent", e.What, e.To, e.After.Round(time.Millisecond), last)
}

// silence gives an error its name: an engine that let the deadline of a call pass without saying so is NoAnswer too.
func silence(within context.Context, err error, e NoAnswer) error {
	if _, named := errors.AsType[NoAnswer](err); err == nil || named || within.Err() == nil {
		return err
	}
	return e
}

// Unreachable is a dial that failed, so nothing was sent.
type Unreachable struct {
	From    Viewpoint
	Address string
	Why     string
}

func (e Unreachable) Error() string {
	from := string(e.From)
	if from == "" {
		from = "here"
	}
	return fmt.Sprintf("%s cannot be reached from %s: %s; check the agent's advertised address", e.Address, from, e.Why)
}

// Busy is a full queue at the first hop: the command was handed back and is nowhere.
type Busy struct {
	To    string
	Depth int
}

func (e Busy) Error() string {
	return fmt.Sprintf("the queue of %s is full (%d): nothing was sent; try again", e.To, e.Depth)
}

// StageFailed is a stage that says, or is found, to be no longer serving. Only a new LOAD clears it.
type StageFailed struct {
	Agent      string
	Node       string
	Generation uint64
	State      string // the engine's own words
}

func (e StageFailed) Error() string {
	return fmt.Sprintf("stage %s@%d at %s says %q: unload the ring and load it under a new generation", e.Node, e.Generation, e.Agent, e.State)
}

// TooLarge is a request that the loaded profile does not take.
type TooLarge struct {
	Node string
	Why  string // the engine's own words
}

func (e TooLarge) Error() string {
	return fmt.Sprintf("stage %s refused the request: %s; send less, or load a larger profile", e.Node, e.Why)
}

// Foreign are bytes or an answer that are not what this caller speaks: another release, or not an agent.
type Foreign struct {
	From string
	Why  string
}

func (e Foreign) Error() string {
	return fmt.Sprintf("%s answered with what is no answer: %s; check that agent and lane are of the release that the ring plan names", e.From, e.Why)
}
