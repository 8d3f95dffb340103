package timeline_test

import (
	"bytes"
	"strings"
	"testing"
	"unicode"

	"github.com/headway-run/headway/reconcile/timeline"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
)

// FuzzTimeline: whatever lies in the places of a work's records, reading its past never panics and ends; what it tells is bounded,
// in order, of the closed set, and safe to print; and reading again with the same Reader tells the same.
func FuzzTimeline(f *testing.F) {
	lease := `{"protocol":1,"work":"` + work + `","rev":3,"write":"` + strings.Repeat("0", 32) + `","attempt":1,"dispatch":1,"state":"revoked","floor":2,"reason":"x","resume":{"attempt":1,"milestone":1,"step":2,"manifest":"` + record.MilestoneManifestKey(work, 1, 1) + `","sha256":"` + strings.Repeat("0", 64) + `"},"lease":{"seconds":30,"k":5,"step_s":1}}`
	claim := `{"protocol":1,"work":"` + work + `","dispatch":1,"platform":"here","commit":"c1","before":{"attempt":1,"off":true,"state":"revoked","reason":"x","at":"2000-01-01T00:00:00.5Z"}}`
	f.Add([]byte(lease), []byte(claim), []byte(`{"protocol":1,"work":"`+work+`","dispatch":1,"ok":true}`), []byte(`{"protocol":1,"work":"`+work+`","attempt":1,"class":"yielded"}`), []byte(`{"protocol":1,"work":"`+work+`","attempt":1,"milestone":1,"step":2,"parent":{"attempt":1,"milestone":1}}`))
	for _, n := range []string{"9223372036854775807", "9007199254740992"} { // up to the first nobody can count
		far := strings.NewReplacer(`"rev":3`, `"rev":`+n, `"attempt":1,"dispatch":1,"state"`, `"attempt":`+n+`,"dispatch":`+n+`,"state"`, `"floor":2`, `"floor":`+n).Replace(lease)
		f.Add([]byte(far), []byte(claim), []byte("{}"), []byte("{}"), []byte("{}"))
	}
	f.Add([]byte(`{"attempt":9223372036854775807}`), []byte("null"), []byte("[1]"), []byte("\x1b[2J"), []byte(strings.Repeat("[", 2000)))
	f.Fuzz(func(t *testing.T, lease, claim, receipt, end, manifest []byte) {
		b := mem.New()
		for key, body := range map[string][]byte{record.WitnessKey(work): lease, record.SpecKey(work): end, record.ClaimKey(work, 1): claim, record.ClaimKey(work, 2): claim,
			record.ReceiptKey(work, 1): receipt, record.ReleaseKey(work, 1, 1): receipt, record.OpenKey(work, 1): claim, record.EndKey(work, 1): end,
			record.MilestoneManifestKey(work, 1, 1): manifest, record.ResultManifestKey(work, 1): manifest} {
			if _, err := b.Put(t.Context(), key, bytes.NewReader(body), bucket.IfAbsent()); err != nil {
				t.Fatal(err)
			}
		}
		r := timeline.New(b, work)
		tl, err := r.Read(t.Context())
		if err != nil {
			t.Fatal("the store answered, and it is an error:", err)
		}
		if len(tl.Events) > 64 {
			t.Errorf("%d events of ten records", len(tl.Events))
		}
		for i, e := range tl.Events {
			if i > 0 && e.Time.Before(tl.Events[i-1].Time) {
				t.Errorf("event %d is out of order", i)
			}
			if !known(e.What) {
				t.Errorf("an event %q", e.What)
			}
			for _, s := range []string{e.Reason, e.Class, e.Platform, e.By} {
				if len(s) > 512 || strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) }) {
					t.Errorf("%s: %q", e.What, s)
				}
			}
		}
		again, err := r.Read(t.Context())
		if err != nil || strings.Join(lines(again), "\n") != strings.Join(lines(tl), "\n") {
			t.Errorf("a second look: %v, %v", lines(again), err)
		}
	})
}

func known(what string) bool {
	switch what {
	case timeline.Submitted, timeline.Claimed, timeline.Launched, timeline.Refused, timeline.Captured, timeline.Milestone, timeline.Yielded,
		timeline.Revoked, timeline.Ended, timeline.Finished, timeline.Released, timeline.Unreadable:
		return true
	}
	return false
}
