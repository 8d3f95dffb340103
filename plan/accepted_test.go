package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// What is written by hand is what the library would write, and reads back as it was.
func TestAcceptedIsEncodedAsEver(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a := Accepted{Format: AcceptedFormat, Root: rapid.String().Draw(rt, "root"), Commit: rapid.StringMatching(`[a-f0-9]{0,40}`).Draw(rt, "commit"), Jobs: []AcceptedJob{}}
		for i := range rapid.IntRange(0, 4).Draw(rt, "jobs") {
			j := Job{Name: fmt.Sprintf("j%d", i), Group: rapid.SampledFrom([]string{"g", `a "b" <&>`, "ü\x01\u2028"}).Draw(rt, "group"), Run: rapid.String().Draw(rt, "run"), OnDelete: Drain}
			j.Work = j.Digest()
			aj := AcceptedJob{Name: j.Name, Group: j.Group, Work: j.Work, Identity: j.IdentityJSON(), Placement: j.PlacementJSON(), OnDelete: j.OnDelete}
			if rapid.Bool().Draw(rt, "metadata") {
				aj.Metadata = j.MetadataJSON()
			}
			a.Jobs = append(a.Jobs, aj)
		}
		got, err := EncodeAccepted(a)
		if err != nil {
			rt.Fatal(err)
		}
		var want bytes.Buffer
		e := json.NewEncoder(&want)
		e.SetEscapeHTML(false)
		if err := e.Encode(a); err != nil {
			rt.Fatal(err)
		}
		var x, y any
		if json.Unmarshal(got, &x) != nil || json.Unmarshal(want.Bytes(), &y) != nil || cmp.Diff(x, y) != "" {
			rt.Fatalf("got %s\nwant %s", got, want.Bytes())
		}
		stored := NewStoredAccepted([]byte("before"), a, "after")
		whole := "before" + strings.TrimSuffix(string(got), "\n") + "after"
		off := rapid.Int64Range(0, int64(len(whole))+1).Draw(rt, "offset")
		part := make([]byte, rapid.IntRange(0, len(whole)+1).Draw(rt, "length"))
		wantN, wantErr := strings.NewReader(whole).ReadAt(slices.Clone(part), off)
		n, err := stored.ReadAt(part, off)
		if len(part) > 0 && (n != wantN || err != wantErr) || string(part[:n]) != whole[min(off, int64(len(whole))):][:n] || stored.Size() != int64(len(whole)) {
			rt.Fatalf("%d of %d bytes at %d: %q, %v; expected %d, %v", len(part), stored.Size(), off, part[:n], err, wantN, wantErr)
		}
		back, err := DecodeAccepted(got)
		if err != nil {
			rt.Fatal(err)
		}
		if d := cmp.Diff(a.Jobs, back.Jobs); d != "" {
			rt.Fatal(d)
		}
	})
}

// Two plans differ by what is accepted of them, and by nothing else.
func TestChangedIsWhatIsAccepted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(label string) *Plan {
			p := &Plan{}
			for i := range 6 {
				if rapid.Bool().Draw(rt, label) {
					j := Job{Name: fmt.Sprintf("j%d", i), Group: "g", Seed: int64(rapid.IntRange(0, 1).Draw(rt, "seed")), Priority: rapid.IntRange(0, 1).Draw(rt, "priority"),
						Pos: Pos{Line: rapid.IntRange(1, 9).Draw(rt, "line")}, OnDelete: rapid.SampledFrom([]OnDelete{Drain, Revoke}).Draw(rt, "on delete")}
					j.Work = j.Digest()
					p.Jobs = append(p.Jobs, j)
				}
			}
			return p
		}
		was, is := draw("was"), draw("is")
		gone, come, ok := Changed(was, is, 6)
		if !ok {
			rt.Fatal("more than there are")
		}
		a, b := Accept(was, "a").Jobs, Accept(is, "a").Jobs
		missing := func(xs, ys []AcceptedJob) (out []int) {
			for i, x := range xs {
				same := false
				for _, y := range ys {
					same = same || cmp.Equal(x, y)
				}
				if !same {
					out = append(out, i)
				}
			}
			return out
		}
		if d := cmp.Diff(missing(a, b), gone) + cmp.Diff(missing(b, a), come); d != "" {
			rt.Fatal(d)
		}
		if _, _, ok := Changed(was, is, len(gone)-1); ok && len(gone) > 0 {
			rt.Fatal("too many, and no word of it")
		}
	})
}
