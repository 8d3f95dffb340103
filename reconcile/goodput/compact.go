package goodput

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headway-run/headway/runners/record"
)

// Bounds of a Compact: what the statistics need, however much a platform is used.
const (
	mostScores   = 128    // newest attempts whose scores count
	mostFamilies = 64     // families, each in one environment, whose scores are kept beyond those
	ofFamily     = 8      // newest attempts of each of them
	mostTimed    = 300    // 299 captures are needed for a 99 % quantile with 95 % confidence
	mostNames    = 40_000 // folded names; beyond, observations wait to be folded until older names are forgotten
	openFor      = 24 * time.Hour
	mostMFU      = 1e3       // above it no card computes: a stranger's word, or a card that is not the one it was taken for
	ofAccount    = 1_000_000 // steps that one attempt's account weighs at most in a platform's histogram
)

// MaxCompact bounds a stored Compact, bytes.
const MaxCompact = 2 << 20

// Score is what one attempt achieved. Its score is Share × MFU / the reference of its family, computed when it is asked
// for, so that it doesn't depend on the order in which observations came in.
type Score struct {
	At     int64   `json:"at"` // store's stamp of its end, Unix seconds
	Family string  `json:"family,omitempty"`
	Wait   string  `json:"wait,omitempty"` // split or merged
	Share  float64 `json:"share"`
	MFU    float64 `json:"mfu,omitempty"` // 0: undefined

	Env record.Environment `json:"env,omitzero"`
}

// Timed is one wait that was measured.
type Timed struct {
	At       int64   `json:"at"`
	S        float64 `json:"s"`
	Censored bool    `json:"censored,omitempty"`
	Image    string  `json:"image,omitempty"` // as in record.Environment; "": not known, as of a launch that brought nobody
}

// Totals are sums over all that was ever folded.
type Totals struct {
	Dispatches int64   `json:"dispatches"`
	Captured   int64   `json:"captured"`
	Losses     int64   `json:"losses"` // attempts that the platform ended
	PaidS      float64 `json:"paid_s"`
	WorkKept   float64 `json:"work_kept"`
	StepKeptS  float64 `json:"step_kept_s"`
	LostS      float64 `json:"lost_s"`
	TailS      float64 `json:"tail_s"`
}

// Compact is the history of one key as it is stored: bounded, whatever was folded into it. Folding is idempotent: the
// names of what was folded are kept until nobody writes such an observation any more (see Close).
type Compact struct {
	Protocol int    `json:"protocol"`
	Rev      int64  `json:"rev"`
	Write    string `json:"write"` // random, fresh on every write
	Platform string `json:"platform"`
	GPU      string `json:"gpu"`
	Mode     string `json:"mode"`

	Totals   Totals           `json:"totals"`
	Scores   []Score          `json:"scores,omitempty"`   // oldest first
	Eras     []Era            `json:"eras,omitempty"`     // the environments of all scores, by when they began
	Captures []Timed          `json:"captures,omitempty"` // likewise; claim to first lease
	Starts   []Timed          `json:"starts,omitempty"`   // acknowledged launch to first lease
	Warms    []Timed          `json:"warms,omitempty"`
	Steps    record.Histogram `json:"steps"`
	Calm     Calm             `json:"calm"`

	// Folded are the names of what was folded, by day of its end. Days until Closed are over: nothing of them is folded any more.
	Folded map[string][]string `json:"folded,omitempty"`
	Closed string              `json:"closed,omitempty"`

	names map[string]bool // of Folded; made when it is needed
}

// NewCompact is the empty history of a key.
func NewCompact(k Key) *Compact {
	return &Compact{Protocol: record.Protocol, Platform: k.Platform, GPU: k.GPU, Mode: k.Mode}
}

// Key says what it is the history of.
func (c *Compact) Key() Key { return Key{c.Platform, c.GPU, c.Mode} }

// KeyOf says to which history an observation belongs.
func KeyOf(o record.Observation) Key { return Key{o.Platform, o.GPU, o.Mode} }

// Name is what an observation is remembered by.
func Name(work string, dispatch int64) string { return fmt.Sprintf("%.16s.%d", work, dispatch) }

// nameOf is an observation's name; what came late is remembered apart.
func nameOf(o record.Observation) string {
	if o.Late {
		return Name(o.Work, o.Dispatch) + "~"
	}
	return Name(o.Work, o.Dispatch)
}

// Has reports whether an observation was folded, or is of a day that is over.
func (c *Compact) Has(o record.Observation) bool {
	at, err := time.Parse(time.RFC3339, o.Time)
	return err != nil || dayOf(at) <= c.Closed || c.named()[nameOf(o)]
}

// Named reports whether the name of an observation is among those that are remembered.
func (c *Compact) Named(name string) bool { return c.named()[name] }

func (c *Compact) named() map[string]bool {
	if c.names == nil {
		c.names = map[string]bool{}
		for _, list := range c.Folded {
			for _, n := range list {
				c.names[n] = true
			}
		}
	}
	return c.names
}

// Full: no more names can be remembered before a day is over, so nothing more may be folded.
func (c *Compact) Full() bool { return len(c.named()) >= mostNames }

func dayOf(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// lossy are the classes of an end that is the platform's doing, a table of values.
var lossy = []string{"silent", "yielded", "deposed", "lease_lost"}

// Fold adds one observation; false: it was folded before, is none that an honest dispatcher writes, or is of a day that is over.
func (c *Compact) Fold(o record.Observation) bool {
	if Check(o) != nil || KeyOf(o) != c.Key() || c.Has(o) || c.Full() {
		return false
	}
	end, _ := time.Parse(time.RFC3339, o.Time) // Check has parsed it
	at, name, day := end.Unix(), nameOf(o), dayOf(end)
	if c.Folded == nil {
		c.Folded = map[string][]string{}
	}
	i, _ := slices.BinarySearch(c.Folded[day], name)
	c.Folded[day] = slices.Insert(c.Folded[day], i, name)
	c.named()[name] = true

	if o.Late {
		c.Steps.Merge(weighed(record.Histogram{Censored: o.All.Ratios.Censored}))
		c.Calm = c.Calm.after(o)
		return true
	}
	c.Totals.Dispatches++
	c.Captures = timed(c.Captures, Timed{at, o.CaptureS, !o.Captured, o.Env.Image})
	if !o.Captured {
		return true
	}
	t := &c.Totals
	t.Captured++
	t.PaidS += o.PaidS
	t.WorkKept += o.WorkKept
	t.StepKeptS += o.StepKeptS
	t.LostS += o.LostS
	t.TailS += o.TailS
	if slices.Contains(lossy, o.Class) {
		t.Losses++
	}
	if o.StartS > 0 {
		c.Starts = timed(c.Starts, Timed{at, o.StartS, false, o.Env.Image})
	}
	if o.FirstStepS > 0 {
		c.Warms = timed(c.Warms, Timed{at, o.FirstStepS, false, o.Env.Image})
	} else if ran := o.PaidS - o.StartS - o.TailS; ran > 0 {
		c.Warms = timed(c.Warms, Timed{at, ran, true, o.Env.Image})
	}
	c.Steps.Merge(weighed(o.All.Ratios))
	c.Calm = c.Calm.after(o)
	s := StintOf(o)
	if share, ok := s.Share(); ok {
		mfu, _ := s.MFU()
		if mfu > mostMFU {
			mfu = 0 // undefined
		}
		c.era(s.Env, at)
		c.score(Score{at, s.Family, s.Wait, share, mfu, s.Env})
	}
	return true
}

// weighed is an account's histogram as it is added to those of all: one that tells of more steps than a long attempt has is
// scaled down, so that no single word outweighs what all the others measured. What is rare stays seen: counts are rounded up.
func weighed(h record.Histogram) record.Histogram {
	done, cut := h.N()
	if done+cut <= ofAccount {
		return h
	}
	share := ofAccount / float64(done+cut)
	scaled := func(m map[int]int64) map[int]int64 {
		out := make(map[int]int64, len(m))
		for bin, n := range m {
			out[bin] = int64(math.Ceil(float64(n) * share))
		}
		return out
	}
	return record.Histogram{Done: scaled(h.Done), Censored: scaled(h.Censored)}
}

// StintOf is an observation as it is judged.
func StintOf(o record.Observation) Stint {
	end, err := time.Parse(time.RFC3339, o.Time)
	s := Stint{Work: o.WorkKept, StepS: o.StepKeptS, PaidS: o.PaidS, StartS: o.StartS, TailS: o.TailS, Peak: o.Peak * float64(max(o.GPUs, 1)),
		Nothing: o.StepKeptS == 0 && !o.Unmeasured, Key: KeyOf(o), Family: o.Family, Wait: cmp.Or(o.All.Wait, record.WaitMerged), Env: o.Env}
	if err == nil {
		s.At = end.Unix()
	}
	return s
}

// score files one score by its time and lets go what is beyond the bounds.
func (c *Compact) score(s Score) {
	i, _ := slices.BinarySearchFunc(c.Scores, s, func(a, b Score) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Family, b.Family), cmp.Compare(a.Share, b.Share), cmp.Compare(a.MFU, b.MFU), compareEnv(a.Env, b.Env))
	})
	c.Scores = slices.Insert(c.Scores, i, s)
	if len(c.Scores) <= mostScores {
		return
	}
	type kind struct {
		family string
		env    record.Environment
	}
	kinds := map[kind]int{}
	var kept []Score
	for k, s := range slices.Backward(c.Scores) {
		recent := len(c.Scores)-k <= mostScores
		of := kind{s.Family, s.Env}
		n, known := kinds[of]
		if recent || n < ofFamily && (known || len(kinds) < mostFamilies) {
			kept = append(kept, s)
			kinds[of]++
		}
	}
	slices.Reverse(kept)
	c.Scores = kept
}

func timed(list []Timed, t Timed) []Timed {
	i, _ := slices.BinarySearchFunc(list, t, func(a, b Timed) int {
		one := 0
		if a.Censored != b.Censored {
			one = 1
			if b.Censored {
				one = -1
			}
		}
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.S, b.S), one, cmp.Compare(a.Image, b.Image))
	})
	list = slices.Insert(list, i, t)
	return list[max(len(list)-mostTimed, 0):]
}

// newest is the latest stamp in it, Unix seconds.
func (c *Compact) newest() (at int64) {
	for _, list := range [][]Timed{c.Captures, c.Starts, c.Warms} {
		if len(list) > 0 {
			at = max(at, list[len(list)-1].At)
		}
	}
	if len(c.Scores) > 0 {
		at = max(at, c.Scores[len(c.Scores)-1].At)
	}
	return at
}

// Writable reports whether an end of that age (by the store's two stamps) may still be written down as an observation.
func Writable(age time.Duration) bool { return age < openFor }

// Close forgets the names of days that are over for good: the store's clock is a day past the last moment at which anyone
// writes an observation of them (Writable). Observations of such a day that turn up all the same are not folded.
func (c *Compact) Close(now time.Time) {
	if now.IsZero() {
		return
	}
	over := dayOf(now.Add(-2*openFor - 24*time.Hour))
	if over > c.Closed {
		c.Closed = over
	}
	for day := range c.Folded {
		if day <= c.Closed {
			delete(c.Folded, day)
			c.names = nil
		}
	}
}

// Clone is a copy that shares nothing that Fold changes.
func (c *Compact) Clone() *Compact {
	n := *c
	n.names = nil
	n.Scores, n.Captures, n.Starts, n.Warms = slices.Clone(c.Scores), slices.Clone(c.Captures), slices.Clone(c.Starts), slices.Clone(c.Warms)
	n.Eras = slices.Clone(c.Eras)
	n.Steps = record.Histogram{}
	n.Steps.Merge(c.Steps)
	n.Folded = make(map[string][]string, len(c.Folded))
	for day, list := range c.Folded {
		n.Folded[day] = slices.Clone(list)
	}
	return &n
}

// Decode reads a stored history; everything in a bucket may have been written by a stranger.
func Decode(b []byte) (*Compact, error) {
	var c Compact
	if err := record.Decode(b, MaxCompact, &c); err != nil {
		return nil, err
	}
	if c.Protocol < 1 || c.Protocol > record.Protocol {
		return nil, fmt.Errorf("it is of protocol %d, this version reads up to %d", c.Protocol, record.Protocol)
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	return &c, c.Steps.Check()
}

func (c *Compact) check() error {
	t := c.Totals
	if !c.Calm.check() {
		return fmt.Errorf("its clock is out of bounds: %+v", c.Calm)
	}
	if !sane(1e18, float64(t.Dispatches), float64(t.Captured), float64(t.Losses), t.PaidS, t.StepKeptS, t.LostS, t.TailS) || !sane(1e60, t.WorkKept) {
		return fmt.Errorf("its totals are out of bounds: %+v", t)
	}
	if len(c.Scores) > mostScores+mostFamilies*ofFamily || max(len(c.Captures), len(c.Starts), len(c.Warms)) > mostTimed {
		return fmt.Errorf("it holds more samples than are kept")
	}
	for _, s := range c.Scores {
		if !sane(1e30, float64(s.At), s.MFU) || !sane(1, s.Share) {
			return fmt.Errorf("a score is out of bounds: %+v", s)
		}
		if !written(s.Family, mostText) || len(s.Wait) > len(record.WaitMerged) {
			return fmt.Errorf("a score with a family of more than %d bytes as they are stored", mostText)
		}
		if err := checkEnv(s.Env); err != nil {
			return err
		}
	}
	if err := c.checkEras(); err != nil {
		return err
	}
	for _, list := range [][]Timed{c.Captures, c.Starts, c.Warms} {
		for _, t := range list {
			if !sane(1e10, float64(t.At), t.S) || !written(t.Image, mostFact+2) {
				return fmt.Errorf("a time is out of bounds: %+v", t)
			}
		}
		if !slices.IsSortedFunc(list, func(a, b Timed) int { return cmp.Compare(a.At, b.At) }) {
			return fmt.Errorf("its times are out of order")
		}
	}
	if !slices.IsSortedFunc(c.Scores, func(a, b Score) int { return cmp.Compare(a.At, b.At) }) {
		return fmt.Errorf("its scores are out of order")
	}
	return nil
}

// sane: all are numbers from 0 to most.
func sane(most float64, all ...float64) bool {
	return !slices.ContainsFunc(all, func(v float64) bool { return !(v >= 0) || v > most })
}

// mostText bounds a family as it is stored: a control character takes six bytes there.
const mostText = 640

// written reports whether a text takes that many bytes at most as it is stored.
func written(text string, most int) bool {
	b, err := record.Encode(text)
	return err == nil && len(b) <= most
}

// Check refuses an observation that no honest dispatcher writes.
func Check(o record.Observation) error {
	at, err := time.Parse(time.RFC3339, o.Time)
	switch {
	case o.Protocol < 1 || o.Protocol > record.Protocol:
		return fmt.Errorf("an observation of protocol %d, this version reads up to %d", o.Protocol, record.Protocol)
	case err != nil || at.Unix() < 0 || at.Year() > 9999:
		return fmt.Errorf("an observation of the time %.40q: expected RFC 3339", o.Time)
	case len(o.Work) != 64 || strings.Trim(o.Work, "0123456789abcdef") != "" || o.Dispatch < 1 || o.Attempt < 0:
		return fmt.Errorf("an observation of dispatch %d of %.80q: expected a work of 64 hex digits and a number from 1", o.Dispatch, o.Work)
	case len(o.Platform) == 0 || max(len(o.Platform), len(o.GPU), len(o.Mode)) > 128 || len(o.GPU) == 0 || len(o.Mode) == 0 || len(o.Family) > 512:
		return fmt.Errorf("an observation without a platform, card and math mode, or with one that is too long")
	case !written(o.Family, mostText):
		return fmt.Errorf("an observation of a family of more than %d bytes as they are stored", mostText)
	case !sane(1e9, o.CaptureS, o.StartS, o.FirstStepS, o.PaidS, o.StepKeptS, o.LostS, o.TailS) || !sane(1e40, o.WorkKept, o.Peak) || o.GPUs < 0 || o.GPUs > 1<<20:
		return fmt.Errorf("an observation with a number out of bounds")
	case o.Peak > 0 && o.StepKeptS > 0 && math.IsInf(o.WorkKept/(o.Peak*o.StepKeptS), 0):
		return fmt.Errorf("an observation of infinite speed")
	}
	return cmp.Or(checkEnv(o.Env), o.All.Check())
}
