// Package probe makes a store prove itself before the first launch: conditional writes really exclude, also in a race;
// reads and listings are fresh; the store's stamps agree; what is read is what was written. A store that fails is
// refused in one sentence, and nothing overrides that: leases on it would be a fiction.
//
// It proves what can be seen from outside, at one moment. A race that is narrower than the network's jitter, or
// conditions that are skipped when a quorum is lost, it cannot see.
package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/headway-run/headway/runners/bucket"
)

// Key is where the last verdict is kept; Prefix is where the probe works, and cleans up after itself.
const (
	Key    = "_store/conformance.json"
	Prefix = "_probe/"
)

// maxReport bounds a stored report, bytes.
const maxReport = 64 << 10

// good is how long a verdict holds.
const good = 7 * 24 * time.Hour

// Report is what a probe found out. It holds no secrets: people send it in to say what a vendor's store can do.
type Report struct {
	Protocol int      `json:"protocol"` // 1
	Store    string   `json:"store"`    // as the caller names it
	Version  string   `json:"version"`  // of headway
	Time     string   `json:"time"`     // RFC 3339, by the prober's clock
	Pass     bool     `json:"pass"`
	Step     string   `json:"step,omitempty"`    // that failed
	Refusal  string   `json:"refusal,omitempty"` // one sentence
	Quirks   []string `json:"quirks"`
	Notes    []string `json:"notes"`
	SwapP50  float64  `json:"swap_p50_s"` // of a conditional write, seconds
	SwapP99  float64  `json:"swap_p99_s"`
	SkewS    float64  `json:"skew_s"` // store's clock minus ours, seconds
	Requests int64    `json:"requests"`
	TookS    float64  `json:"took_s"`
}

// Quirks that a probe can find. QuirkETagUnquoted refuses the store until its URL says so; the others narrow what it is
// good for.
const (
	QuirkETagUnquoted   = "etag_unquoted"         // If-Match is honoured only without the quotes
	QuirkSignChecksums  = "sign_upload_checksums" // a presigned upload that is cut is stored as it is, unless a checksum is signed
	QuirkNoAuth         = "no_auth"               // a spoiled signature is accepted
	QuirkPresignRefuses = "presign_refused"       // a presigned create is refused: no worker without keys here
	QuirkPresignIgnores = "presign_unconditional" // a condition added to a presigned URL is ignored: no worker without keys here
)

// LeaseFloor is the shortest lease that makes sense on this store: 3 × (the stamps' resolution + p99 of a swap), design.md §5.
func (r Report) LeaseFloor() time.Duration {
	return 3 * (time.Second + time.Duration(r.SwapP99*float64(time.Second)))
}

// Has reports whether a quirk was found.
func (r Report) Has(quirk string) bool {
	for _, q := range r.Quirks {
		if q == quirk {
			return true
		}
	}
	return false
}

// Refusal is the error for a store that cannot hold leases. Found and Why are a sentence each; there is no way around it.
type Refusal struct {
	Step  string // name of the step that failed
	Found string
	Why   string
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("this store cannot hold leases: %s (step %q); %s", r.Found, r.Step, r.Why)
}

// Due says whether the store must be probed (again), and why. found is false when there is no stored report.
func Due(r Report, found bool, store, version string, now time.Time) (why string, due bool) {
	at, err := time.Parse(time.RFC3339, r.Time)
	switch {
	case !found:
		return "the store was never probed", true
	case !r.Pass:
		return "the last probe refused the store", true
	case r.Protocol != 1 || err != nil:
		return "the last report cannot be read", true
	case r.Store != store:
		return "the store's address has changed", true
	case r.Version != version:
		return "headway has changed since the last probe", true
	case now.Sub(at) > good || at.After(now.Add(time.Hour)):
		return "the last probe is older than a week", true
	}
	return "", false
}

// Read returns the stored report. Absent or unreadable is not found: it is probed again.
func Read(ctx context.Context, b bucket.Bucket) (r Report, found bool, err error) {
	o, err := b.Get(ctx, Key, bucket.Range{})
	if bucket.Is(err, bucket.NotFound) {
		return Report{}, false, nil
	}
	if err != nil {
		return Report{}, false, err
	}
	data, err := io.ReadAll(io.LimitReader(o.Body, maxReport))
	if err := errors.Join(err, o.Body.Close()); err != nil {
		return Report{}, false, err
	}
	if json.Unmarshal(data, &r) != nil {
		return Report{}, false, nil
	}
	return r, true, nil
}

// Write stores a report for the next run. It is a note and no authority: whoever can write it can write leases too.
func Write(ctx context.Context, b bucket.Bucket, r Report) error {
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	_, err = b.Put(ctx, Key, bytes.NewReader(append(data, '\n')), bucket.Always())
	return err
}
