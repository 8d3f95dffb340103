package reconcile

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/bucket"
)

// The quick way through a row says what encoding/json says, or leaves it alone.
func FuzzBoardRow(f *testing.F) {
	for _, s := range []string{`{"work":"ab","state":"held","attempt":1,"step":12,"job":"a/b=0.1"}`, `{"job":"a\nb"}`, `{"job":"é","step":-1}`, `{"step":01}`,
		`{"step":1.5}`, `{"job":"a","job":"b"}`, `{"Job":"a"}`, `{"lost_gpu_hours":1.5}`, `{"step":9223372036854775808}`, `{}`, `{"job":"a"}x`, `{"job":null}`, "{\"job\":\"\xff\"}", `{"job":"a",}`, `{"job":12}`, `{"step":"1"}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var quick, slow BoardRow
		if !plainRow(s, &quick) {
			return
		}
		if err := json.Unmarshal([]byte(s), &slow); err != nil {
			t.Fatalf("%q is read, and is no JSON: %v", s, err)
		}
		if diff := cmp.Diff(slow, quick); diff != "" {
			t.Errorf("%q (-encoding/json +read):\n%s", s, diff)
		}
	})
}

// A board reads as encoding/json reads it, written row by row or in one go, whatever its rows say.
func TestABoardIsReadAsJSON(t *testing.T) {
	word := rapid.SampledFrom([]string{"", "a", "held", "grid/lr=0.1", "an \"odd\"\nline", "é<>&", "]\n,{", `"rows":[`})
	count := rapid.Int64Range(-1, 1<<40)
	rapid.Check(t, func(t *rapid.T) {
		b := Board{Format: 1, Plan: bucket.Version(word.Draw(t, "plan")), Commit: word.Draw(t, "commit"), Rows: []BoardRow{}, Platforms: []PlatformState{{Name: word.Draw(t, "platform"), Live: 3}}}
		for range rapid.IntRange(0, 5).Draw(t, "rows") {
			b.Rows = append(b.Rows, BoardRow{Job: word.Draw(t, "job"), Group: word.Draw(t, "group"), Version: bucket.Version(word.Draw(t, "version")), Changed: count.Draw(t, "changed"),
				Observed: plan.Observed{Work: plan.Digest(word.Draw(t, "work")), State: word.Draw(t, "state"), Attempt: count.Draw(t, "attempt"), Step: count.Draw(t, "step"),
					Reason: word.Draw(t, "reason"), LostGPUHours: float64(count.Draw(t, "lost")) / 4}})
		}
		whole, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.ReplaceAll(bytes.ReplaceAll(whole, []byte(`},{"work"`), []byte("}\n,{\"work\"")), []byte(`}],"platforms"`), []byte("}\n],\"platforms\""))
		for _, body := range [][]byte{whole, lines} {
			got, err := decodeBoard(string(body))
			if err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			if diff := cmp.Diff(&b, got); diff != "" {
				t.Fatalf("%s (-written +read):\n%s", body, diff)
			}
		}
	})
}
