package witness

import "time"

// Knobs of the lease. The lease length is K times the step time and never below the store's floor.
const (
	// DefaultK is the lease length in steps.
	DefaultK = 50
	// DefaultFloor is the shortest lease on the embedded store and in tests.
	DefaultFloor = 15 * time.Second
	// RemoteFloor is the shortest lease on a store over the network whose p99 was not measured.
	RemoteFloor = 60 * time.Second
	// stampStep is the resolution of the store's two stamps (HTTP dates).
	stampStep = time.Second
)

// Floor is the shortest lease for a store whose conditional writes take p99 at the 99th percentile:
// 3 × (resolution of the stamps + p99).
func Floor(p99 time.Duration) time.Duration { return 3 * (stampStep + max(p99, 0)) }

// LeaseFor promises k steps of the given length, but at least floor. k of 0 means DefaultK, floor of 0 DefaultFloor.
func LeaseFor(k float64, step, floor time.Duration) Lease {
	if k <= 0 {
		k = DefaultK
	}
	if floor <= 0 {
		floor = DefaultFloor
	}
	s := min(max(k*step.Seconds(), floor.Seconds()), maxLease)
	return Lease{Seconds: s, K: k, StepS: max(step.Seconds(), 0)}
}

// Length is the promised time without a renewal.
func (l Lease) Length() time.Duration { return time.Duration(l.Seconds * float64(time.Second)) }

// RenewAfter is how long after the last acknowledged renewal the next one is due: a third of the lease, so that two
// may be lost. The caller looks at step boundaries; nothing ever renews from a timer.
func (l Lease) RenewAfter() time.Duration { return l.Length() / 3 }
