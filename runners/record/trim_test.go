package record

import (
	"testing"

	"pgregory.net/rapid"
)

// TestTrimGrows: what two trims allow together covers both, and allows no snapshot that neither allows.
func TestTrimGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := func(name string) int64 { return rapid.Int64Range(0, 4).Draw(t, name) }
		a := Trim{Attempt: n("a"), Milestone: n("am")}
		b := Trim{Attempt: n("b"), Milestone: n("bm")}
		j, p := a.Join(b), Pointer{Attempt: n("p"), Milestone: n("pm")}
		if !j.Covers(a) || !j.Covers(b) || !a.Covers(a) {
			t.Fatalf("%+v and %+v give %+v", a, b, j)
		}
		if j.Line(p) != (a.Line(p) || b.Line(p)) {
			t.Fatalf("%+v: by %+v and %+v, and %+v together", p, a, b, j)
		}
		if a.Covers(b) && b.Line(p) && !a.Line(p) {
			t.Fatalf("%+v covers %+v, but not for %+v", a, b, p)
		}
	})
}
