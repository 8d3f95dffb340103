package dir_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/dir"
	"github.com/headway-run/headway/runners/bucket/faulty"
)

// call is one operation of the history: a read, or a swap (base "": a create).
type call struct {
	read       bool
	base, next string
}

// result is what the caller learned: body of a read ("": absent), or whether the write was done.
type result struct {
	body          string
	done, unknown bool
}

// register is one key, as a specification: writes whose outcome nobody knows have happened, or have not.
func register() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{""} },
		Step: func(state, input, output any) []any {
			s, in, out := state.(string), input.(call), output.(result)
			holds := s == in.base
			switch {
			case in.read && s == out.body:
				return []any{s}
			case in.read:
				return nil
			case out.unknown && holds:
				return []any{s, in.next}
			case out.unknown:
				return []any{s}
			case out.done && holds:
				return []any{in.next}
			case !out.done && !holds:
				return []any{s}
			}
			return nil
		},
		Equal: func(a, b any) bool { return a == b },
	}
	return m.ToModel()
}

// TestLinearizable: whatever five clients see of one key, with lost answers and doubled requests, some order explains it.
func TestLinearizable(t *testing.T) {
	for _, noLink := range []bool{false, true} {
		root := filepath.Join(t.TempDir(), "s")
		open(t, root, dir.Options{Create: true})
		var mu sync.Mutex
		var history []porcupine.Operation
		began := time.Now()
		var wg sync.WaitGroup
		for client := range 5 {
			f := faulty.New(open(t, root, dir.Options{NoSync: true, NoLink: noLink}), uint64(client),
				faulty.Rule{Name: "lose", Op: "put", Probability: 0.1, Effect: faulty.Lose}, faulty.Rule{Name: "refuse", Op: "put", Probability: 0.1, Effect: faulty.Refuse})
			wg.Go(func() {
				body, version := "", bucket.Version("")
				for i := range 40 {
					in := call{read: i%2 == 0, base: body, next: fmt.Sprintf("%d.%d", client, i)}
					start := time.Since(began)
					out, v, err := perform(t, f, in, version)
					end := int64(time.Since(began))
					if err != nil {
						t.Error(err)
						return
					}
					if in.read {
						body, version = out.body, v
					}
					if out.unknown {
						end = math.MaxInt64 // it may still land, for all that its caller knows
					}
					mu.Lock()
					history = append(history, porcupine.Operation{ClientId: client, Input: in, Call: int64(start), Output: out, Return: end})
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		for i := range history { // an operation without an end occupies its client for ever: it gets one of its own
			if history[i].Return == math.MaxInt64 {
				history[i].ClientId = 100 + i
			}
		}
		if got := porcupine.CheckOperationsTimeout(register(), history, 30*time.Second); got != porcupine.Ok {
			t.Errorf("no link %v: %d operations: %s", noLink, len(history), got)
		}
	}
}

func perform(t *testing.T, b bucket.Bucket, in call, version bucket.Version) (result, bucket.Version, error) {
	if in.read {
		o, err := b.Get(t.Context(), "k", bucket.Range{})
		if bucket.Is(err, bucket.NotFound) {
			return result{}, "", nil
		}
		if err != nil {
			return result{}, "", err
		}
		data, err := io.ReadAll(o.Body)
		return result{body: string(data)}, o.Version, errors.Join(err, o.Body.Close())
	}
	c := bucket.IfAbsent()
	if in.base != "" {
		c = bucket.IfIs(version)
	}
	_, err := b.Put(t.Context(), "k", strings.NewReader(in.next), c)
	switch {
	case err == nil:
		return result{done: true}, "", nil
	case bucket.Is(err, bucket.Unknown):
		return result{unknown: true}, "", nil
	case bucket.Is(err, bucket.Condition):
		return result{}, "", nil
	}
	return result{}, "", err
}

// TestModelRefuses: the check above would notice a stale read, two creators, and a lost write.
func TestModelRefuses(t *testing.T) {
	op := func(at int64, in call, out result) porcupine.Operation {
		return porcupine.Operation{ClientId: int(at), Input: in, Output: out, Call: at, Return: at + 1}
	}
	create := op(0, call{next: "a"}, result{done: true})
	for name, second := range map[string]porcupine.Operation{
		"stale read": op(10, call{read: true}, result{}), "two creators": op(10, call{next: "b"}, result{done: true}),
		"lost write": op(10, call{base: "a", next: "b"}, result{}), "read of nothing written": op(10, call{read: true}, result{body: "z"}),
	} {
		if porcupine.CheckOperations(register(), []porcupine.Operation{create, second}) {
			t.Errorf("%s: accepted", name)
		}
	}
}
