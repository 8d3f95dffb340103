package record

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestStatsKeys(t *testing.T) {
	work := Hash([]byte("w"))
	end := time.Date(2026, 11, 30, 23, 59, 59, 0, time.UTC)
	for _, platform := range []string{"vast-4090", "a/b", "..", ".", "a b%", "ü"} {
		o := Observation{Platform: platform, GPU: "nvidia-t4", Mode: "fp16", Work: work, Dispatch: 12}
		got, ok := ParseStats(ObservationKey(o, end))
		want := StatsKey{Platform: platform, GPU: "nvidia-t4", Mode: "fp16", Day: "2026-11-30", Work: work, Dispatch: 12}
		if diff := cmp.Diff(want, got); !ok || diff != "" {
			t.Errorf("%s (-want +got):\n%s", platform, diff)
		}
		got, ok = ParseStats(CompactKey(platform, "cpu", "none"))
		if diff := cmp.Diff(StatsKey{Platform: platform, GPU: "cpu", Mode: "none"}, got); !ok || diff != "" {
			t.Errorf("%s (-want +got):\n%s", platform, diff)
		}
	}
	late := Observation{Platform: "p", GPU: "cpu", Mode: "none", Work: work, Dispatch: 3, Late: true}
	if got, ok := ParseStats(ObservationKey(late, end)); !ok || !got.Late || got.Dispatch != 3 || got.Work != work {
		t.Errorf("%+v", got)
	}
	for _, bad := range []string{"stats/", "stats/a/b/c", "stats/a/b/c/other.json", "stats/a/b/c/2026-11-30/x.1.json", "stats/a/b/c/2026-13-30/" + work + ".1.json",
		"stats/a/b/c/2026-11-30/" + work + ".01.json", "stats/a/b/c/2026-11-30/" + work + ".1", "stats//b/c/compact.json", "work/" + work + "/spec.json",
		"stats/a/b/c/2026-11-30/" + strings.ToUpper(work) + ".1.json", "stats/a/../c/compact.json"} {
		if k, ok := ParseStats(bad); ok {
			t.Errorf("%s is read as %+v", bad, k)
		}
	}
}

func FuzzParseStats(f *testing.F) {
	f.Add(CompactKey("a", "b", "c"))
	f.Add(ObservationKey(Observation{Platform: "a/b", GPU: "c", Mode: "d", Work: Hash(nil), Dispatch: 3}, time.Unix(0, 0)))
	f.Fuzz(func(t *testing.T, key string) {
		k, ok := ParseStats(key)
		if !ok {
			return
		}
		again := CompactKey(k.Platform, k.GPU, k.Mode)
		if k.Day != "" {
			day, _ := time.Parse(time.DateOnly, k.Day)
			again = ObservationKey(Observation{Platform: k.Platform, GPU: k.GPU, Mode: k.Mode, Work: k.Work, Dispatch: k.Dispatch, Late: k.Late}, day)
		}
		if again != key {
			t.Errorf("%q is read as %+v, which is %q", key, k, again)
		}
	})
}
