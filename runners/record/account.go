package record

import (
	"fmt"
	"math"
)

// Sums is a worker's own account of where an attempt's time went: raw sums from its monotonic clock, never ratios, so
// that several attempts can be added up. A milestone's manifest carries the sums until that snapshot, a result's
// manifest and end.json those of the whole attempt: what was kept is the sums of the last manifest that the resume pointer
// (or the result pointer) named, whatever befell the worker later. Everything in it is hostile text's equal: a claim,
// bounded by Check.
type Sums struct {
	Steps  int64     `json:"steps"`          // finished steps
	Work   float64   `json:"work"`           // FLOPs of these steps; 0: the job does not say what a step costs
	StepS  float64   `json:"step_s"`         // seconds of these steps, boundary to boundary, without what stands below
	WarmS  float64   `json:"warm_s"`         // capture to the first steady step
	WaitS  float64   `json:"wait_s"`         // waiting for data, where the program says so
	SaveS  float64   `json:"save_s"`         // the loop blocked by a snapshot copy
	EvalS  float64   `json:"eval_s"`         // declared phases other than save
	Wait   string    `json:"wait,omitempty"` // "split": WaitS is apart; "" or "merged": waits are inside StepS
	Median float64   `json:"median_s"`       // of a steady step, seconds; 0: too few steps
	Ratios Histogram `json:"ratios"`         // of steady steps: duration / median

	Snapshots int64   `json:"snapshots,omitempty"` // milestones that reached the store
	UploadS   float64 `json:"upload_s,omitempty"`  // seconds that they were on their way, in the background
}

// WaitSplit and WaitMerged are the values of Sums.Wait.
const (
	WaitSplit  = "split"
	WaitMerged = "merged"
)

// Check refuses what no honest worker can have measured: a negative, infinite or absurd number.
func (s Sums) Check() error {
	for _, v := range []float64{s.Work, s.StepS, s.WarmS, s.WaitS, s.SaveS, s.EvalS, s.Median, s.UploadS} {
		if !(v >= 0) || v > 1e40 {
			return fmt.Errorf("an account with the number %v: expected one from 0 to 1e40", v)
		}
	}
	if s.Steps < 0 || s.StepS > 1e9 || s.WarmS > 1e9 || s.WaitS > 1e9 || s.SaveS > 1e9 || s.EvalS > 1e9 || s.Median > 1e9 || s.UploadS > 1e9 || s.Snapshots < 0 {
		return fmt.Errorf("an account of %d steps in %v s: expected at most 1e9 seconds of each kind", s.Steps, s.StepS)
	}
	return s.Ratios.Check()
}

// Sound is s, or nil where it is none or Check refuses it: a bad account spoils nothing but itself.
func (s *Sums) Sound() *Sums {
	if s == nil || s.Check() != nil {
		return nil
	}
	return s
}

// Histogram counts ratios (of a step's time to the median step, dimensionless) in bins of an eighth of an octave from
// 1/2 to 2^13; what lies outside is counted in the outermost bin. It is mergeable: a sum of histograms is the histogram
// of all. Censored are steps that never ended: the one during which the lease was lost, counted at the ratio it had reached.
type Histogram struct {
	Done     map[int]int64 `json:"done,omitempty"`     // bin → finished steps
	Censored map[int]int64 `json:"censored,omitempty"` // bin → steps that were cut off there
}

// Bins of a Histogram are numbered from 0 to MaxBin; bin b holds 2^(b/8-1) ≤ ratio < 2^((b+1)/8-1).
const MaxBin = 14*8 - 1

// BinOf returns the bin of a ratio; anything that is not above 1/2 is in bin 0.
func BinOf(ratio float64) int {
	if !(ratio > 0.5) {
		return 0
	}
	return int(min(math.Floor((math.Log2(ratio)+1)*8), MaxBin))
}

// BinFloor is the lowest ratio of a bin.
func BinFloor(bin int) float64 { return math.Exp2(float64(bin)/8 - 1) }

// Add counts one step.
func (h *Histogram) Add(ratio float64, censored bool) {
	m := &h.Done
	if censored {
		m = &h.Censored
	}
	if *m == nil {
		*m = map[int]int64{}
	}
	(*m)[BinOf(ratio)]++
}

// mostCount bounds what one bin counts: sums of all bins, of any number of histograms, stay in range.
const mostCount = 1e15

// Merge adds another histogram's counts; a bin counts 1e15 at most.
func (h *Histogram) Merge(o Histogram) {
	for _, side := range []struct{ to, from *map[int]int64 }{{&h.Done, &o.Done}, {&h.Censored, &o.Censored}} {
		for bin, n := range *side.from {
			if *side.to == nil {
				*side.to = map[int]int64{}
			}
			(*side.to)[bin] = min((*side.to)[bin]+n, mostCount) // both are within the bound: see Check
		}
	}
}

// N counts finished and censored steps.
func (h Histogram) N() (done, censored int64) {
	for _, n := range h.Done {
		done += n
	}
	for _, n := range h.Censored {
		censored += n
	}
	return done, censored
}

// Check refuses bins and counts that Add cannot have made.
func (h Histogram) Check() error {
	for _, m := range []map[int]int64{h.Done, h.Censored} {
		for bin, n := range m {
			if bin < 0 || bin > MaxBin || n < 0 || n > mostCount {
				return fmt.Errorf("a histogram with %d in bin %d: expected bins 0 to %d and counts from 0 to 1e15", n, bin, MaxBin)
			}
		}
	}
	return nil
}

// Price is what something costs per hour, in the platform's own unit ("USD", "credits", "quota hours"); never converted.
type Price struct {
	PerHour float64 `json:"per_hour"`
	Unit    string  `json:"unit"`
	AtMost  bool    `json:"at_most,omitempty"` // an upper bound: what it really costs is not known
}

// Environment is what starts a new history of a platform when it changes: its attempts are not mixed with those before. Each is
// bounded text, a worker's word but for the price; "": not known, or there is none.
type Environment struct {
	Driver string `json:"driver,omitempty"` // major version of the card's driver
	Image  string `json:"image,omitempty"`  // system and Python that the worker found
	Price  string `json:"price,omitempty"`  // class of the price: "free", or its unit
}

// Observation is what one ended dispatch taught: written once (created if absent) by whichever dispatcher first sees the
// end, then folded into the compact statistics of its key (platform, GPU id, math mode). A dispatch that no worker
// captured is one too: Captured false, a right-censored capture time. All seconds are differences of the store's own
// stamps, or a worker's sums.
type Observation struct {
	Protocol int     `json:"protocol"`
	Platform string  `json:"platform"`
	GPU      string  `json:"gpu"`            // resolved id of the card the worker measured ("nvidia-t4"); "cpu": none; "unknown": its name is in no table
	Mode     string  `json:"mode"`           // math mode: fp16, tf32, …; "none" for CPU
	GPUs     int     `json:"gpus,omitempty"` // cards of the attempt
	Peak     float64 `json:"peak,omitempty"` // rated FLOP/s of one card in Mode; 0: not known
	Family   string  `json:"family"`         // the job's group: what MFUs are compared within
	Work     string  `json:"work"`
	Dispatch int64   `json:"dispatch"`
	Attempt  int64   `json:"attempt,omitempty"` // 0: not captured
	Class    string  `json:"class"`             // how it ended, by the budget table
	Runner   string  `json:"runner"`
	// Late: an addition to the observation of that dispatch, whose worker was written off as silent and told of its end after
	// that was written. Only All.Ratios.Censored counts: how far its step had come.
	Late bool `json:"late,omitempty"`

	Captured   bool    `json:"captured"`
	CaptureS   float64 `json:"capture_s"`              // claim to first lease, or to the moment it was given up
	FirstStepS float64 `json:"first_step_s,omitempty"` // capture to the first steady step; 0: it came to none
	StartS     float64 `json:"start_s,omitempty"`      // launch acknowledged to first lease; 0: not captured, or not known
	PaidS      float64 `json:"paid_s"`                 // launch acknowledged to the end of the charge
	PaidOpen   bool    `json:"paid_open,omitempty"`    // the end of the charge is not confirmed: PaidS is a lower bound
	WorkKept   float64 `json:"work_kept"`              // FLOPs before the last milestone whose pointer moved
	StepKeptS  float64 `json:"step_kept_s"`            // seconds of those steps
	Unmeasured bool    `json:"unmeasured,omitempty"`   // something was kept, and nobody told how long it took
	LostS      float64 `json:"lost_s"`                 // seconds of steps after it
	TailS      float64 `json:"tail_s"`                 // last renewal to the end of the charge
	All        Sums    `json:"all"`                    // of the whole attempt, as far as it told
	Price      *Price  `json:"price,omitempty"`        // nil: unknown
	// Env is where it ran; zero in what older versions wrote, and where no worker told.
	Env  Environment `json:"env,omitzero"`
	Time string      `json:"time"` // store's stamp of the end, RFC 3339: ages are counted from it
}

// Verdict is how an attempt was judged when the next dispatch was claimed, and what it was judged by. The first claim that
// carries one is believed: whatever is learnt later of its platform, what was spent stays spent, and nothing else does.
// Times are seconds.
type Verdict struct {
	Attempt  int64   `json:"attempt"`
	Spent    bool    `json:"spent"`              // below its bound: it costs a retry, unless its class never does
	Known    bool    `json:"known"`              // what it committed, and in how much paid time, could be told
	Why      string  `json:"why"`                // one clause
	Score    float64 `json:"score"`              // of the window of attempts that ends with it
	Bound    float64 `json:"bound"`              // that it was held against
	Platform string  `json:"platform,omitempty"` // where it ran
	GPU      string  `json:"gpu,omitempty"`      // as in Observation
	Mode     string  `json:"mode,omitempty"`
	Family   string  `json:"family,omitempty"`
	Wait     string  `json:"wait,omitempty"`
	Work     float64 `json:"work_kept"` // FLOPs
	StepS    float64 `json:"step_kept_s"`
	PaidS    float64 `json:"paid_s"`
	StartS   float64 `json:"start_s"`
	TailS    float64 `json:"tail_s,omitempty"`  // silence that its lease had allowed
	Peak     float64 `json:"peak,omitempty"`    // FLOP/s of all its cards; 0: unknown
	Nothing  bool    `json:"nothing,omitempty"` // nothing was kept
	End      int64   `json:"end,omitempty"`     // store's stamp of its end, Unix seconds

	Env Environment `json:"env,omitzero"` // as in Observation
}
