package sim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Op is what a fault strikes.
type Op string

const (
	OpLaunch  Op = "launch"
	OpRelease Op = "release"
	OpList    Op = "list"
	OpWorker  Op = "worker" // the n-th worker that starts
)

// Effect is what a fault does.
type Effect string

const (
	None      Effect = ""
	Delay     Effect = "delay"      // answers after a time
	Hang      Effect = "hang"       // never answers; a worker: never goes on
	Drop      Effect = "drop"       // fails before anything is applied: Unreachable
	Lost      Effect = "lost"       // applies, then the answer is lost: Unreachable
	Twice     Effect = "twice"      // starts two instances for each job and tells of one
	Late      Effect = "late"       // says success; the worker starts after a time
	NoStart   Effect = "no_start"   // says success and starts nothing
	NoSlots   Effect = "no_slots"   // refuses: full
	Quota     Effect = "quota"      // refuses: quota, until a time from now
	Kept      Effect = "kept"       // refuses as full, and starts all the same
	Part      Effect = "part"       // starts all jobs but the last one, finds no place for it and ends the others: full
	Reject    Effect = "reject"     // refuses for good
	Foreign   Effect = "foreign"    // an error outside of the contract
	Garbage   Effect = "garbage"    // an answer outside of the contract, after applying
	NilHandle Effect = "nil_handle" // receipts without handles, after applying
	Panic     Effect = "panic"
	NotYet    Effect = "not_yet" // release: pending, nothing applied
	Bound     Effect = "bounded" // release: it ends by itself at a time from now, nothing applied
	Hide      Effect = "hide"    // list: empty
	Die       Effect = "die"     // worker: gone without a word before step n; 0: before the capture
	Restart   Effect = "restart" // worker: gone without a word before step n, then its command runs once more on the same machine; 0: before the capture
	Mute      Effect = "mute"    // worker: runs and never captures
	Fail      Effect = "fail"    // worker: the program fails before step n
	OOM       Effect = "oom"     // worker: its card is too small for step n; the numbers in its last words differ each time
	Exit      Effect = "exit"    // worker: the program ends before its first step, with exit code n
	Slow      Effect = "slow"    // worker: every step takes that time
)

// argument says what an effect needs besides its name.
type argument uint8

const (
	noArgument argument = iota
	aTime
	aStep
)

// effects says which faults there are: a table of values.
var effects = map[Op]map[Effect]argument{
	OpLaunch: {Delay: aTime, Hang: noArgument, Drop: noArgument, Lost: noArgument, Twice: noArgument, Late: aTime,
		NoStart: noArgument, NoSlots: noArgument, Quota: aTime, Kept: noArgument, Part: noArgument, Reject: noArgument, Foreign: noArgument,
		Garbage: noArgument, NilHandle: noArgument, Panic: noArgument},
	OpRelease: {Delay: aTime, Hang: noArgument, Drop: noArgument, Lost: noArgument, Reject: noArgument,
		Foreign: noArgument, Garbage: noArgument, Panic: noArgument, NotYet: noArgument, Bound: aTime},
	OpList:   {Delay: aTime, Hang: noArgument, Drop: noArgument, Foreign: noArgument, Panic: noArgument, Hide: noArgument},
	OpWorker: {Die: aStep, Restart: aStep, Hang: aStep, Mute: noArgument, Fail: aStep, OOM: aStep, Exit: aStep, Slow: aTime},
}

// Fault is one line of a script: what happens at which call. The first fault that matches a call counts.
type Fault struct {
	Op     Op
	From   int // first call or worker that is struck, from 1; 0: all
	To     int // last one; 0: only From
	Effect Effect
	For    time.Duration
	Step   int64
}

func (f Fault) matches(n int) bool {
	return f.From == 0 || n == f.From || n > f.From && n <= f.To
}

func (f Fault) check() error {
	arg, ok := effects[f.Op][f.Effect]
	switch {
	case effects[f.Op] == nil:
		return fmt.Errorf("fault %q: strikes one of %s", f, names(effects))
	case !ok:
		return fmt.Errorf("fault %q: a %s can %s", f, f.Op, names(effects[f.Op]))
	case f.From < 0 || f.To != 0 && f.To < f.From || f.From == 0 && f.To != 0:
		return fmt.Errorf("fault %q: a number from 1, a range such as 2..4, or *", f)
	case arg == aTime && (f.For <= 0 || f.For > 10_000*time.Hour):
		return fmt.Errorf("fault %q: a time must follow, for example 30s", f)
	case arg == aStep && f.Step < 0:
		return fmt.Errorf("fault %q: a step must follow, for example 40", f)
	}
	return nil
}

func names[K ~string, V any](m map[K]V) string {
	var s []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		s = append(s, string(k))
	}
	return strings.Join(s, ", ")
}

// String is the line of a script that ParseScript reads back.
func (f Fault) String() string {
	n := "*"
	if f.From > 0 {
		n = strconv.Itoa(f.From)
	}
	if f.To > 0 {
		n += ".." + strconv.Itoa(f.To)
	}
	s := fmt.Sprintf("%s %s %s", f.Op, n, f.Effect)
	switch effects[f.Op][f.Effect] {
	case aTime:
		s += " " + f.For.String()
	case aStep:
		s += " " + strconv.FormatInt(f.Step, 10)
	case noArgument:
	}
	return s
}

// ParseScript reads faults, one a line (or separated by semicolons): what is struck, which one, the effect, and its
// argument. "launch 1 lost", "launch 2..4 no_slots", "launch 5 quota 2h", "worker 1 die 300", "list * drop".
func ParseScript(text string) ([]Fault, error) {
	var out []Fault
	for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == ';' }) {
		w := strings.Fields(line)
		if len(w) == 0 || strings.HasPrefix(w[0], "#") {
			continue
		}
		if len(w) < 3 || len(w) > 4 {
			return nil, fmt.Errorf("fault %.60q: expected what, which and the effect, for example: launch 1 lost", line)
		}
		f := Fault{Op: Op(w[0]), Effect: Effect(w[2])}
		if err := f.parseRange(w[1]); err != nil {
			return nil, fmt.Errorf("fault %.60q: %w", line, err)
		}
		arg := effects[f.Op][f.Effect]
		if (arg != noArgument) != (len(w) == 4) && effects[f.Op] != nil {
			if _, known := effects[f.Op][f.Effect]; known {
				return nil, fmt.Errorf("fault %.60q: %s takes %s", line, f.Effect, map[argument]string{noArgument: "no argument", aTime: "a time, for example 30s", aStep: "a step, for example 40"}[arg])
			}
		}
		var err error
		switch arg {
		case aTime:
			f.For, err = time.ParseDuration(w[3])
		case aStep:
			f.Step, err = strconv.ParseInt(w[3], 10, 64)
		case noArgument:
		}
		if err != nil {
			return nil, fmt.Errorf("fault %.60q: %w", line, err)
		}
		if err := f.check(); err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

func (f *Fault) parseRange(s string) (err error) {
	if s == "*" {
		return nil
	}
	from, to, is := strings.Cut(s, "..")
	if f.From, err = strconv.Atoi(from); err == nil && is {
		f.To, err = strconv.Atoi(to)
	}
	if err != nil || f.From < 1 || is && f.To < f.From {
		return fmt.Errorf("found %.20q, expected a number from 1, a range such as 2..4, or *", s)
	}
	return nil
}
