package audit

import (
	"testing"

	"github.com/headway-run/headway/runners/record"
)

// TestWhatRetentionLetGo: an ancestor that is gone is a loss, unless the work's trim record says that retention let it
// go; the pointer's own milestone is one in any case, while the work goes on.
func TestWhatRetentionLetGo(t *testing.T) {
	first, second := record.Trim{Attempt: 1, Milestone: 2}, record.Trim{Attempt: 2, Milestone: 0}
	for name, c := range map[string]struct {
		finish bool
		trim   *record.Trim
		gone   [][2]int64 // attempt, milestone
		want   int
	}{
		"nothing is gone":                {false, &first, nil, 0},
		"said":                           {false, &first, [][2]int64{{1, 1}}, 0},
		"not said":                       {false, nil, [][2]int64{{1, 1}}, 1},
		"less was said":                  {false, &first, [][2]int64{{1, 2}, {1, 1}}, 1},
		"more was said":                  {false, &second, [][2]int64{{1, 1}}, 0},
		"all before the pointer":         {false, &second, [][2]int64{{1, 2}, {1, 1}}, 0},
		"the pointer's":                  {false, &record.Trim{Attempt: 4}, [][2]int64{{3, 1}}, 1},
		"all that there is":              {true, &record.Trim{Attempt: 4}, nil, 0},
		"more than there is":             {false, &record.Trim{Attempt: 5}, nil, 1},
		"more than there was":            {true, &record.Trim{Attempt: 1 << 40}, [][2]int64{{1, 1}}, 1},
		"all of a finished work":         {true, &record.Trim{Attempt: 4}, [][2]int64{{3, 1}, {1, 2}, {1, 1}}, 0},
		"a record that is another's":     {false, &record.Trim{Attempt: 2, Work: "other"}, [][2]int64{{1, 1}}, 2},
		"a record of a newer protocol":   {false, &record.Trim{Attempt: 2, Protocol: 2}, [][2]int64{{1, 1}}, 2},
		"a hole that was said to be one": {false, &second, [][2]int64{{1, 2}}, 0},
	} {
		b := newBench(t, onMem(t))
		work := b.history(1, c.finish)
		if c.trim != nil {
			r := *c.trim
			if r.Work == "" {
				r.Work = work
			}
			r.Protocol = max(r.Protocol, 1)
			b.put(record.TrimKey(work), r)
		}
		for _, g := range c.gone {
			b.remove(record.MilestoneManifestKey(work, g[0], g[1]))
		}
		got, err := Check(t.Context(), b, Options{Deep: true})
		if err != nil || len(got.Findings) != c.want {
			t.Errorf("%s: %d findings, want %d: %v %+v", name, len(got.Findings), c.want, err, got.Findings)
		}
	}
}

// TestAManifestThatCameBack: an upload that arrives twice, the second time after gc, brings a manifest back without its
// files. (Found by the simulation.)
func TestAManifestThatCameBack(t *testing.T) {
	for said, want := range map[bool]int{true: 0, false: 1} {
		b := newBench(t, onMem(t))
		work := b.history(1, false)
		if said {
			b.put(record.TrimKey(work), record.Trim{Protocol: 1, Work: work, Attempt: 1, Milestone: 2})
		}
		folder := record.MilestonePrefix(work, 1, 1)
		page, err := b.List(t.Context(), folder, "", 0)
		if err != nil || len(page.Items) < 2 {
			t.Fatalf("%+v, %v", page, err)
		}
		for _, it := range page.Items {
			if it.Key != folder+"manifest.json" {
				b.remove(it.Key)
			}
		}
		if got, err := Check(t.Context(), b, Options{Deep: true}); err != nil || min(len(got.Findings), 1) != want {
			t.Errorf("said %v: %v %+v", said, err, got.Findings)
		}
	}
}
