package plan

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/headway-run/headway/plan/flops"
)

// The share of a card's rated peak that an estimate assumes (MFU). What a job really gets is measured once it runs.
const (
	AssumedMFULow  = 0.3
	AssumedMFUHigh = 0.5
)

// Estimate is how long a whole run takes where it would run now, if nothing interrupts it: FLOPs ÷ (cards ×
// rated peak × assumed MFU). Start-up, evaluation, queues and lost work are not in it.
type Estimate struct {
	Platform string  `json:"platform"`
	Card     string  `json:"card"`  // id of the card
	Cards    int     `json:"cards"` // that work on it together
	DType    string  `json:"dtype"`
	Low      float64 `json:"low_hours"` // at AssumedMFUHigh
	High     float64 `json:"high_hours"`
	MFULow   float64 `json:"assumed_mfu_low"`
	MFUHigh  float64 `json:"assumed_mfu_high"`
}

// rate is what one rung computes for one kind of GPU wish, without the job's FLOPs.
type rate struct {
	card  string
	cards int
	peak  float64 // of one card, FLOP/s; 0: not known
}

// rater remembers what rateOf found, for all jobs that ask alike.
type rater struct {
	plan    *Plan
	rates   map[string]rate // of a platform for a GPU wish
	scratch []byte
}

// estimate is nil where anything is unknown: the FLOPs, the card (none, or several that the platform might give), its
// math mode or its peak in it.
func (d *rater) estimate(j *Job, platform string) *Estimate {
	if j.FLOPs.Total <= 0 || platform == "" || len(j.GPU.Any) == 0 || j.GPU.DType == "" {
		return nil
	}
	r := d.rate(platform, &j.GPU)
	if r.peak <= 0 {
		return nil
	}
	hours := j.FLOPs.Total / (r.peak * float64(r.cards)) / 3600
	return &Estimate{Platform: platform, Card: r.card, Cards: r.cards, DType: j.GPU.DType,
		Low: hours / AssumedMFUHigh, High: hours / AssumedMFULow, MFULow: AssumedMFULow, MFUHigh: AssumedMFUHigh}
}

// rate is what rateOf finds, once for all jobs that ask alike.
func (d *rater) rate(platform string, want *GPU) rate {
	k := binary.AppendUvarint(d.scratch[:0], uint64(want.Count))
	put := func(s string) { k = append(binary.AppendUvarint(k, uint64(len(s))), s...) }
	put(platform)
	put(want.DType)
	for _, name := range want.Any {
		put(name)
	}
	d.scratch = k
	r, ok := d.rates[string(k)]
	if !ok {
		r = rateOf(d.plan.Config.Platforms[platform], *want)
		d.rates[string(k)] = r
	}
	return r
}

// rateOf finds the one card that a platform would give.
func rateOf(p Platform, want GPU) rate {
	var found rate
	for _, offer := range p.GPU {
		o, err := flops.LookupOn(p.Runner, offer)
		if err != nil {
			return rate{}
		}
		for _, name := range want.Any {
			w, err := flops.LookupOn(p.Runner, name)
			if err != nil {
				return rate{}
			}
			cards := max(w.Count, want.Count, 1)
			for _, card := range o.GPUs {
				for _, other := range w.GPUs {
					if card.ID != other.ID || o.Count > 1 && o.Count < cards {
						continue
					}
					if found.card != "" && (found.card != card.ID || found.cards != cards) {
						return rate{} // one or the other
					}
					found.card, found.cards = card.ID, cards
					found.peak, _ = flops.Peak(card, flops.Mode(want.DType)) // 0 where none is rated
				}
			}
		}
	}
	return found
}

// Card is the one card, by its id, that a platform would give to whoever asks for these, and the rated FLOP/s of all that
// work together (flops.Peak × how many). Not ok: there is none, several would do, or no peak is rated in that math mode.
func Card(p Platform, want GPU) (id string, peak float64, ok bool) {
	if len(want.Any) == 0 || want.DType == "" {
		return "", 0, false
	}
	r := rateOf(p, want)
	return r.card, r.peak * float64(r.cards), r.peak > 0
}

// String says the range and what it assumes.
func (e *Estimate) String() string {
	cards := e.Card
	if e.Cards > 1 {
		cards = strconv.Itoa(e.Cards) + " of " + cards
	}
	return fmt.Sprintf("%s to %s on %s in %s at an assumed MFU of %g to %g", hours(e.Low), hours(e.High), cards, e.DType, e.MFULow, e.MFUHigh)
}

// hours writes a time with two digits that count.
func hours(h float64) string {
	switch {
	case h < 1.0/60:
		return strconv.FormatFloat(h*3600, 'g', 2, 64) + " s"
	case h < 1:
		return strconv.FormatFloat(h*60, 'g', 2, 64) + " min"
	case h < 100:
		return strconv.FormatFloat(h, 'g', 2, 64) + " h"
	case h < 24e6:
		return strconv.FormatFloat(h/24, 'f', 0, 64) + " d"
	}
	return strconv.FormatFloat(h/24, 'g', 2, 64) + " d"
}
