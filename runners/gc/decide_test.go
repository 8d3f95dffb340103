package gc

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

var decided = strings.Repeat("ab", 32) // a table of values: the work that is decided on

// view is a work with three attempts: the pointer is at attempt 2, milestone 2, which grew from 2/1, which grew from 1/1.
// Attempt 1 also left 1/2 beside the line and half of 1/3; all are old.
func view(state witness.State, age time.Duration) View {
	at := func(a, m int64) record.Pointer {
		return record.Pointer{Attempt: a, Milestone: m, Manifest: record.MilestoneManifestKey(decided, a, m)}
	}
	p := at(2, 2)
	v := View{Work: decided, Age: age, Kept: []record.Pointer{p, at(2, 1)},
		Witness: &witness.Record{Work: decided, Attempt: 3, State: state, Resume: &p, Lease: witness.Lease{Seconds: 60}}}
	if state == witness.Finished {
		v.Witness.Finished = &witness.FinishedPointer{Attempt: 3, Manifest: record.ResultManifestKey(decided, 3)}
	}
	add := func(keys ...string) {
		for _, k := range keys {
			v.Objects = append(v.Objects, Object{Key: k, Size: 10, Age: 100 * time.Hour})
		}
	}
	for a, milestones := range map[int64][]int64{1: {1, 2}, 2: {1, 2}, 3: {1}} {
		add(record.OpenKey(decided, a), record.EndKey(decided, a), record.AttemptPrefix(decided, a)+"grant/1",
			record.SegmentKey(record.LogPrefix(decided, a), 0), record.SegmentKey(record.LogPrefix(decided, a), 9),
			record.SegmentKey(record.EventPrefix(decided, a), 0), record.ClaimKey(decided, a), record.ReceiptKey(decided, a), record.ReleaseKey(decided, a, 1))
		for _, m := range milestones {
			add(record.MilestoneManifestKey(decided, a, m), record.MilestonePrefix(decided, a, m)+"x", record.MilestonePrefix(decided, a, m)+"deep/y")
		}
	}
	add(record.SpecKey(decided), record.MilestonePrefix(decided, 1, 3)+"x", record.WorkPrefix(decided)+"note.txt",
		record.ResultPrefix(decided, 1)+"x", record.ResultManifestKey(decided, 1), record.ResultPrefix(decided, 3)+"x", record.ResultManifestKey(decided, 3),
		record.AttemptPrefix(decided, 1)+"milestone/5/x", record.DispatchPrefix(decided)+"7.json")
	slices.SortFunc(v.Objects, func(a, b Object) int { return strings.Compare(a.Key, b.Key) })
	return v
}

// said is a verdict in short: "reason prefix", without the work.
func said(v Verdict) (out []string) {
	for _, d := range v.Deletions {
		out = append(out, fmt.Sprintf("%s %s", d.Reason, strings.TrimPrefix(d.Prefix, record.WorkPrefix(decided))))
	}
	return out
}

// what goes of the view in each case. (Tables of values.)
var (
	older = []string{"behind attempt/00000001/milestone/00000001/", "behind attempt/00000001/milestone/00000002/",
		"partial attempt/00000001/milestone/00000003/", "unnamed attempt/00000001/result/"}
	last   = []string{"unnamed attempt/00000003/milestone/00000001/", "unnamed attempt/00000003/result/"}
	ended  = []string{"launches dispatch/00000002."} // the first and the last one stay
	logged = []string{"logs attempt/00000001/events/", "logs attempt/00000001/log/", "logs attempt/00000002/events/", "logs attempt/00000002/log/"}
	logsOf = []string{"logs attempt/00000003/events/", "logs attempt/00000003/log/"}
)

func TestDecide(t *testing.T) {
	day := 24 * time.Hour
	plain := Options{Grace: day, Finished: Forever, Logs: Forever}
	logs, over := plain, plain
	logs.Logs, over.Finished = 50*time.Hour, 50*time.Hour
	of := func(lists ...[]string) []string { return slices.Sorted(slices.Values(slices.Concat(lists...))) }
	line := []string{"finished attempt/00000001/milestone/00000001/", "finished attempt/00000001/milestone/00000002/", "partial attempt/00000001/milestone/00000003/",
		"finished attempt/00000002/milestone/00000001/", "finished attempt/00000002/milestone/00000002/", "finished attempt/00000003/milestone/00000001/", "unnamed attempt/00000001/result/"}
	for name, c := range map[string]struct {
		view View
		o    Options
		want []string
		left string
		trim record.Trim
	}{
		"held":                   {view(witness.Held, 0), plain, of(older), "", record.Trim{Attempt: 2, Milestone: 1}},
		"yielded":                {view(witness.Yielded, 0), plain, of(older, last), "", record.Trim{Attempt: 2, Milestone: 1}},
		"revoked":                {view(witness.Revoked, 0), plain, of(older, last), "", record.Trim{Attempt: 2, Milestone: 1}},
		"finished":               {view(witness.Finished, 100*time.Hour), plain, of(older, last[:1]), "", record.Trim{Attempt: 2, Milestone: 1}},
		"finished a moment ago":  {view(witness.Finished, time.Hour), over, of(older, last[:1]), "", record.Trim{Attempt: 2, Milestone: 1}},
		"finished long ago":      {view(witness.Finished, 100*time.Hour), over, of(line, ended), "", record.Trim{Attempt: 4}},
		"long ago, not finished": {view(witness.Revoked, 100*time.Hour), over, of(older, last), "", record.Trim{Attempt: 2, Milestone: 1}},
		"old logs, held":         {view(witness.Held, 0), logs, of(older, logged), "", record.Trim{Attempt: 2, Milestone: 1}},
		"old logs, finished":     {view(witness.Finished, 0), logs, of(older, last[:1], logged, logsOf), "", record.Trim{Attempt: 2, Milestone: 1}},
		"pinned":                 {with(view(witness.Finished, 100*time.Hour), func(v *View) { v.Pinned = true }), over, nil, "", record.Trim{}},
		"no witness":             {with(view(witness.Held, 0), func(v *View) { v.Witness = nil }), over, nil, "it has no witness", record.Trim{}},
		"unreadable":             {with(view(witness.Held, 0), func(v *View) { v.Bad = "its witness is half" }), over, nil, "its witness is half", record.Trim{}},
		"rolled back":            {with(view(witness.Revoked, 0), func(v *View) { v.Witness.Attempt = 2 }), over, nil, "attempt 3 has written, and its witness is at attempt 2", record.Trim{}},
		"nothing was kept":       {with(view(witness.Revoked, 0), func(v *View) { v.Witness.Resume, v.Kept = nil, nil }), plain, of(unlined), "", record.Trim{}},
		"a long lease":           {with(view(witness.Held, 0), func(v *View) { v.Witness.Lease.Seconds = 51 * 3600 }), plain, nil, "", record.Trim{}},
		"no stamps":              {with(view(witness.Finished, 100*time.Hour), young), over, nil, "", record.Trim{}},
	} {
		got := Decide(c.view, c.o)
		if diff := cmp.Diff(c.want, of(said(got))); diff != "" && len(c.want)+len(got.Deletions) > 0 {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if !strings.HasPrefix(got.Left, c.left) || (c.left == "") != (got.Left == "") || got.Trim != c.trim {
			t.Errorf("%s: left %q, trim %+v", name, got.Left, got.Trim)
		}
	}
}

// unlined is what goes where no pointer names anything. (Table of values.)
var unlined = []string{"unnamed attempt/00000001/milestone/00000001/", "unnamed attempt/00000001/milestone/00000002/", "partial attempt/00000001/milestone/00000003/",
	"unnamed attempt/00000001/result/", "unnamed attempt/00000002/milestone/00000001/", "unnamed attempt/00000002/milestone/00000002/",
	"unnamed attempt/00000003/milestone/00000001/", "unnamed attempt/00000003/result/"}

func with(v View, f func(*View)) View {
	f(&v)
	return v
}

func young(v *View) {
	for i := range v.Objects {
		v.Objects[i].Age = 0
	}
}

// TestOneYoungObject: a snapshot with a single object younger than the grace stays whole.
func TestOneYoungObject(t *testing.T) {
	o := Options{Grace: 24 * time.Hour, Finished: time.Hour, Logs: time.Hour}
	for i := range view(witness.Finished, 100*time.Hour).Objects {
		v := view(witness.Finished, 100*time.Hour)
		v.Objects[i].Age = 23 * time.Hour
		for _, d := range Decide(v, o).Deletions {
			if strings.HasPrefix(v.Objects[i].Key, d.Prefix) {
				t.Errorf("%s is young, and %s goes", v.Objects[i].Key, d.Prefix)
			}
		}
	}
}

// TestOrder: a manifest goes before its files, a claim after the answers to it, a log from its end.
func TestOrder(t *testing.T) {
	v := view(witness.Finished, 100*time.Hour)
	for _, d := range Decide(v, Options{Grace: time.Hour, Finished: time.Hour, Logs: time.Hour}).Deletions {
		keys := slices.Concat(append([][]string{d.Unseen}, d.Phases...)...)
		first, tail := keys[0], keys[len(keys)-1]
		switch d.Reason {
		case Unnamed, Behind, Finished:
			if first != d.Prefix+"manifest.json" || len(d.Phases[0]) != 1 {
				t.Errorf("%s: %v", d.Prefix, d.Phases)
			}
		case Partial:
			if first != d.Prefix+"manifest.json" || len(d.Unseen) != 1 {
				t.Errorf("%s: a manifest that the listing did not show could stay: %v", d.Prefix, keys)
			}
		case Launches:
			if tail != d.Prefix+"json" || len(d.Phases[0]) != 2 {
				t.Errorf("%s: %v", d.Prefix, d.Phases)
			}
		case Logs:
			if slices.IsSorted(keys) && len(keys) > 1 {
				t.Errorf("%s: %v", d.Prefix, keys)
			}
		case Code:
			t.Error("a work has no code of its own")
		}
		if len(keys)-len(d.Unseen) != d.Objects || d.Bytes != 10*int64(d.Objects) {
			t.Errorf("%s: %d keys, %d objects of %d bytes", d.Prefix, len(keys), d.Objects, d.Bytes)
		}
	}
}
