package flops

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// KeyType says what a `work:` key holds. The caller parses text (124M, 1.3B) into a [Value] of that type.
type KeyType uint8

const (
	Count  KeyType = iota // whole number from 1 to 1e18, in Value.Num
	Number                // positive number up to 1e30, in Value.Num
	Choice                // one of Key.Choices, in Value.Text
	Layers                // a list of mappings with the keys of Key.Keys, in Value.List
)

// Key is one accepted key of a plan's `work:` mapping.
type Key struct {
	Name    string
	Type    KeyType
	Choices []string // of a Choice
	Keys    []Key    // of Layers
	Zero    bool     // a Count that may be 0
	Doc     string   // one sentence, with the unit
}

// Value is one parsed value; which field counts follows from the key's type.
type Value struct {
	Num  float64
	Text string
	List []map[string]Value
}

// Keys is the table of what a `work:` mapping may hold, in the order of documentation. Three ways to say the cost
// exclude each other: FLOPs given, parameters and tokens, or multiply-adds per sample (given, or from convolutions).
var Keys = []Key{
	{Name: "flops", Type: Number, Doc: "FLOPs of the whole run, counted by the one who writes the plan"},
	{Name: "flops_per_step", Type: Number, Doc: "FLOPs of one step, counted by the one who writes the plan"},
	{Name: "steps", Type: Count, Doc: "optimizer steps of the whole run"},
	{Name: "params", Type: Count, Doc: "trained parameters that one token passes (mixture of experts: the active ones); 6 FLOPs each per token"},
	{Name: "frozen_params", Type: Count, Doc: "frozen parameters with something trainable below them, such as the base under LoRA; 4 FLOPs each per token"},
	{Name: "forward_params", Type: Count, Doc: "parameters that only run forward, such as a frozen prefix or a teacher; 2 FLOPs each per token"},
	{Name: "layers", Type: Count, Doc: "attention layers; with width and context it adds the attention term 12·layers·width·context per token"},
	{Name: "width", Type: Count, Doc: "heads × head dimension of one attention layer"},
	{Name: "context", Type: Count, Doc: "sequence length in tokens"},
	{Name: "attention", Type: Choice, Choices: []string{"full", "causal"}, Doc: "causal halves the attention term; default full"},
	{Name: "tokens_per_step", Type: Count, Doc: "tokens of one optimizer step, padding and gradient accumulation included"},
	{Name: "tokens", Type: Count, Doc: "tokens of the whole run"},
	{Name: "macs_per_sample", Type: Number, Doc: "multiply-adds of one forward pass of one sample; training counts 6 FLOPs each"},
	{Name: "conv", Type: Layers, Keys: convKeys, Doc: "convolution layers, from which macs_per_sample is computed"},
	{Name: "samples_per_step", Type: Count, Doc: "samples of one optimizer step, gradient accumulation included"},
	{Name: "samples", Type: Count, Doc: "samples of the whole run"},
}

// convKeys is the table of keys of one entry of `conv:`. Sizes are square (cubic): one number for all dimensions.
var convKeys = []Key{
	{Name: "in", Type: Count, Doc: "input channels"},
	{Name: "out", Type: Count, Doc: "output channels"},
	{Name: "size", Type: Count, Doc: "input height and width in pixels"},
	{Name: "kernel", Type: Count, Doc: "kernel height and width"},
	{Name: "stride", Type: Count, Doc: "stride; default 1"},
	{Name: "pad", Type: Count, Zero: true, Doc: "zeros added on each side; default 0"},
	{Name: "dilation", Type: Count, Doc: "dilation; default 1"},
	{Name: "groups", Type: Count, Doc: "groups; default 1"},
	{Name: "dims", Type: Count, Doc: "1, 2 or 3 dimensions; default 2"},
	{Name: "repeat", Type: Count, Doc: "equal layers in a row; default 1"},
	{Name: "transposed", Type: Choice, Choices: []string{"no", "yes"}, Doc: "a transposed convolution; default no"},
}

// KeyError is one refusal about a `work:` mapping.
type KeyError struct {
	Key      string // the key at fault; "" when something is missing from the mapping as a whole
	Index    int    // entry of a list, from 0; -1 outside lists
	Sub      string // key inside that entry
	Text     string // what is wrong
	Expected string // what would be right
	Nearest  string // nearest accepted key, when the key is unknown
}

func (e *KeyError) Error() string {
	where := "work"
	if e.Key != "" {
		where += "." + e.Key
	}
	if e.Index >= 0 {
		where += fmt.Sprintf("[%d]", e.Index)
	}
	if e.Sub != "" {
		where += "." + e.Sub
	}
	s := where + ": " + e.Text
	if e.Expected != "" {
		s += ": " + e.Expected
	}
	if e.Nearest != "" {
		s += fmt.Sprintf(" (did you mean %q?)", e.Nearest)
	}
	return s
}

// KeyErrors is all refusals of one mapping; Compute's error is always of this type.
type KeyErrors []*KeyError

func (es KeyErrors) Error() string {
	var s []string
	for _, e := range es {
		s = append(s, e.Error())
	}
	return strings.Join(s, "; ")
}

// Unwrap gives the single refusals to errors.As.
func (es KeyErrors) Unwrap() []error {
	var out []error
	for _, e := range es {
		out = append(out, e)
	}
	return out
}

// Compute turns a `work:` mapping into FLOPs. What the mapping does not determine stays 0: `params` and
// `tokens_per_step` without `steps` give PerStep alone, `flops` without `steps` gives Total alone, `steps` alone
// gives Steps. An empty mapping is the zero Work. Any error is a [KeyErrors] with every refusal found.
func Compute(stated map[string]Value) (Work, error) {
	c := &computer{stated: stated}
	c.checkKeys("", -1, Keys, stated)
	if len(c.errs) > 0 {
		return Work{}, c.errs
	}
	c.checkWays()
	if len(c.errs) > 0 {
		return Work{}, c.errs
	}
	w := c.work()
	if len(c.errs) > 0 {
		return Work{}, c.errs
	}
	return w, nil
}

type computer struct {
	stated map[string]Value
	errs   KeyErrors
}

func (c *computer) refuse(key, text, expected string) {
	c.errs = append(c.errs, &KeyError{Key: key, Index: -1, Text: text, Expected: expected})
}

func (c *computer) has(key string) bool        { _, ok := c.stated[key]; return ok }
func (c *computer) num(key string) float64     { return c.stated[key].Num }
func (c *computer) first(keys []string) string { return keys[slices.IndexFunc(keys, c.has)] }

// checkKeys refuses unknown keys and values outside their type's bounds, in sorted order of keys.
func (c *computer) checkKeys(list string, index int, known []Key, m map[string]Value) {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		e := &KeyError{Key: n, Index: -1}
		if list != "" {
			e = &KeyError{Key: list, Index: index, Sub: n}
		}
		i := slices.IndexFunc(known, func(k Key) bool { return k.Name == n })
		if i < 0 {
			e.Text, e.Nearest = "unknown key", nearest(n, keyNames(known))
			if e.Nearest == "" {
				e.Expected = "one of " + strings.Join(keyNames(known), ", ")
			}
			c.errs = append(c.errs, e)
			continue
		}
		if text, expected := known[i].check(m[n]); text != "" {
			e.Text, e.Expected = text, expected
			c.errs = append(c.errs, e)
		}
		for j, entry := range m[n].List {
			c.checkKeys(n, j, known[i].Keys, entry)
		}
	}
}

func keyNames(keys []Key) []string {
	var out []string
	for _, k := range keys {
		out = append(out, k.Name)
	}
	return out
}

func (k Key) check(v Value) (text, expected string) {
	switch k.Type {
	case Count:
		if k.Zero && v.Num == 0 {
			return "", ""
		}
		if !(v.Num >= 1 && v.Num <= 1e18) || v.Num != math.Trunc(v.Num) {
			return fmt.Sprintf("found %v", v.Num), "expected a whole number from 1 to 1e18"
		}
	case Number:
		if !(v.Num > 0 && v.Num <= 1e30) {
			return fmt.Sprintf("found %v", v.Num), "expected a positive number up to 1e30"
		}
	case Choice:
		if !slices.Contains(k.Choices, v.Text) {
			return fmt.Sprintf("found %q", v.Text), "expected one of " + strings.Join(k.Choices, ", ")
		}
	case Layers:
		if len(v.List) == 0 || len(v.List) > 10_000 {
			return fmt.Sprintf("found %d entries", len(v.List)), "expected a list of 1 to 10000 layers"
		}
	}
	return "", ""
}

// The groups of keys that exclude each other, as tables of names.
var (
	givenKeys  = []string{"flops", "flops_per_step"}
	paramKeys  = []string{"params", "frozen_params", "forward_params", "layers", "width", "context", "attention", "tokens_per_step", "tokens"}
	sampleKeys = []string{"macs_per_sample", "conv", "samples_per_step", "samples"}
)

// checkWays refuses a mixture of ways and a way that lacks a part.
func (c *computer) checkWays() {
	var used []string
	for _, way := range [][]string{givenKeys, paramKeys, sampleKeys} {
		if slices.ContainsFunc(way, c.has) {
			used = append(used, c.first(way))
		}
	}
	if len(used) > 1 {
		c.refuse(used[1], fmt.Sprintf("stated beside %s", used[0]),
			"state the cost one way: flops, or params with tokens, or macs_per_sample (or conv) with samples")
		return
	}
	if slices.ContainsFunc(paramKeys, c.has) {
		c.checkParams()
	}
	if slices.ContainsFunc(sampleKeys, c.has) {
		c.checkSamples()
	}
}

func (c *computer) checkParams() {
	if !c.has("params") && !c.has("frozen_params") && !c.has("forward_params") {
		c.refuse("", "params is missing", fmt.Sprintf("%s needs it", c.first(paramKeys)))
	}
	if !c.has("tokens_per_step") && !c.has("tokens") {
		c.refuse("", "tokens_per_step is missing", "params alone is no work: state tokens_per_step (or tokens)")
	}
	shape := []string{"layers", "width", "context"}
	n := 0
	for _, k := range shape {
		if c.has(k) {
			n++
		}
	}
	for _, k := range shape {
		if (n > 0 || c.has("attention")) && !c.has(k) {
			c.refuse("", k+" is missing", "layers, width and context give the attention term together: state all three or none")
		}
	}
}

func (c *computer) checkSamples() {
	if c.has("macs_per_sample") == c.has("conv") {
		c.refuse("", "found both or neither of macs_per_sample and conv", "state exactly one of them")
	}
	if !c.has("samples_per_step") && !c.has("samples") {
		c.refuse("", "samples_per_step is missing", "state samples_per_step (or samples)")
	}
}

func (c *computer) work() Work {
	switch {
	case slices.ContainsFunc(givenKeys, c.has):
		return c.given()
	case slices.ContainsFunc(paramKeys, c.has):
		s := Shape{Trained: c.num("params"), Frozen: c.num("frozen_params"), Forward: c.num("forward_params"),
			Layers: c.num("layers"), Width: c.num("width"), Context: c.num("context"),
			Causal: c.stated["attention"].Text == "causal"}
		return c.scale(s.PerToken(), "tokens_per_step", "tokens")
	case slices.ContainsFunc(sampleKeys, c.has):
		macs := c.num("macs_per_sample")
		for i, entry := range c.stated["conv"].List {
			macs += c.conv(i, entry)
		}
		return c.scale(Train*macs, "samples_per_step", "samples")
	}
	return Work{Steps: int64(c.num("steps"))}
}

// given is the way of FLOPs stated outright.
func (c *computer) given() Work {
	w := Work{Total: c.num("flops"), PerStep: c.num("flops_per_step"), Steps: int64(c.num("steps"))}
	switch {
	case w.Steps == 0 && w.Total > 0 && w.PerStep > 0:
		w.Steps = max(1, int64(min(1e18, math.Round(w.Total/w.PerStep))))
	case w.Steps > 0 && w.Total == 0:
		w.Total = w.PerStep * float64(w.Steps)
	case w.Steps > 0 && w.PerStep == 0:
		w.PerStep = w.Total / float64(w.Steps)
	case w.Steps > 0:
		if p := w.PerStep * float64(w.Steps); math.Abs(p-w.Total) > 0.01*w.Total {
			c.refuse("flops", fmt.Sprintf("found %.4g, but flops_per_step × steps is %.4g", w.Total, p), "leave one of the three out")
		}
	}
	return c.bounded(w)
}

// scale turns FLOPs per token (sample) into work. The last step may be shorter, so steps is rounded up.
func (c *computer) scale(each float64, perStep, whole string) Work {
	n, all, steps := c.num(perStep), c.num(whole), c.num("steps")
	switch {
	case steps == 0 && n > 0 && all > 0:
		steps = math.Ceil(all / n)
	case steps > 0 && n > 0 && all == 0:
		all = n * steps
	case steps > 0 && n == 0:
		n = all / steps
	case steps > 0 && n > 0 && math.Ceil(all/n) != steps:
		c.refuse(whole, fmt.Sprintf("found %.6g, but %s × steps is %.6g", all, perStep, n*steps), "leave one of the three out")
	}
	return c.bounded(Work{Total: each * all, PerStep: each * n, Steps: int64(steps)})
}

func (c *computer) bounded(w Work) Work {
	if !(w.Total <= 1e36) || !(w.PerStep <= 1e36) {
		c.refuse("", fmt.Sprintf("the run would cost %.3g FLOPs", max(w.Total, w.PerStep)), "at most 1e36: check the units of the numbers")
	}
	return w
}

// conv is one entry of `conv:` as multiply-adds.
func (c *computer) conv(i int, m map[string]Value) float64 {
	bad := func(sub, text, expected string) float64 {
		c.errs = append(c.errs, &KeyError{Key: "conv", Index: i, Sub: sub, Text: text, Expected: expected})
		return 0
	}
	for _, k := range []string{"in", "out", "size", "kernel"} {
		if _, ok := m[k]; !ok {
			return bad("", k+" is missing", "in, out, size and kernel are needed")
		}
	}
	or := func(k string, def float64) int64 {
		if v, ok := m[k]; ok {
			return int64(v.Num)
		}
		return int64(def)
	}
	dims := or("dims", 2)
	if dims > 3 {
		return bad("dims", fmt.Sprintf("found %d", dims), "expected 1, 2 or 3")
	}
	l := Conv{In: or("in", 0), Out: or("out", 0), Size: slices.Repeat([]int64{or("size", 0)}, int(dims)),
		Kernel: []int64{or("kernel", 0)}, Stride: []int64{or("stride", 1)}, Pad: []int64{or("pad", 0)},
		Dilation: []int64{or("dilation", 1)}, Groups: or("groups", 1), Transposed: m["transposed"].Text == "yes"}
	if err := l.Check(); err != nil {
		return bad("", err.Error(), "")
	}
	return l.MACs() * float64(or("repeat", 1))
}
