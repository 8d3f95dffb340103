// Package faulty is the store port with faults: rules say which call goes wrong, how, and how often, drawn from a seed so
// that a failing run can be repeated. It is for tests and simulations. Every rule counts its firings, and Unfired names
// the rules that never did: a fault that was not injected proves nothing.
package faulty

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/headway-run/headway/runners/bucket"
)

// Effect is what goes wrong.
type Effect uint8

const (
	// Refuse answers Rule.Code and sends nothing. Unknown is a line that was cut before the request went out.
	Refuse Effect = iota
	// Lose does it, then answers Unknown: the request landed and its answer was lost.
	Lose
	// Twice does it two times and returns the second answer, as a client does that retries after a lost answer.
	Twice
	// Hold keeps the request back until Rule.Release is closed, then does it, whether or not the caller still waits. A
	// caller whose context ends first gets Unknown, and the request lands later.
	Hold
	// Stale answers a Get with what the key held before its last Put or Delete through this decorator.
	Stale
	// Lag answers a List with the page that the same call got before.
	Lag
	// Truncate ends the body of a Get after half of it, without an error.
	Truncate
	// Ignore drops the condition of a Put.
	Ignore
	// Slow waits Rule.Delay before it does it.
	Slow
)

// Rule is one fault. A call that it matches is affected when it is the Nth match (0: each of them), the draw is below
// Probability (0: always), and it has fired fewer than Times times (0: no limit). The first rule that fires wins.
type Rule struct {
	Name        string // for Fired; "" is allowed
	Op          string // get, put, list, delete; "" any
	Key         string // glob: * is any run of bytes, slashes too; "" any. For a List it is held against the prefix
	Conditional bool   // only Puts with a condition
	Nth         int
	Probability float64
	Times       int

	Effect  Effect
	Code    bucket.Code
	Delay   time.Duration
	Release <-chan struct{}
}

// Bucket is the decorator. Make one with New.
type Bucket struct {
	inner bucket.Bucket

	mu     sync.Mutex
	rand   *rand.Rand
	rules  []*state
	before map[string]*saved      // per key: what it held before the last write
	pages  map[string]bucket.Page // per List call: the last answer
}

type state struct {
	Rule
	matched, fired int
}

type saved struct {
	info bucket.Info
	data []byte
}

var _ bucket.Bucket = (*Bucket)(nil)

// New wraps a store.
func New(inner bucket.Bucket, seed uint64, rules ...Rule) *Bucket {
	b := &Bucket{inner: inner, rand: rand.New(rand.NewPCG(seed, 0)), before: map[string]*saved{}, pages: map[string]bucket.Page{}}
	for _, r := range rules {
		b.Add(r)
	}
	return b
}

// Add puts a rule behind the others.
func (b *Bucket) Add(r Rule) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rules = append(b.rules, &state{Rule: r})
}

// Clear removes all rules: the store is well again.
func (b *Bucket) Clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rules = nil
}

// Fired is how often the rules of that name went off.
func (b *Bucket) Fired(name string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, s := range b.rules {
		if s.Name == name {
			n += s.fired
		}
	}
	return n
}

// Unfired lists the rules that never went off.
func (b *Bucket) Unfired() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var names []string
	for _, s := range b.rules {
		if s.fired == 0 {
			names = append(names, s.Name)
		}
	}
	return names
}

// pick returns the rule for a call, if one fires.
func (b *Bucket) pick(op, key string, c bucket.Cond) (Rule, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.rules {
		if s.Op != "" && s.Op != op || s.Key != "" && !match(s.Key, key) || s.Conditional && c == bucket.Always() || !s.applies(op) {
			continue
		}
		if (s.Effect == Stale && b.before[key] == nil) || s.Times > 0 && s.fired >= s.Times {
			continue
		}
		s.matched++
		if s.Nth > 0 && s.matched != s.Nth || s.Probability > 0 && b.rand.Float64() >= s.Probability {
			continue
		}
		s.fired++
		return s.Rule, true
	}
	return Rule{}, false
}

// applies reports whether the effect means anything for an operation.
func (s *state) applies(op string) bool {
	switch s.Effect {
	case Stale, Truncate:
		return op == "get"
	case Lag:
		return op == "list"
	case Ignore:
		return op == "put"
	case Refuse, Lose, Twice, Hold, Slow:
	}
	return true
}

// match is the glob of Rule.Key.
func match(glob, s string) bool {
	parts := strings.Split(glob, "*")
	if len(parts) == 1 {
		return glob == s
	}
	rest, ok := strings.CutPrefix(s, parts[0])
	if !ok {
		return false
	}
	for _, p := range parts[1 : len(parts)-1] {
		i := strings.Index(rest, p)
		if i < 0 {
			return false
		}
		rest = rest[i+len(p):]
	}
	return strings.HasSuffix(rest, parts[len(parts)-1])
}

func fault(op, key string, code bucket.Code) error {
	return &bucket.Error{Op: op, Key: key, Code: code, Err: errInjected}
}

var errInjected = errors.New("injected fault")

// do runs a call under the rule that fires for it, if any.
func do[T any](ctx context.Context, b *Bucket, op, key string, c bucket.Cond, call func(context.Context, bucket.Cond) (T, error)) (T, Rule, error) {
	var zero T
	r, ok := b.pick(op, key, c)
	if !ok {
		v, err := call(ctx, c)
		return v, Rule{Effect: none}, err
	}
	switch r.Effect {
	case Refuse:
		return zero, r, fault(op, key, r.Code)
	case Lose:
		_, _ = call(ctx, c)
		return zero, r, fault(op, key, bucket.Unknown)
	case Twice:
		_, _ = call(ctx, c)
	case Hold:
		v, err := hold(ctx, r, op, key, func(ctx context.Context) (T, error) { return call(ctx, c) })
		return v, r, err
	case Ignore:
		c = bucket.Always()
	case Slow:
		select {
		case <-time.After(r.Delay):
		case <-ctx.Done():
			return zero, r, fault(op, key, bucket.Unknown)
		}
	case Stale, Lag, Truncate: // the caller's part
	}
	v, err := call(ctx, c)
	return v, r, err
}

// none is the effect of no rule.
const none Effect = 255

func hold[T any](ctx context.Context, r Rule, op, key string, call func(context.Context) (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	done := make(chan answer, 1)
	go func() {
		<-r.Release
		v, err := call(context.WithoutCancel(ctx))
		done <- answer{v, err}
	}()
	select {
	case a := <-done:
		return a.v, a.err
	case <-ctx.Done():
		var zero T
		return zero, fault(op, key, bucket.Unknown)
	}
}
