package judge

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// worker is a life of a worker in the random histories: it holds, or believes so.
type worker struct {
	name string
	work string
	h    *witness.Holder
}

// machine makes long random histories with the product's own lease code, several works, zombies and stops; all of them
// must be clean, whatever is drawn.
type machine struct {
	*stage
	workers []*worker
	names   int
}

// pick draws a worker, alive or deposed.
func (m *machine) pick(t *rapid.T) *worker {
	if len(m.workers) == 0 {
		return nil
	}
	w := rapid.SampledFrom(m.workers).Draw(t, "worker")
	m.work = w.work
	return w
}

func (m *machine) launch(t *rapid.T) {
	m.work = workNo(rapid.IntRange(1, 2).Draw(t, "work"))
	n := m.last[m.work]
	if n == 0 || rapid.IntRange(0, 2).Draw(t, "again") > 0 {
		n = m.claim(fmt.Sprintf("d%d", rapid.IntRange(1, 2).Draw(t, "dispatcher")))
	}
	for range rapid.IntRange(1, 2).Draw(t, "twins") {
		m.names++
		w := &worker{name: fmt.Sprintf("w%d", m.names), work: m.work}
		h, err := witness.Capture(m.t.Context(), m.rec.As(w.name), witness.CaptureRequest{Work: m.work, Dispatch: n, Lease: lease()})
		if err != nil {
			continue
		}
		if v := h.Open(m.t.Context(), record.Open{}); v.Outcome != witness.Won {
			continue
		}
		w.h = h
		m.workers = append(m.workers, w)
	}
}

func (m *machine) act(t *rapid.T) {
	w := m.pick(t)
	if w == nil {
		return
	}
	for range rapid.IntRange(1, 3).Draw(t, "acts") {
		m.once(w, rapid.IntRange(0, 7).Draw(t, "act"))
	}
}

func (m *machine) once(w *worker, act int) {
	switch act {
	case 0, 1:
		w.h.Renew(m.t.Context(), witness.Progress{Step: 1}, lease())
	case 2, 3, 4:
		p := m.milestone(w.name, w.h)
		w.h.Advance(m.t.Context(), p, witness.Progress{Step: p.Step}, lease())
	case 5:
		w.h.Yield(m.t.Context(), "spot")
	case 6:
		m.milestone(w.name, w.h) // that no pointer will name, or the same again
	case 7:
		if r := w.h.Seen().Record; r.Resume != nil && r.Resume.Step >= 20 && r.State == witness.Held {
			b := encoded(record.Manifest{Protocol: 1, Work: w.work, Attempt: r.Attempt, Step: 100, Parent: r.Resume})
			key := record.ResultManifestKey(w.work, r.Attempt)
			m.upload(w.name, key, b)
			w.h.Finish(m.t.Context(), witness.FinishedPointer{Attempt: r.Attempt, Manifest: key, SHA256: record.Hash(b)}, witness.Progress{Step: 100})
		}
	}
}

func (m *machine) end(t *rapid.T) {
	m.work = workNo(rapid.IntRange(1, 2).Draw(t, "work"))
	if rapid.IntRange(0, 5).Draw(t, "stop") == 0 {
		floor := m.last[m.work] + 1
		r, _, err := witness.Stop(m.t.Context(), m.rec.As("operator"), m.work, floor, "enough")
		m.must(err)
		if r == witness.Ended || r == witness.AlreadyOver {
			m.j.Stopped(m.work, floor)
		}
		return
	}
	if seen, err := witness.Read(m.t.Context(), m.rec.As("d1"), m.work); err == nil {
		_, _, err = witness.Revoke(m.t.Context(), m.rec.As("d1"), seen, "silent")
		m.must(err)
	}
}

// TestCleanHistories: what the product does is never found fault with.
func TestCleanHistories(t *testing.T) {
	writes, states := 0, map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{stage: newStage(t, Options{})}
		rt.Repeat(map[string]func(*rapid.T){"launch": m.launch, "act": m.act, "act more": m.act, "act on": m.act, "end": m.end, "": func(rt *rapid.T) {
			if got := m.j.Broken(); len(got) > 0 {
				rt.Fatalf("%v\n%s", got, told(m.log))
			}
		}})
		writes += m.j.Taken()
		for _, w := range m.j.works {
			states[string(w.last.State)]++
			states[fmt.Sprint("attempt ", min(w.last.Attempt, 3))]++
		}
	})
	for _, s := range []string{"held", "yielded", "revoked", "finished", "attempt 3"} {
		if states[s] == 0 {
			t.Errorf("no history reached %q: %v", s, states)
		}
	}
	t.Logf("%d entries, %v", writes, states)
}

// TestJudgedAgain: a saved history has the same verdict when it is read and judged again.
func TestJudgedAgain(t *testing.T) {
	h := newHand(Options{})
	_, q := h.second()
	h.move("w2", q)
	var b bytes.Buffer
	if err := history.Write(&b, h.log); err != nil {
		t.Fatal(err)
	}
	entries, err := history.Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	again := New(Options{})
	for _, e := range entries {
		again.Take(e)
	}
	if len(h.j.Broken()) == 0 {
		t.Fatal("nothing broke")
	}
	if diff := cmp.Diff(h.j.Broken(), again.Broken()); diff != "" {
		t.Error(diff)
	}
}

func told(log history.Log) string {
	var b strings.Builder
	history.Print(&b, log)
	return b.String()
}
