package goodput

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headway-run/headway/runners/record"
)

var ignoreNames = cmpopts.IgnoreUnexported(Compact{}) // options of a comparison

func at(hours int) string {
	return time.Unix(1_800_000_000, 0).Add(time.Duration(hours) * time.Hour).UTC().Format(time.RFC3339)
}

func one(n, hours int, change func(*record.Observation)) record.Observation {
	o := record.Observation{Protocol: 1, Platform: "p", GPU: "nvidia-t4", Mode: "fp16", GPUs: 2, Peak: 65e12, Family: "f", Work: record.Hash(fmt.Append(nil, n)), Dispatch: 1, Attempt: 1,
		Class: "finished", Captured: true, CaptureS: 60, StartS: 50, FirstStepS: 30, PaidS: 1000, StepKeptS: 800, WorkKept: 0.3 * 130e12 * 800, Time: at(hours)}
	if change != nil {
		change(&o)
	}
	return o
}

// However observations come in, and how often, the history is the same, and it comes back from the store as it went.
func TestFoldingIsIdempotentAndKnowsNoOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var list []record.Observation
	for n := range 300 {
		list = append(list, one(n, rng.IntN(48), func(o *record.Observation) {
			o.Captured = rng.IntN(10) > 0
			o.Family = fmt.Sprint(rng.IntN(5))
			o.StepKeptS = float64(rng.IntN(1000))
			o.Class = []string{"finished", "silent"}[rng.IntN(2)]
			o.All.Ratios.Add(1+rng.Float64(), false)
		}))
	}
	fold := func(list []record.Observation) *Compact {
		c := NewCompact(Key{"p", "nvidia-t4", "fp16"})
		for _, o := range list {
			c.Fold(o)
		}
		return c
	}
	whole := fold(list)
	for range 5 {
		again := append(append([]record.Observation{}, list...), list[:100]...)
		rng.Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] })
		got := fold(again)
		// Which of equally old scores and times are let go is of no account, sums of floats differ in their last bits.
		if diff := cmp.Diff(whole, got, ignoreNames, cmpopts.EquateApprox(1e-9, 0), cmpopts.IgnoreFields(Compact{}, "Scores", "Captures", "Starts", "Warms")); diff != "" {
			t.Fatalf("(-one order +another):\n%s", diff)
		}
		if len(got.Scores) != len(whole.Scores) || len(got.Captures) != len(whole.Captures) {
			t.Fatalf("%d scores and %d captures, want %d and %d", len(got.Scores), len(got.Captures), len(whole.Scores), len(whole.Captures))
		}
	}
	b, err := record.Encode(whole)
	if err != nil {
		t.Fatal(err)
	}
	back, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(whole, back, ignoreNames, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-written +read):\n%s", diff)
	}
	if whole.Clone().Fold(list[0]) || back.Fold(list[0]) || !back.Has(list[0]) {
		t.Error("what was folded is folded again")
	}
}

// A history stays small: 20,000 observations of 200 families in 100 days.
func TestAHistoryIsBounded(t *testing.T) {
	c := NewCompact(Key{"p", "nvidia-t4", "fp16"})
	for n := range 20_000 {
		hours := n * 2400 / 20_000
		if !c.Fold(one(n, hours, func(o *record.Observation) { o.Family = fmt.Sprint("family ", n%200) })) {
			t.Fatalf("observation %d was not folded", n)
		}
		if n%500 == 0 {
			c.Close(time.Unix(1_800_000_000, 0).Add(time.Duration(hours) * time.Hour))
		}
	}
	b, err := record.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > 150<<10 || c.Totals.Dispatches != 20_000 || len(c.Scores) > mostScores+mostFamilies*ofFamily || len(c.Captures) != mostTimed {
		t.Errorf("%d bytes, %+v, %d scores, %d captures", len(b), c.Totals, len(c.Scores), len(c.Captures))
	}
	t.Logf("%d bytes for 20,000 observations", len(b))
	if _, err := Decode(b); err != nil {
		t.Error(err)
	}
}

// The references of science.md §3.3 in their order: the key's own, the card's anywhere, this job's, none.
func TestReferences(t *testing.T) {
	var b Book
	s := StintOf(one(1000, 0, func(o *record.Observation) { o.WorkKept /= 2 })) // at half the speed: MFU 0.15
	s.At = 0
	score := func(list []Stint) float64 { return b.score(s, list, b.now()+1) }
	near(t, "without a reference the score is the share", score(nil), 0.8, 1e-9)
	fast := StintOf(one(1, 0, nil))
	near(t, "this job's own attempts", score([]Stint{fast, fast, fast, s}), 0.4, 1e-9)
	for n := range 3 {
		b.Add(one(n, 0, func(o *record.Observation) { o.Platform, o.WorkKept = "other", 0.2*130e12*800 }))
	}
	near(t, "the card on another platform", score([]Stint{fast, fast, fast}), 0.6, 1e-9)
	for n := range 3 {
		b.Add(one(10+n, 0, nil))
	}
	near(t, "the key's own", score(nil), 0.4, 1e-9)
	for n := range 10 {
		b.Add(one(20+n, 0, func(o *record.Observation) { o.All.Wait, o.WorkKept = record.WaitSplit, 0.9*130e12*800 }))
	}
	near(t, "what says waits apart is never mixed with what does not", score(nil), 0.4, 1e-9)
	e := b.Expect("p", "nvidia-t4", "fp16", "f")
	near(t, "expected MFU", e.MFU.V, 0.9, 1e-9)
	near(t, "expected share", e.Share.V, 0.8, 1e-9)
	near(t, "expected goodput", e.Goodput().V, 0.72, 1e-9)
	if e.Bound.Threshold || e.StartS.V != 50 || e.WarmS.V != 30 || e.StartS.N != 13 {
		t.Errorf("%+v", e)
	}
	if n := b.Expect("p", "nvidia-l4", "fp16", "f"); n.MFU.N != 0 || n.Share.N != 0 || n.Goodput().N != 0 || n.StartS.V != 50 {
		t.Errorf("a card that nobody has seen: %+v", n)
	}
}

// What ends later is no past: an attempt is judged by what ended before it.
func TestOnlyThePastJudges(t *testing.T) {
	var b Book
	for n := range 20 {
		b.Add(one(n, 10, nil))
	}
	s := StintOf(one(50, 9, func(o *record.Observation) { o.StepKeptS = 650 }))
	if v, _ := b.Judge([]Stint{s}); !v.Bound.Threshold || !v.Below {
		t.Errorf("before them: %+v", v)
	}
	s.At += 2 * 3600
	if v, _ := b.Judge([]Stint{s}); v.Bound.Threshold || v.Bound.N != 20 {
		t.Errorf("behind them: %+v", v)
	}
}

// A stint that is too short is judged with those before it, and at once where two in a row kept nothing.
func TestShortStints(t *testing.T) {
	var b Book
	nothing := Stint{PaidS: 300, StartS: 200, Nothing: true}
	good := Stint{PaidS: 20_000, StartS: 200, StepS: 19_000}
	for _, c := range []struct {
		name  string
		list  []Stint
		below bool
		in    string
	}{
		{"one death", []Stint{nothing}, false, "too short"},
		{"two deaths", []Stint{nothing, nothing}, true, "two attempts in a row"},
		{"a death after hours", []Stint{good, nothing}, false, "usual share"},
		{"deaths after hours", []Stint{good, nothing, nothing}, true, "two attempts in a row"},
		{"hours after deaths", []Stint{nothing, nothing, good}, false, "usual share"},
		{"a long one that kept little", []Stint{{PaidS: 5000, StartS: 200, StepS: 1000}}, true, "less than its usual share"},
		{"silence that its lease allowed", []Stint{{PaidS: 1000, StartS: 10, StepS: 400, TailS: 500}}, false, "too short"},
	} {
		v, ok := b.Judge(c.list)
		if !ok || v.Below != c.below || !strings.Contains(v.Why, c.in) {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
}

func TestForeignObservationsAreRefused(t *testing.T) {
	for name, o := range map[string]record.Observation{
		"negative": one(1, 0, func(o *record.Observation) { o.PaidS = -1 }),
		"no time":  one(1, 0, func(o *record.Observation) { o.Time = "yesterday" }),
		"no work":  one(1, 0, func(o *record.Observation) { o.Work = "../x" }),
		"newer":    one(1, 0, func(o *record.Observation) { o.Protocol = 99 }),
		"endless":  one(1, 0, func(o *record.Observation) { o.Peak, o.StepKeptS, o.WorkKept = 1e-300, 1e-300, 1e40 }),
		"no key":   one(1, 0, func(o *record.Observation) { o.GPU = "" }),
	} {
		if Check(o) == nil || NewCompact(KeyOf(o)).Fold(o) {
			t.Errorf("%s is taken", name)
		}
	}
}

// Whatever lies in the store as a history is refused, or is one that can be folded, judged and written again.
func FuzzDecode(f *testing.F) {
	c := NewCompact(Key{"p", "nvidia-t4", "fp16"})
	c.Fold(one(1, 0, nil))
	b, err := record.Encode(c)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(bytes.ReplaceAll(b, []byte("0."), []byte("-1.")))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := Decode(raw)
		if err != nil {
			return
		}
		var book Book
		book.Put(c)
		o := one(2, 1, nil)
		o.Platform, o.GPU, o.Mode = c.Platform, c.GPU, c.Mode
		book.Add(o)
		book.Expect(c.Platform, c.GPU, c.Mode, "f")
		book.Judge([]Stint{StintOf(o)})
		out, err := record.Encode(c.Clone())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(out); err != nil && len(raw) < 1<<20 {
			t.Fatalf("it is refused once it is written again: %v", err)
		}
	})
}
