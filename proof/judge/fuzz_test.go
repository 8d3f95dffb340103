package judge

import (
	"bytes"
	"testing"

	"github.com/headway-run/headway/proof/history"
)

// FuzzTake: no history makes the judge fall over, and it says the same of the same one twice.
func FuzzTake(f *testing.F) {
	for _, make := range []func(h *hand){func(h *hand) { p := h.third(); h.finish("w2", 2, &p) }, func(h *hand) { _, q := h.second(); h.move("w2", q) },
		func(h *hand) { h.first(); h.bare("w1", h.log[1].Cond); h.stop("op", 3) }} {
		h := newHand(Options{})
		make(h)
		var b bytes.Buffer
		if err := history.Write(&b, h.log); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		entries, _ := history.Read(bytes.NewReader(raw)) // as far as it can be read
		var told [2]string
		for i := range told {
			j := New(Options{AllFinish: true, HandDeletes: 1})
			for _, e := range entries {
				j.Take(e)
			}
			j.End()
			for _, v := range j.Broken() {
				told[i] += v.String() + "\n"
			}
		}
		if told[0] != told[1] {
			t.Fatalf("%s\n%s", told[0], told[1])
		}
	})
}
