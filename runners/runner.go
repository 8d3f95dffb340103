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
	Cards    int               // how many its worker computes on; 0 counts as 1
	Env      map[string]string // secrets by name, resolved by the dispatcher; never stored, never logged
	// MaxPrice is the price per hour above which no offer may be taken (a NoSlots then); nil: none was given. Its unit may be
	// empty: the platform's own.
	MaxPrice *record.Price
	// Within is the longest that it may last from its start, 0: no bound is known. Whoever can hand it to the platform or to the
	// worker does, so that it ends by itself though no dispatcher ever comes back: a last resort, far behind what is expected.
	Within time.Duration
}

// Receipt is what a platform answered to one Launch. Handle is what the runner itself needs to find it again.
type Receipt struct {
	Handle json.RawMessage
	Text   string        // one line for people: "pid 4711"
	Price  *record.Price // what the platform charges for the whole launch from now on; nil: it does not say
	// Outlives: it is paid for until it is released, also once its worker has left, so that it is released then. A platform
	// of such machines has to be a Lister: of one whose account was lost its list is all there is.
	Outlives bool
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
//
// The jobs of one call share one machine (a session, a pod, a rented box with several cards) and nothing else: each has its
// own worker on its own card, with its own lease, and a receipt whose handle names that job alone. They are all of one
// class: alike in card, trust, secrets, environment and pinned fingerprint.
type Runner interface {
	// Launch starts every launch of one placement (at most Capacity), all or nothing: where one of them cannot be
	// started, the others that this call has started are ended before it answers, and the error is that of the first
	// that failed. When it returns an error the launch may still have happened if the class is Unreachable.
	Launch(ctx context.Context, jobs []Launch) ([]Receipt, error)
	// Release ends the one job that a receipt names, and leaves the others of its launch running. The machine itself is
	// given back with its last job; Closed means that nothing of this job runs, and that nothing is paid for but what the
	// others of its launch still need. Asking twice is harmless.
	Release(ctx context.Context, handle json.RawMessage) (Release, error)
	// JobKinds lists the kinds it takes; empty means all.
	JobKinds() []string
	// Capacity is how many jobs one launch may carry, at least 1; an estimate everywhere. It is 1 where a launch is a
	// machine or a process of its own: then sharing a call would only make the jobs share their failures.
	Capacity() int
}

// Family is how platforms are alike in how long a launch takes to come to work. A closed set.
type Family string

const (
	OwnProcess     Family = "own process"     // starts at once, on a machine of one's own
	ForeignRuntime Family = "foreign runtime" // a notebook or a function of somebody's: an image and a queue
	BareContainer  Family = "bare container"  // a rented machine that may have to be found, booted and filled
)

// Kin is the optional extra of runners that are no processes of one's own: what is assumed of their launches until some
// were observed.
type Kin interface {
	Family() Family
}

// Lister is the optional extra of runners that can list what runs under our labels. A runner without it is told to release each
// launch once, also one whose worker has left, since nothing else says that no second instance of it was started.
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
	Price    string // what the platform says it costs per hour, with its unit: "0.45 USD"; empty: it does not say
}
