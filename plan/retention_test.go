package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestRetention(t *testing.T) {
	day := 24 * time.Hour
	for name, c := range map[string]struct {
		text string
		want Retention
	}{
		"nothing said": {"", Retention{3, 30 * day, Forever}},
		"all said":     {"retention: {milestones: 0, finished: forever, logs: 36h}\n", Retention{0, Forever, 36 * time.Hour}},
		"one said":     {"retention:\n  finished: 1d12h\n", Retention{3, 36 * time.Hour, Forever}},
	} {
		p, ps := Load(MakeMemTree(map[string]MemFile{
			ConfigFile:     {Data: []byte("headway: v1\nplatforms: {here: {runner: local}}\ndefaults: {on: [here]}\n" + c.text)},
			"plans/p.yaml": {Data: []byte("jobs:\n  a: {run: x}\n")},
		}))
		if len(ps) > 0 {
			t.Fatalf("%s: %v", name, ps)
		}
		if diff := cmp.Diff(c.want, p.Config.Retention); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestFormatKeep: what is printed is read back as the same.
func TestFormatKeep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keep := time.Duration(rapid.Int64Range(1, int64(maxDuration/time.Second)).Draw(t, "seconds")) * time.Second
		if rapid.Bool().Draw(t, "forever") {
			keep = Forever
		}
		if got, why := ParseKeep(FormatKeep(keep)); why != "" || got != keep {
			t.Fatalf("%s: %s %s", FormatKeep(keep), got, why)
		}
	})
}
