package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

const richConfig = `headway: v1
name: team-a
platforms:
  here: {runner: local, slots: 2}
  kaggle: {runner: kaggle, gpu: [T4x2]}
  vast: {runner: vast, gpu: [RTX_4090], price: 0.45 USD/h}
defaults:
  on: [here]
`

// rich is a diff with every operation, as a caller hands it to a face: rungs, next steps and a refusal are filled in.
func rich(t testing.TB) (*Plan, *Changes) {
	before := mustLoad(t, map[string]string{ConfigFile: richConfig, "plans/a.yaml": `jobs:
  moved-from: {run: moved}
  grown: {run: grow --n 1, on: [vast], gpu: {any: [RTX_4090], dtype: fp16}, work: {flops: 3.1e18}}
  placed: {run: placed}
  gone: {run: gone}
  gone-now: {run: gone 2, on_delete: revoke}
  same: {run: same}
  idle: {run: idle}
`, "plans/broken.yaml": "jobs:\n  frozen: {run: frozen}\n"})
	now, _ := Load(NewMemTree(map[string]string{ConfigFile: richConfig, "plans/a.yaml": `jobs:
  moved-to: {run: moved}
  grown: {run: grow --n 2, on: [vast], gpu: {any: [RTX_4090], dtype: fp16}, work: {flops: 3.1e18}}
  placed: {run: placed, limits: {wall: 48h}}
  same: {run: same}
  idle: {run: idle}
  fresh: {run: fresh, on: [kaggle, vast], gpu: {any: [T4x2, RTX_4090], dtype: fp16}, work: {flops: 1e17}}
  free: {run: free}
  found: {run: found, notes: "<b>@team</b> #7"}
`, "plans/broken.yaml": "jobs:\n  frozen: {run: other}\n  bad: {rnu: x}\n"}))
	a := Accept(before, "c0ffee0000000000000000000000000000000000")
	obs := map[Digest]Observed{}
	see := func(p *Plan, name string, o Observed) {
		o.Work = workOf(t, p, name)
		obs[o.Work] = o
	}
	held := Observed{State: StateHeld, Attempt: 7, Dispatch: 9, Platform: "vast", Step: 41200, Steps: 60000, Milestone: 12, MilestoneStep: 40890, Age: 41 * time.Second, LostGPUHours: 0.42, LostPaid: "0.19 USD"}
	see(before, "grown", held)
	see(before, "gone", held)
	see(before, "gone-now", held)
	see(before, "moved-from", Observed{State: StateHeld, Attempt: 3, Platform: "here", Step: 5})
	see(before, "same", Observed{State: StateHeld, Attempt: 1, Platform: "here"})
	see(now, "found", Observed{State: StateFinished, Attempt: 2})
	d := Diff(now, &a, obs)
	d.Commit = "4c1e0d9000000000000000000000000000000000"
	d.Refusals = []Refusal{{Code: "PlanErrors", Text: "the plan has 1 error, so nothing is stopped until it has none", Hint: "headway validate lists them"}}
	d.Drift = []Drift{{Kind: DriftEnded, Job: "same", Work: workOf(t, now, "same"), Text: "attempt 1 was stopped outside the plan (<b>@ann</b>)", Then: "the plan still names it"},
		{Kind: DriftOrphan, Work: workOf(t, now, "idle"), Text: "dispatch 7 runs on vast and nothing explains it", Then: "to end it: by hand"}}
	rungs := map[string][]Rung{
		"fresh": {{Platform: "kaggle", WaitS: 11520, Free: true, Why: "parked 3h12m: the weekly quota resets"}, {Platform: "vast", Chosen: true, PerHour: 0.45, Unit: "USD", Why: "would wait 0 s, costs 0.45 USD/h"}},
		"grown": {{Platform: "vast", Chosen: true, PerHour: 0.45, Unit: "USD", Why: "would wait 0 s, costs 0.45 USD/h"}},
		"free":  {{Platform: "here", Chosen: true, Free: true, Why: "would wait 0 s, costs nothing"}},
	}
	for i := range d.Changes {
		d.Changes[i].Rungs = rungs[d.Changes[i].Job]
		if d.Changes[i].Job == "fresh" {
			d.Changes[i].Environment = []string{"the newest machine of kaggle had cuda 12.1 <b> (required: 12.4): its workers would refuse it"}
		}
	}
	d.Settle(now)
	return now, d
}

// faces writes the golden files of a diff: terminal, JSON and Markdown.
func faces(t *testing.T, name string, d *Changes) {
	t.Helper()
	var b bytes.Buffer
	if err := d.Text(&b, false); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/diff/"+name+".txt", b.Bytes())
	j, err := d.JSON()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/diff/"+name+".json", j)
	golden(t, "testdata/diff/"+name+".md", []byte(d.Markdown(0)))
	back, err := DecodeChanges(j)
	if err != nil {
		t.Fatal(err)
	}
	again, err := back.JSON()
	if err != nil || !bytes.Equal(j, again) {
		t.Errorf("read back it is another document: %v\n%s", err, cmp.Diff(string(j), string(again)))
	}
	if back.Markdown(0) != d.Markdown(0) {
		t.Error("read back it makes another comment")
	}
}

// TestFaces: every operation in each face, the verdict and its reasons first. With an error in the plan nothing stops; without
// it what runs does.
func TestFaces(t *testing.T) {
	now, d := rich(t)
	faces(t, "rich", d)
	ops := map[Op]int{}
	for _, c := range d.Changes {
		ops[c.Op]++
	}
	want := map[Op]int{OpCreate: 2, OpUpdate: 1, OpReplace: 1, OpAdopt: 2, OpRefused: 2, OpWaiting: 3, OpUnchanged: 1}
	if diff := cmp.Diff(want, ops); diff != "" || d.Verdict != VerdictError {
		t.Error(d.Verdict, diff)
	}
	if b := d.Totals.Bill; b.Jobs != 3 || b.CostUnknown != 0 || b.HoursOpen != 1 || b.FLOPsOpen != 1 || len(b.Costs) != 1 || b.Costs[0].Unit != "USD" {
		t.Errorf("%+v", b)
	}
	clean, _, obs := diffCase(t)
	refused := Diff(clean, mustAccept(t), obs)
	refused.Dirty = true
	refused.Refusals = []Refusal{{Code: "TooManyStops", Whole: true, Text: "4 of 5 | <live> works would leave, token ghp_0123456789abcdefghijABCDEFGHIJ012345", Hint: "Allow-Stops: 4"}}
	refused.Settle(clean)
	faces(t, "refused", refused)
	if refused.Verdict != VerdictRefused || refused.Totals.Ending != 3 || refused.Totals.Drained != 2 || now.OK() {
		t.Errorf("%+v", refused.Totals)
	}
}

func mustAccept(t testing.TB) *Accepted {
	t.Helper()
	_, a, _ := diffCase(t)
	return a
}

// TestEndingAndVerdict: moves alone are nothing to do, in one word and in a comment.
func TestEndingAndVerdict(t *testing.T) {
	before := mustLoad(t, map[string]string{"plans/p.yaml": "jobs:\n  a: {run: x}\n"})
	a := Accept(before, "c1")
	now := mustLoad(t, map[string]string{"plans/elsewhere/q.yaml": "jobs:\n  b: {run: x}\n"})
	d := Diff(now, &a, map[Digest]Observed{before.Jobs[0].Work: {State: StateHeld, Attempt: 1}})
	if d.Verdict != VerdictNothing || !strings.Contains(d.Markdown(0), "\n### Nothing to do: 1 moved\n") {
		t.Error(d.Verdict, d.Markdown(0))
	}
}

// TestStateIsOfTheLeases: the digest moves with the attempt of what a change would end, not with its steps, nor with a work
// that no change concerns.
func TestStateIsOfTheLeases(t *testing.T) {
	now, a, obs := diffCase(t)
	before := mustLoad(t, map[string]string{"plans/p.yaml": diffOld})
	first := Diff(now, a, obs).State
	with := func(name string, f func(*Observed)) string {
		w := workOf(t, before, name)
		was := obs[w]
		defer func() { obs[w] = was }()
		o := was
		f(&o)
		obs[w] = o
		return Diff(now, a, obs).State
	}
	step := with("gone", func(o *Observed) { o.Step++; o.Age += time.Second })
	other := with("same", func(o *Observed) { o.Dispatch++ })
	attempt := with("gone", func(o *Observed) { o.Attempt++ })
	if len(first) != 16 || step != first || other != first || attempt == first {
		t.Error(first, step, other, attempt)
	}
}

// TestCostsAreSummed by unit, upper bounds and unknown ones said as such.
func TestCostsAreSummed(t *testing.T) {
	est := &Estimate{Low: 2, High: 4}
	list := []Change{
		{Op: OpCreate, Job: "a", FLOPs: 1e15, Estimate: est, Cost: &Cost{Low: 1, High: 2, Unit: "USD"}},
		{Op: OpCreate, Job: "b", FLOPs: 1e15, Estimate: est, Cost: &Cost{Low: 1, High: 2, Unit: "USD", AtMost: true}},
		{Op: OpCreate, Job: "c", Estimate: est, Cost: &Cost{Low: 3, High: 6, Unit: "credits"}},
		{Op: OpCreate, Job: "d", Cost: &Cost{}}, {Op: OpReplace, Job: "e"},
	}
	b := Bill{Costs: []Cost{}}
	for i := range list {
		b.add(&list[i])
	}
	if got, want := b.String(), "To run, 5 jobs: work 2e+15 FLOP and 3 unknown; time 6 h to 12 h and 2 unknown; cost at most 4 USD and 3 to 6 credits and 1 unknown"; got != want {
		t.Errorf("%q\n%q", got, want)
	}
	if got, want := list[4].price()+"; "+list[3].price(), "work, time and cost unknown; costs nothing, work and time unknown"; got != want {
		t.Errorf("%q", got)
	}
}

// TestMarkerCannotEndTheComment whatever a plan repository is called.
func TestMarkerCannotEndTheComment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.String(), rapid.StringMatching(`[->!% a-z<]{0,20}`)).Draw(t, "name")
		d := &Changes{Root: name, Commit: rapid.StringMatching(`[0-9a-f>-]{0,40}`).Draw(t, "commit")}
		first, _, _ := strings.Cut(d.Markdown(0), "\n")
		if !regexp.MustCompile(`^<!-- headway:plan root=[A-Za-z0-9%._-]+ head=[0-9a-f-]+ digest=sha256:[0-9a-f]{16} -->$`).MatchString(first) ||
			strings.Count(first, "--") != 2 || !strings.HasPrefix(first, Marker(name)) {
			t.Fatal(first)
		}
	})
}

// TestEscapedTextCallsNobody: whatever a value holds, no mention, reference, link or markup is left once entities are read.
func TestEscapedTextCallsNobody(t *testing.T) {
	pings := regexp.MustCompile(`[@#!~$%&^\[][A-Za-z0-9"']|[a-z]://|(?i:www\.[a-z]|gh-[0-9])`)
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching("([-@#!~$%&^\\[\\]`|<>*_:/.a-zA-Z0-9 ]|http://|www\\.|GH-|@all|@org/team|#7){0,30}").Draw(t, "text")
		e := escape(line(s))
		if strings.ContainsAny(e, "<>|`*_@[]\\\"'") || strings.ContainsRune(e, '\n') {
			t.Fatalf("%q", e)
		}
		read := regexp.MustCompile(`&#([0-9]+);`).ReplaceAllStringFunc(e, func(m string) string {
			var r rune
			if _, err := fmt.Sscanf(m, "&#%d;", &r); err != nil {
				t.Fatal(err)
			}
			return string(r)
		})
		if p := pings.FindString(read); p != "" {
			t.Fatalf("%q calls with %q", read, p)
		}
	})
}

// TestHugeJobsAreCutWhole: jobs whose every value is as long as it may be and expands sixfold; the dangerous ones are there
// first, in both lists.
func TestHugeJobsAreCutWhole(t *testing.T) {
	huge := strings.Repeat("@`<", 300)
	ops := []Op{OpUnchanged, OpWaiting, OpAdopt, OpUpdate, OpCreate, OpReplace, OpRemove, OpRefused}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) []Change {
			var list []Change
			for i := range rapid.IntRange(0, 12).Draw(t, label) {
				c := Change{Op: rapid.SampledFrom(ops).Draw(t, "op"), Job: fmt.Sprintf("%s-%d", label, i), NewWork: "0123456789ab", Reason: huge, Next: huge, Warnings: []string{huge},
					On: []string{huge}, Leaving: &Observed{State: StateHeld, Platform: huge, Reason: huge}, OnDelete: Revoke, LostPaid: huge}
				for k := range rapid.IntRange(0, 12).Draw(t, "fields") {
					c.Fields = append(c.Fields, FieldChange{Field: fmt.Sprint("params.", k, huge), Sort: Identity, Old: huge, New: huge})
				}
				list = append(list, c)
			}
			return list
		}
		d := &Changes{Root: huge, Changes: draw("own"), Refusals: []Refusal{{Code: "X", Text: huge, Hint: huge}}, Problems: []Problem{{Text: huge}, {Text: huge}}}
		if rapid.Bool().Draw(t, "over a base") {
			d.Pending = &Pending{Ref: huge, Commit: huge, Behind: true, Changes: draw("pending")}
		}
		d.Root = huge[:300]
		s := d.Markdown(0)
		if len(s) > MarkdownMax {
			t.Fatalf("%d bytes", len(s))
		}
		if strings.Count(s, "<details>") != strings.Count(s, "</details>") || strings.Count(s, "```")%2 != 0 {
			t.Fatal("a fold or a fence is not closed")
		}
		least, most := 99, -1 // of what is shown the least dangerous, of what is cut the most
		cut := 99
		for _, l := range [][]Change{d.Changes, pendingOf(d)} {
			for _, c := range ranked(l) {
				if strings.Contains(s, "| "+escape(c.Job)+" |") {
					most = max(most, c.rank())
				} else {
					cut = min(cut, c.rank())
				}
			}
		}
		if least = most; cut < least {
			t.Fatalf("rank %d is cut and rank %d is shown", cut, least)
		}
	})
}

func pendingOf(d *Changes) []Change {
	if d.Pending == nil {
		return nil
	}
	return d.Pending.Changes
}

// TestNoFaceShowsASecret: what looks like a key shows in no face, wherever it came from: an old value, the store's reason, a
// refusal, a platform's word.
func TestNoFaceShowsASecret(t *testing.T) {
	keys := []string{"ghp_0123456789abcdefghijABCDEFGHIJ012345", "AKIAIOSFODNN7EXAMPLE", "sk-abcdefghijklmnopqrstuvwx0123", "hf_abcdefghijklmnopqrstuvwxyzABCD", "glpat-0123456789abcdefghij"}
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SampledFrom(keys).Draw(t, "key")
		with := rapid.SampledFrom([]string{key, "x " + key, strings.Repeat("é", 140) + " " + key, "token=" + key + "&y"}).Draw(t, "around it")
		now := mustLoadRapid(t, "jobs:\n  a: {run: x, seed: 2}\n  b: {run: y}\n")
		was := mustLoadRapid(t, "jobs:\n  a: {run: x, params: {k: KEY}}\n  b: {run: y}\n")
		a := Accept(was, "c1")
		for i := range a.Jobs { // accepted before anybody knew that form of a key
			a.Jobs[i].Metadata = []byte(fmt.Sprintf(`{"notes":%q}`, with))
			a.Jobs[i].Identity = bytes.ReplaceAll(a.Jobs[i].Identity, []byte("KEY"), []byte(key))
		}
		d := Diff(now, &a, map[Digest]Observed{now.Jobs[1].Work: {State: StateHeld, Reason: with}, a.Jobs[0].Work: {State: StateHeld, Reason: with}})
		d.Refusals = []Refusal{{Code: "X", Text: with, Hint: with}}
		d.Drift = []Drift{{Text: with}}
		d.Changes[0].Environment = []string{with}
		for i := range d.Changes {
			d.Changes[i].Next, d.Changes[i].Rungs = with, []Rung{{Platform: "here", Why: with}}
		}
		d.Settle(now)
		var b bytes.Buffer
		if err := d.Text(&b, false); err != nil {
			t.Fatal(err)
		}
		j, err := d.JSON()
		if err != nil || !json.Valid(j) {
			t.Fatal(err)
		}
		for name, face := range map[string]string{"text": b.String(), "json": string(j), "markdown": d.Markdown(0)} {
			if strings.Contains(face, key) {
				t.Fatalf("%s:\n%s", name, face)
			}
		}
	})
}

func mustLoadRapid(t *rapid.T, text string) *Plan {
	p, ps := Load(NewMemTree(map[string]string{ConfigFile: refuseConfig, "plans/p.yaml": text}))
	for _, q := range ps {
		if q.Severity == Error {
			t.Fatal(q)
		}
	}
	return p
}

// TestDecodeChangesRefuses what no diff of this version is.
func TestDecodeChangesRefuses(t *testing.T) {
	for text, want := range map[string]string{
		``:                                      "EOF",
		`{}`:                                    `format_version is ""`,
		`{"format_version":"2.0","changes":[]}`: `reads 1.x`,
		`{"format_version":"1.9","changes":[]} x`:                                        "bytes after",
		`{"format_version":"1.1"}`:                                                       "no changes",
		`{"format_version":"1.1","changes":[{"op":"launch"}]}`:                           "op \"launch\" is not known",
		`{"format_version":"1.1","changes":[{"op":"create","new_work":"\u001b[2J"}]}`:    "is no work",
		`{"format_version":"1.1","commit":"--upload-pack","changes":[]}`:                 "is no commit",
		`{"format_version":"1.1","changes":[{"op":"create","job":"a","later":1}],"x":2}`: "",
	} {
		_, err := DecodeChanges([]byte(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// FuzzDecodeChanges: whatever is read back prints in every face without a control character, and fits into a comment.
func FuzzDecodeChanges(f *testing.F) {
	_, d := rich(f)
	j, err := d.JSON()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(j)
	f.Add([]byte(`{"format_version":"1.1","stale":["\u001b[2J"],"changes":[{"op":"replace","job":"\u001b","fields":[{"field":"x","sort":"\n"}],"leaving":{"work":""}}],"pending":{"ref":"\n","changes":[]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := DecodeChanges(b)
		if err != nil {
			return
		}
		var text bytes.Buffer
		if err := d.Text(&text, false); err != nil {
			t.Fatal(err)
		}
		for _, r := range text.String() + d.Markdown(0) {
			if r < ' ' && r != '\n' {
				t.Fatalf("%q", r)
			}
		}
		if len(d.Markdown(0)) > MarkdownMax {
			t.Fatal("too long for a comment")
		}
	})
}

// TestPendingIsApart: what the base changes already and what the commit adds to it, and together nothing twice.
func TestPendingIsApart(t *testing.T) {
	load := func(s string) *Plan {
		return mustLoad(t, map[string]string{ConfigFile: richConfig, "plans/p.yaml": "jobs:\n" + s})
	}
	accepted := Accept(load("  stays: {run: a}\n  both: {run: b, seed: 1}\n  drops: {run: c}\n"), "c1")
	base := load("  stays: {run: a}\n  both: {run: b, seed: 2}\n  theirs: {run: d}\n")
	head := load("  stays: {run: a}\n  both: {run: b, seed: 3}\n  theirs: {run: d}\n  ours: {run: e}\n  twin: {run: d}\n")
	d := DiffOver(head, base, &accepted, map[Digest]Observed{accepted.Jobs[2].Work: {Work: accepted.Jobs[2].Work, State: StateHeld}})
	d.Pending.Ref, d.Pending.Commit, d.Pending.Behind = "main", "c2", true
	d.Settle(head)
	ops := func(list []Change) map[string]Op {
		out := map[string]Op{}
		for _, c := range list {
			out[c.Job] = c.Op
		}
		return out
	}
	if diff := cmp.Diff(map[string]Op{"stays": OpUnchanged, "both": OpReplace, "theirs": OpUnchanged, "ours": OpCreate, "twin": OpCreate}, ops(d.Changes)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]Op{"both": OpReplace, "drops": OpRemove, "theirs": OpCreate}, ops(d.Pending.Changes)); diff != "" {
		t.Error(diff)
	}
	want := Totals{Start: 1, Replace: 1, Remove: 1}
	if diff := cmp.Diff(want, d.Pending.Totals, cmpopts.IgnoreFields(Totals{}, "Bill", "Live", "Leaving", "Stop")); diff != "" {
		t.Error(diff)
	}
	faces(t, "base", d)
	warned := func(list []Change, job, with string) bool {
		for _, c := range list {
			if c.Job == job {
				return strings.Contains(strings.Join(c.Warnings, "; "), with)
			}
		}
		return false
	}
	if !warned(d.Changes, "both", "pending") || !warned(d.Pending.Changes, "both", "this commit changes") || !warned(d.Changes, "twin", "the same work as theirs") || warned(d.Changes, "ours", "") && len(d.Changes[1].Warnings) > 0 {
		t.Error("a warning is missing, or there is one too many")
	}
	if d.Base != "c1" || d.Verdict != VerdictChanges {
		t.Error(d.Base, d.Verdict)
	}
	same := DiffOver(base, base, &accepted, nil)
	if same.Verdict != VerdictNothing || same.Totals.Waiting != 0 || same.Totals.Unchanged != 3 {
		t.Errorf("%s %+v", same.Verdict, same.Totals)
	}
}

// TestABaseWithErrorsTakesNothingAway: what it cannot say is as it was accepted.
func TestABaseWithErrorsTakesNothingAway(t *testing.T) {
	before := mustLoad(t, map[string]string{"plans/p.yaml": "jobs:\n  a: {run: x}\n  b: {run: y}\n"})
	accepted := Accept(before, "c1")
	base, _ := Load(NewMemTree(map[string]string{ConfigFile: refuseConfig, "plans/p.yaml": "jobs:\n  a: {rnu: x}\n"}))
	d := DiffOver(before, base, &accepted, nil)
	if d.Any() || d.Pending.Errored != true || len(d.Changes) != 2 {
		t.Errorf("%+v", d.Changes)
	}
}
