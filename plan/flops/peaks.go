package flops

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Mode is a math mode: what a rated peak is keyed by.
type Mode string

const (
	FP64      Mode = "fp64"
	FP32      Mode = "fp32"
	TF32      Mode = "tf32" // what a convolution "in fp32" runs in on Ampere and later, unless switched off
	BF16      Mode = "bf16"
	FP16      Mode = "fp16"       // fp32 accumulation: AMP and pure half precision
	FP16Acc16 Mode = "fp16_acc16" // only when the job switched fp16 accumulation on
	FP8       Mode = "fp8"
	INT8      Mode = "int8"
)

// Modes is the table of all math modes.
var Modes = []Mode{FP64, FP32, TF32, BF16, FP16, FP16Acc16, FP8, INT8}

// Rated is the peaks of one card in 10^12 operations per second, dense. 0 means that none is known or that the
// hardware lacks the mode: neither is ever replaced by another figure.
type Rated struct {
	FP64, FP64Tensor, FP32, FP32Matrix, TF32, BF16, FP16, FP16Acc16, FP8, FP8Acc16, INT8 float64
}

// GPU is one row of the table made from gpus.yaml. Figures are per device as the system shows it, except in rows with
// PerBoard, which Peak and Memory divide.
type GPU struct {
	ID         string // nvidia-rtx-4090
	Vendor     string
	Arch       string
	Capability string
	MemoryGB   []float64 // sizes that this card is sold with
	Devices    int       // devices of one board
	PerBoard   bool      // Rated and MemoryGB are of a board with Devices devices
	Units      int       // SMs or CUs; 0: unknown
	BoostMHz   float64
	Rated      Rated
	Drivers    []string // names that the driver gives
	Offers     []Offer  // names that providers give
	Evidence   string   // read, derived or recalled: see gpus.yaml
}

// Offer is a provider's name for a card.
type Offer struct {
	Provider string // gcp, kaggle, lightning, modal, runpod, vast
	Name     string
	Count    int // cards that come under this name
}

// Errors of Resolve and Peak, to be asked for with errors.Is.
var (
	ErrUnknownGPU   = errors.New("unknown GPU")
	ErrAmbiguousGPU = errors.New("ambiguous GPU name")
	ErrNoPeak       = errors.New("no rated peak")
	ErrUnknownMode  = errors.New("unknown math mode")
)

// UnknownGPUError says that no row has this name.
type UnknownGPUError struct {
	Name  string
	Slice bool // the name is of a MIG slice, which has no rated peak
}

// Nearest lists the most similar known names, at most three. It compares with all of them, which those who only ask
// whether a name is known are spared.
func (e *UnknownGPUError) Nearest() []string { return nearestGPU(normal(e.Name)) }

func (e *UnknownGPUError) Error() string {
	if e.Slice {
		return fmt.Sprintf("GPU %q is a slice of a card: a slice has no rated peak; use the whole card or leave the GPU out", e.Name)
	}
	s := fmt.Sprintf("unknown GPU %q", e.Name)
	if near := e.Nearest(); len(near) > 0 {
		s += ": did you mean " + strings.Join(near, ", ") + "?"
	}
	return s
}

func (e *UnknownGPUError) Unwrap() error { return ErrUnknownGPU }

// AmbiguousGPUError says that several rows have this name and that the memory size, if given, did not decide.
type AmbiguousGPUError struct {
	Name       string
	MemoryGB   float64 // as asked; 0: not given
	Candidates []GPU
}

func (e *AmbiguousGPUError) Error() string {
	var ids []string
	for _, g := range e.Candidates {
		ids = append(ids, g.ID)
	}
	return fmt.Sprintf("GPU %q is one of %s: write one of these", e.Name, strings.Join(ids, ", "))
}

func (e *AmbiguousGPUError) Unwrap() error { return ErrAmbiguousGPU }

// NoPeakError says that a card has no figure for a mode.
type NoPeakError struct {
	GPU  string
	Mode Mode
	Have []Mode // modes that have one
}

func (e *NoPeakError) Error() string {
	if len(e.Have) == 0 {
		return fmt.Sprintf("no rated peak for %s on %s: none of its peaks is known", e.Mode, e.GPU)
	}
	var have []string
	for _, m := range e.Have {
		have = append(have, string(m))
	}
	return fmt.Sprintf("no rated peak for %s on %s: it has %s", e.Mode, e.GPU, strings.Join(have, ", "))
}

func (e *NoPeakError) Unwrap() error { return ErrNoPeak }

// UnknownModeError says that a word is no math mode.
type UnknownModeError struct {
	Mode    string
	Nearest string
}

func (e *UnknownModeError) Error() string {
	if e.Nearest != "" {
		return fmt.Sprintf("unknown math mode %q: did you mean %q?", e.Mode, e.Nearest)
	}
	var all []string
	for _, m := range Modes {
		all = append(all, string(m))
	}
	return fmt.Sprintf("unknown math mode %q: expected one of %s", e.Mode, strings.Join(all, ", "))
}

func (e *UnknownModeError) Unwrap() error { return ErrUnknownMode }

// ParseMode reads a math mode, exactly as written in Modes.
func ParseMode(s string) (Mode, error) {
	if slices.Contains(Modes, Mode(s)) {
		return Mode(s), nil
	}
	var all []string
	for _, m := range Modes {
		all = append(all, string(m))
	}
	return "", &UnknownModeError{Mode: s, Nearest: nearest(strings.ToLower(s), all)}
}

// GPUs returns the table's rows. The slices inside are shared: read only.
func GPUs() []GPU { return slices.Clone(table) }

// figure is the table's own number for a mode, in 10^12.
func (r Rated) figure(m Mode) float64 {
	switch m {
	case FP64:
		return r.FP64
	case FP32:
		return r.FP32
	case TF32:
		return r.TF32
	case BF16:
		return r.BF16
	case FP16:
		return r.FP16
	case FP16Acc16:
		return r.FP16Acc16
	case FP8:
		return r.FP8
	case INT8:
		return r.INT8
	}
	return 0
}

func (g GPU) share() float64 {
	if g.PerBoard {
		return 1 / float64(g.Devices)
	}
	return 1
}

// Memory is the sizes of one device in GB.
func (g GPU) Memory() []float64 {
	out := slices.Clone(g.MemoryGB)
	for i := range out {
		out[i] *= g.share()
	}
	return out
}

// Modes lists the modes that have a rated peak, in the order of the package's Modes.
func (g GPU) Modes() []Mode {
	var out []Mode
	for _, m := range Modes {
		if g.Rated.figure(m) > 0 {
			out = append(out, m)
		}
	}
	return out
}

// Peak is the rated peak of one device in FLOP/s (operations per second for int8). The error is a *NoPeakError where
// the table has none, or an *UnknownModeError.
func Peak(g GPU, mode Mode) (float64, error) {
	if !slices.Contains(Modes, mode) {
		_, err := ParseMode(string(mode))
		return 0, err
	}
	f := g.Rated.figure(mode)
	if f == 0 {
		return 0, &NoPeakError{GPU: g.ID, Mode: mode, Have: g.Modes()}
	}
	return f * g.share() * 1e12, nil
}

// Match is a name's meaning.
type Match struct {
	GPUs  []GPU // one, or several cards that share the name
	Count int   // cards that come under this name: 2 for "T4x2"
}

// Lookup finds every row that a name may mean, in this order of trust: an id (nvidia-t4, or without the vendor), a
// driver name, a provider's name or the bare family ("A100"). A trailing "x2" or ":2" is a count. Names match whole,
// never by a part of them; case, "_" and "-" for a space, runs of spaces and a leading "NVIDIA " do not matter.
//
// A provider's name is a promise, good for planning; the peak of record comes from the driver name that the worker
// reports. The error is an *UnknownGPUError.
func Lookup(name string) (Match, error) { return lookup("", name) }

// LookupOn is Lookup where the names of one provider come first: "H100" is the SXM card on modal, three cards elsewhere.
func LookupOn(provider, name string) (Match, error) { return lookup(provider, name) }

func lookup(provider, name string) (Match, error) {
	if m, ok := exact(provider, name); ok {
		return m, nil
	}
	if base, n, ok := cutCount(name); ok {
		if m, ok := exact(provider, base); ok {
			m.Count *= n
			return m, nil
		}
	}
	return Match{}, &UnknownGPUError{Name: name, Slice: strings.Contains(normal(name), " mig ")}
}

// Resolve is Lookup for exactly one row. memoryGB (GB or GiB as a driver or a provider states it, 0 when unknown)
// decides between cards of one name; it is not held against a name that is unique. The error is an *UnknownGPUError or
// an *AmbiguousGPUError.
func Resolve(name string, memoryGB float64) (GPU, int, error) {
	m, err := Lookup(name)
	if err != nil {
		return GPU{}, 0, err
	}
	return m.one(name, memoryGB)
}

// ResolveOn is Resolve where the names of one provider come first.
func ResolveOn(provider, name string, memoryGB float64) (GPU, int, error) {
	m, err := LookupOn(provider, name)
	if err != nil {
		return GPU{}, 0, err
	}
	return m.one(name, memoryGB)
}

func (m Match) one(name string, memoryGB float64) (GPU, int, error) {
	fits := m.GPUs
	if len(fits) > 1 && memoryGB > 0 {
		fits = slices.DeleteFunc(slices.Clone(fits), func(g GPU) bool {
			// A driver shows up to 9 % less than the name says (reserved memory, GiB for GB), and 2 % more for HBM.
			return !slices.ContainsFunc(g.Memory(), func(have float64) bool { return memoryGB > 0.9*have && memoryGB < 1.08*have })
		})
		if len(fits) == 0 {
			fits = m.GPUs
		}
	}
	if len(fits) > 1 {
		return GPU{}, 0, &AmbiguousGPUError{Name: name, MemoryGB: memoryGB, Candidates: fits}
	}
	return fits[0], m.Count, nil
}

// normal is the form in which names are compared.
func normal(name string) string {
	s := strings.NewReplacer("_", " ", "-", " ").Replace(strings.ToLower(name))
	s = strings.Join(strings.Fields(s), " ")
	return strings.TrimPrefix(s, "nvidia ")
}

// cutCount splits "T4x2", "T4 x2" and "A100:2".
func cutCount(name string) (base string, n int, ok bool) {
	i := len(strings.TrimRight(name, "0123456789"))
	if i == len(name) || i < 2 || !strings.ContainsRune("xX:", rune(name[i-1])) {
		return "", 0, false
	}
	n, err := strconv.Atoi(name[i:])
	if err != nil || n < 1 || n > 1024 {
		return "", 0, false
	}
	return strings.TrimRight(name[:i-1], " _"), n, true
}

// trust orders the sorts of names: the first sort that knows a name decides.
type trust uint8

const (
	byID trust = iota
	byDriver
	byOffer // and bare families
)

// alias is one meaning of a normal name; the table of all is made from gpus.yaml and sorted by name, then trust.
type alias struct {
	name     string
	trust    trust
	provider string // of an offer
	row      int    // index into table
	count    int
}

// exact finds the rows of a whole name without a count.
func exact(provider, name string) (Match, bool) {
	n := normal(name)
	lo, found := slices.BinarySearchFunc(aliases, n, func(a alias, n string) int { return strings.Compare(a.name, n) })
	if !found {
		return Match{}, false
	}
	hi := lo
	for hi < len(aliases) && aliases[hi].name == n {
		hi++
	}
	all := aliases[lo:hi]
	if m := collect(all, func(a alias) bool { return provider != "" && a.provider == provider }); len(m.GPUs) > 0 {
		return m, true
	}
	return collect(all, func(a alias) bool { return a.trust == all[0].trust }), true
}

// collect gathers the rows of the aliases that count; one row may come under several.
func collect(all []alias, counts func(alias) bool) Match {
	var m Match
	var rows []int
	for _, a := range all {
		if !counts(a) {
			continue
		}
		m.Count = max(m.Count, a.count)
		if !slices.Contains(rows, a.row) {
			rows, m.GPUs = append(rows, a.row), append(m.GPUs, table[a.row])
		}
	}
	return m
}

// bare is the id without its vendor.
func (g GPU) bare() string { return strings.TrimPrefix(g.ID, g.Vendor+"-") }

// forms is the table of id words that name a build of one card (board, memory, edition) and not another card.
var forms = []string{"pcie", "sxm", "sxm2", "sxm4", "sxm5", "nvl", "fhhl", "10gb", "12gb", "40gb", "80gb", "ws", "se", "maxq"}

// family is the name that all builds of a card share: "a100" for the four A100 rows.
func (g GPU) family() string {
	words := strings.Split(g.bare(), "-")
	words = slices.DeleteFunc(words, func(w string) bool { return slices.Contains(forms, w) })
	return strings.Join(words, " ")
}

// nearestGPU lists up to three known names most like a normal one.
func nearestGPU(n string) []string {
	if len(n) > maxWord {
		return nil
	}
	type scored struct {
		name string
		d    int
	}
	var all []scored
	for _, g := range table {
		best := scored{d: math.MaxInt}
		for _, known := range append([]string{g.bare(), g.family()}, g.Drivers...) {
			if d := distance(n, normal(known)); d < best.d {
				best = scored{strings.ToUpper(strings.ReplaceAll(g.bare(), "-", "_")), d}
			}
		}
		if best.d <= max(2, len(n)/3) {
			all = append(all, best)
		}
	}
	slices.SortStableFunc(all, func(a, b scored) int { return a.d - b.d })
	var out []string
	for _, s := range all[:min(3, len(all))] {
		out = append(out, s.name)
	}
	return out
}
