package gc

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-run/headway/runners/audit"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/counting"
	"github.com/headway-run/headway/runners/bucket/faulty"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

func TestScan(t *testing.T) {
	d, tree := strings.Repeat("ab", 32), strings.Repeat("0c", 20)
	for text, want := range map[string][]string{
		"":                               nil,
		d:                                {d},
		tree:                             {tree},
		strings.ToUpper(d):               {d},
		"work/" + d + "/attempt/1":       {d},
		d + " and " + tree:               {tree, d},
		strings.Repeat("ab", 300):        nil, // data
		"sha256:" + d:                    {d},
		"x" + tree + "x" + tree + ".tar": {tree},
	} {
		var p pin
		p.scan(text)
		slices.Sort(p.names)
		got := slices.Compact(p.names)
		if diff := cmp.Diff(want, got); diff != "" && len(want)+len(got) > 0 {
			t.Errorf("%.80q (-want +got):\n%s", text, diff)
		}
	}
	var p pin // a letter before a digest can be a digit as well
	p.scan("release" + d)
	if !slices.Contains(p.names, d) {
		t.Error("a digest behind a hex letter is not seen")
	}
}

// TestScanFindsEveryName: whatever a digest is surrounded by, it is found, but in what is a long run of digits itself.
func TestScanFindsEveryName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.StringMatching(`[0-9a-f]{64}|[0-9a-f]{40}`).Draw(t, "name")
		text := rapid.StringN(0, 40, 100).Draw(t, "before") + d + rapid.StringN(0, 40, 100).Draw(t, "behind")
		var p pin
		p.scan(text)
		if !slices.Contains(p.names, d) {
			t.Fatalf("not found in %q", text)
		}
	})
}

// FuzzPin: no object makes the scanner fall over, and what JSON says with escapes is found.
func FuzzPin(f *testing.F) {
	f.Add([]byte(`{"work":"` + strings.Repeat("ab", 32) + `"}`))
	f.Add([]byte(`["` + strings.Repeat(`\u0061`, 64) + `", 1e999`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p pin
		_ = p.strings(bytes.NewReader(b)) // an error is an answer
		p.scan(string(b))
		for _, n := range p.names {
			if !isName(n) {
				t.Fatal(n)
			}
		}
	})
}

// TestLane: what an object of the lane names, in whatever way, stays whole; what cannot be read lets nothing go.
func TestLane(t *testing.T) {
	escaped := func(s string) string { return fmt.Sprintf(`\u%04x%s`, s[0], s[1:]) }
	for name, c := range map[string]struct {
		key     string
		body    func(work string) string
		pinned  bool
		refused string
	}{
		"a record":                {"lane/m/a.json", func(w string) string { return `{"parent":{"work":"` + w + `"}}` }, true, ""},
		"a key of the work":       {"lane/m/a.json", func(w string) string { return `["work/` + w + `/attempt/00000001/x"]` }, true, ""},
		"a name with escapes":     {"lane/m/a.json", func(w string) string { return `{"` + escaped(w) + `":1}` }, true, ""},
		"a note":                  {"lane/m/notes", func(w string) string { return "see " + w + "!" }, true, ""},
		"JSON without its name":   {"lane/m/record", func(w string) string { return `{"w":"` + w + `"}` }, true, ""},
		"data":                    {"lane/m/model.gguf", func(string) string { return "GGUF\x00\x01" }, false, ""},
		"much data":               {"lane/m/model.gguf", func(w string) string { return strings.Repeat("x", maxLane) + w }, false, ""},
		"an empty object":         {"lane/m/x", func(string) string { return "" }, false, ""},
		"half a record":           {"lane/m/a.json", func(w string) string { return `{"work":"` + w }, false, "is no JSON"},
		"half without its name":   {"lane/m/a", func(w string) string { return `{"work":"` + w }, false, "is no JSON"},
		"a record that is a note": {"lane/m/a.json", func(w string) string { return w }, false, "is no JSON"},
		"a record too large":      {"lane/m/a.json", func(string) string { return `{"` + strings.Repeat("x", maxLane) + `":1}` }, false, "bytes, of which at most"},
		"half a plan in force":    {"accepted/-", func(w string) string { return `{"plan":{"work":"` + w }, false, "is no JSON"},
		"a plan in force":         {"accepted/-", func(w string) string { return `{"plan":{"work":"` + w + `"}}` }, false, ""},
	} {
		w, b := rich(t, t.Context())
		w.put(c.key, []byte(c.body(w.works[1].id)))
		b.pass(2 * time.Hour)
		before := w.keys()
		did, err := Apply(t.Context(), w, everything)
		if r, is := errors.AsType[*Refusal](err); c.refused != "" {
			if !is || !strings.Contains(r.Text, c.refused) || !strings.Contains(r.Error(), c.key) || len(w.keys()) != len(before) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		gone := 0
		for key := range before {
			if _, there := w.keys()[key]; !there && strings.HasPrefix(key, record.WorkPrefix(w.works[1].id)) {
				gone++
			}
		}
		if (gone == 0) != c.pinned || (did.Pinned == 1) != c.pinned {
			t.Errorf("%s: %d objects went, %d works pinned", name, gone, did.Pinned)
		}
	}
}

// TestALaneElsewhere: what the store of a lane names stays as well; its plans are none of ours, and while it cannot be read
// nothing goes.
func TestALaneElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		key     string
		down    bool
		pinned  int
		refused bool
	}{
		"a record":       {key: "lane/m/v1.0.0/candidate.json", pinned: 1},
		"a work of its":  {key: "work/x", pinned: 0},
		"its own plan":   {key: "accepted/-", pinned: 0},
		"it is not read": {key: "lane/m/v1.0.0/candidate.json", down: true, refused: true},
	} {
		w, b := rich(t, t.Context())
		lane := mem.New()
		if _, err := lane.Put(t.Context(), c.key, strings.NewReader(`{"parent":"`+w.works[1].id+`"}`), bucket.IfAbsent()); err != nil {
			t.Fatal(err)
		}
		o := everything
		o.Lanes = []Store{lane}
		if c.down {
			o.Lanes = append(o.Lanes, faulty.New(lane, 1, faulty.Rule{Name: "down", Op: "list", Effect: faulty.Refuse}))
		}
		b.pass(2 * time.Hour)
		before := len(w.keys())
		did, err := Apply(t.Context(), w, o)
		if (err != nil) != c.refused || did.Pinned != c.pinned || c.refused && len(w.keys()) != before {
			t.Errorf("%s: %d pinned, %d of %d objects left, %v", name, did.Pinned, len(w.keys()), before, err)
		}
	}
}

// TestCode: a bundle goes when no work that goes on, none that finished within retention, no plan in force and no lane
// needs it, and not while a spec is unreadable.
func TestCode(t *testing.T) {
	code := record.CodeKey(specTree(1)) // of work 1, which is finished
	for name, c := range map[string]struct {
		change func(w *world, b *clocked)
		stays  bool
	}{
		"needed by nobody":      {func(*world, *clocked) {}, false},
		"needed by another":     {func(w *world, _ *clocked) { w.add(3) }, true},
		"named by a plan":       {func(w *world, _ *clocked) { w.put("accepted/a", []byte(`{"code":"`+specTree(1)+`"}`)) }, true},
		"named by a lane":       {func(w *world, _ *clocked) { w.put("lane/m/x.json", []byte(`["`+w.works[1].id+`"]`)) }, true},
		"another spec is bad":   {func(w *world, _ *clocked) { w.put(record.SpecKey(w.works[0].id), []byte("{")) }, true},
		"another spec is gone":  {func(w *world, _ *clocked) { must(t, w.Delete(w.ctx, record.SpecKey(w.works[0].id))) }, false},
		"its work has no lease": {func(w *world, _ *clocked) { must(t, w.Delete(w.ctx, record.WitnessKey(w.works[1].id))) }, true},
		"uploaded again":        {func(w *world, _ *clocked) { w.put(code, []byte("code")) }, true},
		"of another name":       {func(w *world, _ *clocked) { w.put("code/readme", []byte("x")) }, false},
	} {
		w, b := rich(t, t.Context())
		if c.change(w, b); name != "uploaded again" {
			b.pass(2 * time.Hour)
		}
		did, err := Apply(t.Context(), w, everything)
		if err != nil || w.has(code) != c.stays || !w.has(record.CodeKey(specTree(0))) && name != "another spec is gone" {
			t.Errorf("%s: %v, %+v", name, err, did.Totals)
		}
		if name == "of another name" && !w.has("code/readme") {
			t.Error("what is no bundle went")
		}
	}
}

func specTree(i int) string { return fmt.Sprintf("%040x", 0xc0de+i%2) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestLeftAlone: a work that cannot be judged keeps every byte, is named, and keeps nobody else from being tidied.
func TestLeftAlone(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(w *world, work string)
		rule  faulty.Rule
		why   string
	}{
		"witness deleted":     {spoil: func(w *world, work string) { must(t, w.Delete(w.ctx, record.WitnessKey(work))) }, why: "it has no witness"},
		"witness is half":     {spoil: func(w *world, work string) { w.put(record.WitnessKey(work), []byte("{")) }, why: "its witness cannot be read"},
		"witness unanswered":  {rule: faulty.Rule{Op: "get", Key: "witness/%s", Code: bucket.Unknown}, why: "the store did not answer for its witness"},
		"pointer to nothing":  {spoil: func(w *world, work string) { must(t, w.Delete(w.ctx, record.MilestoneManifestKey(work, 2, 2))) }, why: "work/"},
		"ancestor is lost":    {spoil: func(w *world, work string) { must(t, w.Delete(w.ctx, record.MilestoneManifestKey(work, 2, 1))) }, why: "work/"},
		"pointer changed":     {spoil: func(w *world, work string) { w.put(record.MilestoneManifestKey(work, 2, 2), []byte("{}")) }, why: "work/"},
		"line unanswered":     {rule: faulty.Rule{Op: "get", Key: "work/%s/attempt/00000002/milestone/*", Code: bucket.Throttled}, why: "the store did not answer for its line"},
		"trim is damaged":     {spoil: func(w *world, work string) { w.put(record.TrimKey(work), []byte("{")) }, why: "trim/"},
		"trim is not written": {rule: faulty.Rule{Op: "put", Key: "trim/%s", Code: bucket.Denied}, why: "note what retention lets go"},
	} {
		w, b := rich(t, t.Context())
		work := w.works[0].id
		if c.spoil != nil {
			c.spoil(w, work)
		}
		b.pass(2 * time.Hour)
		before := w.keys()
		f := faulty.New(w.Bucket, 1)
		if c.rule.Op != "" {
			c.rule.Key = strings.ReplaceAll(c.rule.Key, "%s", work)
			f.Add(c.rule)
		}
		o := everything
		o.Milestones = 1
		did, err := Apply(t.Context(), f, o)
		unnoted := strings.HasPrefix(name, "trim")
		if stays, is := errors.AsType[*Incomplete](err); unnoted && (!is || stays.Failed != 1) || !unnoted && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(did.Left) != 1 || did.Left[0].Work != work || !strings.HasPrefix(did.Left[0].Why, c.why) {
			t.Errorf("%s: left %+v", name, did.Left)
		}
		now := w.keys()
		for key := range before {
			if _, there := now[key]; !there && strings.HasPrefix(key, record.WorkPrefix(work)) && !(unnoted && free(work, key)) {
				t.Errorf("%s: %s went", name, key)
			}
		}
		if did.Sum().Objects < 20 {
			t.Errorf("%s: the others were not tidied: %+v", name, did.Totals)
		}
	}
}

// free reports what goes of the first work of a rich world without a note: what its first attempt uploaded and never named,
// the result that finished nothing, logs.
func free(work, key string) bool {
	rest, _ := strings.CutPrefix(key, record.AttemptsPrefix(work))
	for _, of := range []string{"00000001/milestone/00000003/", "00000001/milestone/00000004/", "00000002/result/", "00000001/log/", "00000001/events/"} {
		if strings.HasPrefix(rest, of) {
			return true
		}
	}
	return false
}

// TestStoreIsGone: a store that answers for nothing ends the run, instead of a report that says that all is well.
func TestStoreIsGone(t *testing.T) {
	b := newClocked(mem.New())
	w := &world{Bucket: b, pass: b.pass, t: t, ctx: t.Context()}
	for i := range mostSilent + 5 {
		w.advance(w.capture(w.add(i)))
	}
	if _, err := Apply(t.Context(), faulty.New(w.Bucket, 1, faulty.Rule{Op: "get", Code: bucket.Unknown}), everything); err == nil {
		t.Error("no witness could be read, and no error was said")
	}
	if _, err := Plan(t.Context(), faulty.New(w.Bucket, 1, faulty.Rule{Op: "list", Code: bucket.Unknown}), everything); err == nil {
		t.Error("nothing could be listed, and no error was said")
	}
}

// TestCost: a look at a store costs a list for each 1,000 objects and a few gets for each work, whatever its age.
func TestCost(t *testing.T) {
	for _, attempts := range []int{1, 100} {
		b := newClocked(mem.New())
		w := &world{Bucket: b, pass: b.pass, t: t, ctx: t.Context()}
		for i := range 5 {
			j := w.add(i)
			for range attempts {
				h := w.capture(j)
				w.advance(h)
				w.advance(h)
				w.revoke(h)
			}
		}
		b.pass(2 * time.Hour)
		c := counting.New(w.Bucket)
		got, err := Plan(t.Context(), c, Options{Milestones: 3})
		if err != nil {
			t.Fatal(err)
		}
		n := c.Counts()
		objects := len(w.keys())
		if n.Requests() != int64(got.Requests) || got.Requests > objects/1000+6+6*len(w.works) || n.Put+n.Delete > 0 {
			t.Errorf("%d objects, reported %d requests, counted %s", objects, got.Requests, n)
		}
	}
}

// TestAuditBeside: a deep check at every delete of a gc sees nothing wrong, and neither does one that a gc overtakes.
func TestAuditBeside(t *testing.T) {
	w, _ := rich(t, t.Context())
	b := &hooked{Bucket: w.Bucket}
	b.before = func() { w.clean("between two deletes") }
	o := everything
	o.Max = 1
	for did := (Report{More: true}); did.More; {
		var err error
		if did, err = Apply(t.Context(), b, o); err != nil {
			t.Fatal(err)
		}
	}
	for n := 1; n < 400; n += 3 {
		w, _ := rich(t, t.Context())
		c := &overtaken{Bucket: w.Bucket, at: n, do: func() {
			if _, err := Apply(t.Context(), w, everything); err != nil {
				t.Error(err)
			}
		}}
		got, err := audit.Check(t.Context(), c, audit.Options{Deep: true})
		if err != nil || !got.OK() {
			t.Fatalf("a gc before request %d of a check: %v %+v", n, err, got.Findings)
		}
		if c.n < n {
			break
		}
	}
}

// hooked does something before each delete.
type hooked struct {
	bucket.Bucket
	before func()
}

// overtaken is the way of a check to its store, which something overtakes at one request.
type overtaken struct {
	bucket.Bucket
	n, at int
	do    func()
}

func (o *overtaken) step() {
	if o.n++; o.n == o.at {
		o.do()
	}
}

// TestRepeats: a report of equal stores is equal, and the reasons add up.
func TestRepeats(t *testing.T) {
	w, _ := rich(t, t.Context())
	one, err := Plan(t.Context(), w, everything)
	must(t, err)
	two, err := Run(t.Context(), w, Options{Finished: everything.Finished, Logs: everything.Logs, Grace: everything.Grace})
	must(t, err)
	if diff := cmp.Diff(one, two); diff != "" {
		t.Error(diff)
	}
	sums := map[Reason]int{}
	for _, it := range one.Items {
		sums[it.Reason] += it.Objects
	}
	for _, total := range one.Totals {
		if sums[total.Reason] != total.Objects {
			t.Errorf("%+v, and its items have %d objects", total, sums[total.Reason])
		}
	}
	order := slices.Collect(func(yield func(Reason) bool) {
		for _, total := range one.Totals {
			if !yield(total.Reason) {
				return
			}
		}
	})
	if diff := cmp.Diff(slices.Sorted(maps.Keys(sums)), slices.Sorted(slices.Values(order))); diff != "" || !slices.IsSortedFunc(order, func(a, b Reason) int {
		return slices.Index(Reasons(), a) - slices.Index(Reasons(), b)
	}) {
		t.Error(order, diff)
	}
	if seen, err := witness.Read(t.Context(), w, w.works[0].id); err != nil || seen.Record.State != witness.Yielded {
		t.Error(seen, err)
	}
}
