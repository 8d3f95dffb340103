// Package runners is the contract between the dispatcher and the places where jobs run: what a platform plugin
// writes (launch, release, and what it declares of itself), the failures by type, and the six verbs that need
// nothing but the store. Platforms live below and never import each other.
package runners

import (
	"context"
	"encoding/json"
	"time"

	"github.com/headway-run/headway/runners/record"
)

// Launch is one claimed dispatch that a runner is asked to start.
type Launch struct {
	Work     string
	Dispatch int64
	Job      string // name, for labels and people
	Store    string // store URL that the worker opens
	Spec     record.Spec
	Claim    record.Claim
	Env      map[string]string // secrets by name, resolved by the dispatcher; never stored, never logged
}

// Receipt is what a platform answered to one Launch. Handle is what the runner itself needs to find it again.
type Receipt struct {
	Handle json.RawMessage
	Text   string // one line for people: "pid 4711"
}

// Settlement says what is known of a launch after a release, never more than that. A closed set.
type Settlement uint8

const (
	// Pending: not known to be over; it is asked again for ever.
	Pending Settlement = iota
	// Bounded: not known to be over, but the platform ends it by itself at Release.Until.
	Bounded
	// Closed: the platform confirmed that nothing runs and nothing is paid for.
	Closed
)

// Release is a platform's answer to the release of a receipt.
type Release struct {
	Settlement Settlement
	Until      time.Time // Bounded: when it ends by itself
	Text       string    // one sentence
}

// Runner is a platform plugin: two verbs and two declarations. An error of Launch or Release is, or wraps, a *Failure
// whose class says what to do next; the answers are in the order of the launches and as many.
type Runner interface {
	// Launch starts every launch of one placement (at most Capacity), all or nothing. When it returns an error the
	// launch may still have happened if the class is Unreachable.
	Launch(ctx context.Context, jobs []Launch) ([]Receipt, error)
	// Release ends what a receipt names. Asking twice is harmless.
	Release(ctx context.Context, handle json.RawMessage) (Release, error)
	// JobKinds lists the kinds it takes; empty means all.
	JobKinds() []string
	// Capacity is how many jobs one launch may carry; an estimate everywhere.
	Capacity() int
}

// Lister is the optional extra of runners that can list what runs under our labels.
type Lister interface {
	// Running lists the handles of live launches of ours, whoever made them.
	Running(ctx context.Context) ([]Running, error)
}

// Running is one live launch that a platform lists.
type Running struct {
	Work     string
	Dispatch int64
	Handle   json.RawMessage
	Text     string
}
