package audit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headway-run/headway/runners/record"
)

// TestFinishedWithoutWitness: a work whose result stands is not proposed for a repair as if it had not been finished;
// one whose result is broken is, and so is one that nobody says to have finished.
func TestFinishedWithoutWitness(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(b *bench, work string)
		want  int64
	}{
		"whole":                        {func(*bench, string) {}, 3},
		"whole, without a reservation": {func(b *bench, work string) { b.remove(record.OpenKey(work, 3)) }, 3},
		"no end":                       {func(b *bench, work string) { b.remove(record.EndKey(work, 3)) }, 0},
		"end is half":                  {func(b *bench, work string) { b.put(record.EndKey(work, 3), []byte("{")) }, 0},
		"another end": {func(b *bench, work string) {
			change(b, record.EndKey(work, 3), func(e *record.End) { e.Class = "yielded" })
		}, 0},
		"no result":      {func(b *bench, work string) { b.remove(record.ResultManifestKey(work, 3)) }, 0},
		"a file is gone": {func(b *bench, work string) { b.remove(record.ResultPrefix(work, 3) + "state.json") }, 0},
		"a file is another": {func(b *bench, work string) {
			b.put(record.ResultPrefix(work, 3)+"state.json", []byte("state.json at 41"))
		}, 0},
		"the result is a milestone": {func(b *bench, work string) {
			b.put(record.ResultManifestKey(work, 3), b.raw(record.MilestoneManifestKey(work, 3, 1)))
		}, 0},
	} {
		b := newBench(t, onMem(t))
		work := b.history(1, true)
		b.remove(record.WitnessKey(work))
		c.spoil(b, work)
		n, err := Finished(t.Context(), b, work)
		if err != nil || n != c.want {
			t.Errorf("%s: attempt %d finished it, want %d: %v", name, n, c.want, err)
		}
		got, err := Check(t.Context(), b, Options{Deep: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range got.Findings {
			if f.Key != record.WitnessKey(work) {
				continue
			}
			said := fmt.Sprintf("%s %v %v", f.Invariant, strings.Contains(f.Do, "--again"), strings.HasSuffix(f.Do, "..."))
			if want := map[bool]string{true: "I5 true false", false: "I1 false false"}[c.want > 0]; said != want {
				t.Errorf("%s: %s, want %s: %+v", name, said, want, f)
			}
		}
		if len(got.Findings) == 0 {
			t.Errorf("%s: a deleted witness is not found", name)
		}
	}
}
