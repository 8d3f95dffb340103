package ring

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/faulty"
	"github.com/headway-run/headway/runners/bucket/mem"
)

func stored(t *testing.T, b bucket.Bucket, key string, v any) {
	t.Helper()
	text, ok := v.(string)
	if !ok {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		text = string(raw)
	}
	if _, err := b.Put(t.Context(), key, strings.NewReader(text), bucket.Always()); err != nil {
		t.Fatal(err)
	}
}

// TestRecordsAreChecked: what was edited, moved, cut or lost in a store is found when it is read, and stops everything: what
// is not known may be a loaded stage.
func TestRecordsAreChecked(t *testing.T) {
	i := Intent{Schema: 1, Model: "m", Ring: "r", Generation: 5, Stages: []IntentStage{{Node: "a", Host: "h", Agent: "tcp://h:1"}}}
	event := func(n int, op Op) LoadEvent { return LoadEvent{Schema: 1, Generation: 5, Number: n, Op: op} }
	good := func() (*mem.Bucket, Records) {
		b := mem.New()
		r := Records{Store: b, Model: "m", Ring: "r"}
		stored(t, b, r.IntentKey(5), i)
		stored(t, b, r.EventKey(5, 1), LoadEvent{Schema: 1, Generation: 5, Number: 1, Op: OpSent, Command: "load", Node: "a"})
		stored(t, b, r.EventKey(5, 2), event(2, OpServing))
		return b, r
	}
	_, r := good()
	if loads, err := r.Loads(t.Context()); err != nil || len(loads) != 1 || !loads[0].Ledger.Serving {
		t.Fatalf("%+v, %v", loads, err)
	}
	other := i
	other.Ring = "q"
	for what, spoil := range map[string]func(b *mem.Bucket, r Records){
		"an event is missing in the middle": func(b *mem.Bucket, r Records) { stored(t, b, r.EventKey(5, 4), event(4, OpGone)) },
		"the record of another ring":        func(b *mem.Bucket, r Records) { stored(t, b, r.IntentKey(5), other) },
		"a record under another generation": func(b *mem.Bucket, r Records) { stored(t, b, r.IntentKey(6), i) },
		"an event under another number":     func(b *mem.Bucket, r Records) { stored(t, b, r.EventKey(5, 3), event(2, OpGone)) },
		"an op of a newer lane":             func(b *mem.Bucket, r Records) { stored(t, b, r.EventKey(5, 3), event(3, "paused")) },
		"a field of a newer lane": func(b *mem.Bucket, r Records) {
			stored(t, b, r.EventKey(5, 3), `{"schema":1,"generation":5,"number":3,"op":"gone","x":1}`)
		},
		"a key of nobody's": func(b *mem.Bucket, r Records) { stored(t, b, r.loadPrefix()+"latest.json", "{}") },
		"events without a load": func(b *mem.Bucket, r Records) {
			stored(t, b, r.EventKey(7, 1), LoadEvent{Schema: 1, Generation: 7, Number: 1, Op: OpSent})
		},
		"half a record": func(b *mem.Bucket, r Records) { stored(t, b, r.IntentKey(5), `{"schema":1,`) },
		"a large one":   func(b *mem.Bucket, r Records) { stored(t, b, r.EventKey(5, 3), strings.Repeat(" ", maxEvent+1)) },
	} {
		b, r := good()
		spoil(b, r)
		if loads, err := r.Loads(t.Context()); err == nil {
			t.Errorf("%s: read as %+v", what, loads)
		}
	}
}

// TestCreateOnce: a record is written once. An answer that was lost is settled by a look, and another's record is never
// written over.
func TestCreateOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			what  string
			rules []faulty.Rule
			there string
			want  func(error) bool
		}{
			{"nothing goes wrong", nil, "", func(err error) bool { return err == nil }},
			{"the answer is lost", []faulty.Rule{{Op: "put", Times: 1, Effect: faulty.Lose}}, "", func(err error) bool { return err == nil }},
			{"the request is lost", []faulty.Rule{{Op: "put", Times: 2, Effect: faulty.Refuse, Code: bucket.Unknown}}, "", func(err error) bool { return err == nil }},
			{"somebody was quicker", nil, `{"nonce":"other"}`, func(err error) bool { return errors.Is(err, ErrTaken) }},
			{"the store is away", []faulty.Rule{{Effect: faulty.Refuse, Code: bucket.Unknown}}, "", func(err error) bool { return err != nil && !errors.Is(err, ErrTaken) }},
		} {
			b := mem.New()
			if c.there != "" {
				stored(t, b, "k", c.there)
			}
			err := Records{Store: faulty.New(b, 1, c.rules...)}.create(t.Context(), "k", Intent{Nonce: "mine"})
			if !c.want(err) {
				t.Errorf("%s: %v", c.what, err)
			}
			if got, gerr := (Records{Store: b}).get(context.WithoutCancel(t.Context()), "k", maxIntent); c.there != "" && (gerr != nil || string(got) != c.there) {
				t.Errorf("%s: written over: %s, %v", c.what, got, gerr)
			}
		}
	})
}
