package reconcile_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/faulty"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// results is a store that counts what is asked of results, and whose listings of them lag: they don't show some keys.
type results struct {
	bucket.Bucket
	hides       []string // how the keys end that no listing shows
	gets, lists atomic.Int64
}

func (s *results) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	if strings.Contains(key, "/result/") {
		s.gets.Add(1)
	}
	return s.Bucket.Get(ctx, key, r)
}

func (s *results) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	p, err := s.Bucket.List(ctx, prefix, after, limit)
	if err == nil && strings.Contains(prefix, "/result/") {
		s.lists.Add(1)
		p.Items = slices.DeleteFunc(slices.Clone(p.Items), func(it bucket.Info) bool {
			return slices.ContainsFunc(s.hides, func(end string) bool { return strings.HasSuffix(it.Key, end) })
		})
	}
	return p, err
}

func (r *rig) put(key string, body []byte) {
	r.t.Helper()
	if _, err := r.store.Put(r.t.Context(), key, bytes.NewReader(body), bucket.Always()); err != nil {
		r.t.Fatal(err)
	}
}

// finished writes a work that was finished by its first attempt, with n files of one byte, as change leaves the bytes of its
// manifest; what is lost of it was never written, and what is short is empty.
func (r *rig) finished(w plan.Digest, n int, change func(*record.Manifest) []byte, lost, short string) {
	r.t.Helper()
	m := &record.Manifest{Protocol: 1, Work: string(w), Attempt: 1, Step: 100}
	for i := range n {
		f := record.File{Path: fmt.Sprintf("part-%04d", i), Size: 1, SHA256: record.Hash([]byte("x"))}
		m.Files = append(m.Files, f)
		switch f.Path {
		case lost:
		case short:
			r.put(record.ResultPrefix(string(w), 1)+f.Path, nil)
		default:
			r.put(record.ResultPrefix(string(w), 1)+f.Path, []byte("x"))
		}
	}
	body := change(m)
	if body != nil {
		r.put(record.ResultManifestKey(string(w), 1), body)
	}
	lease, err := record.Encode(witness.Record{Protocol: 1, Work: string(w), Rev: 3, Write: strings.Repeat("0", 32), Attempt: 1, Dispatch: 1, State: witness.Finished,
		Lease: witness.Lease{Seconds: 30, K: 5, StepS: 1}, Progress: witness.Progress{Step: 100},
		Finished: &witness.FinishedPointer{Attempt: 1, Manifest: record.ResultManifestKey(string(w), 1), SHA256: record.Hash(body)}})
	if err != nil {
		r.t.Fatal(err)
	}
	r.put(record.WitnessKey(string(w)), lease)
}

func encoded(change func(*record.Manifest)) func(*record.Manifest) []byte {
	return func(m *record.Manifest) []byte {
		change(m)
		b, _ := record.Encode(m)
		return b
	}
}

// TestWhatAResultLacks: what a look at a result finds, and what it asks for: up to 12 files one by one, more by listings, and what
// a listing does not show by name. No file is opened twice.
func TestWhatAResultLacks(t *testing.T) {
	sound := encoded(func(*record.Manifest) {})
	for name, c := range map[string]struct {
		files       int
		manifest    func(*record.Manifest) []byte
		lost, short string
		hides       []string
		want        string // how the clause begins; "": all is there
		gets, lists int64
	}{
		"no files":                     {0, sound, "", "", nil, "", 1, 0},
		"12 files":                     {12, sound, "", "", nil, "", 13, 0},
		"12 files, one lost":           {12, sound, "part-0011", "", nil, "part-0011 is not in the store", 13, 0},
		"13 files":                     {13, sound, "", "", nil, "", 1, 1},
		"13 files, one lost":           {13, sound, "part-0012", "", nil, "part-0012 is not in the store", 2, 1},
		"13 files, one short":          {13, sound, "", "part-0000", nil, "part-0000 has 0 bytes, its manifest says 1", 2, 1},
		"13 files, two listed late":    {13, sound, "", "", []string{"part-0003", "part-0012"}, "", 3, 1},
		"one listed late, one lost":    {13, sound, "part-0004", "", []string{"part-0003"}, "part-0004 is not in the store", 3, 1},
		"more files than one page has": {1001, sound, "", "", nil, "", 1, 2},
		"the last of them lost":        {1002, sound, "part-1001", "", nil, "part-1001 is not in the store", 2, 2},
		"no manifest":                  {1, func(*record.Manifest) []byte { return nil }, "", "", nil, "its manifest is not in the store", 1, 0},
		"of another work":              {1, encoded(func(m *record.Manifest) { m.Work = strings.Repeat("0", 64) }), "", "", nil, "its manifest cannot be read", 1, 0},
		"no JSON":                      {1, func(*record.Manifest) []byte { return []byte("{") }, "", "", nil, "its manifest cannot be read", 1, 0},
		"longer than any":              {1, func(*record.Manifest) []byte { return make([]byte, record.MaxManifest+1) }, "", "", nil, "its manifest is not the one that its lease names", 1, 0},
		"a path upwards":               {1, encoded(func(m *record.Manifest) { m.Files[0].Path = "../../x" }), "", "", nil, "its manifest lists ../../x, which is no path", 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{})
				j := job("job")
				r.finished(j.Work, c.files, c.manifest, c.lost, c.short)
				s := &results{Bucket: r.store, hides: c.hides}
				rec := r.reconciler(func(c *reconcile.Config) { c.Bucket = s })
				for range 2 { // the second pass asks for nothing
					got := r.pass(rec, r.desired("c1", j)).States[j.Work]
					lacks := strings.HasPrefix(got.Reason, "finished by attempt 1, but its result is not whole: "+c.want)
					if state := got.State; lacks != (c.want != "") || lacks != (state == plan.StateUnknown) || !lacks && state != plan.StateFinished {
						t.Errorf("%+v, want %q", got, c.want)
					}
				}
				if gets, lists := s.gets.Load(), s.lists.Load(); gets != c.gets || lists != c.lists {
					t.Errorf("%d gets and %d lists of the result, want %d and %d", gets, lists, c.gets, c.lists)
				}
			})
		})
	}
}

// TestAManifestThatIsNotTheLeases: another manifest lies where the lease names one.
func TestAManifestThatIsNotTheLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{})
		j := job("job")
		r.finished(j.Work, 1, encoded(func(*record.Manifest) {}), "", "")
		r.put(record.ResultManifestKey(string(j.Work), 1), []byte(`{"protocol":1,"work":"`+string(j.Work)+`","attempt":1,"files":[]}`))
		if got := r.pass(r.reconciler(nil), r.desired("c1", j)).States[j.Work]; got.State != plan.StateUnknown || !strings.Contains(got.Reason, "its manifest is not the one that its lease names") {
			t.Errorf("%+v", got)
		}
	})
}

// TestAStoreThatFailsLosesNoResult: what the store does not answer for is not known, and never called lost; once it answers, the
// work is finished.
func TestAStoreThatFailsLosesNoResult(t *testing.T) {
	for name, rule := range map[string]faulty.Rule{
		"the manifest": {Op: "get", Key: "*/result/*manifest.json"},
		"the listing":  {Op: "list", Key: "*/result/*"},
		"a file":       {Op: "get", Key: "*/result/*part-0003"},
	} {
		for _, code := range []bucket.Code{bucket.Throttled, bucket.Unknown, bucket.Denied} {
			t.Run(fmt.Sprint(name, " ", code), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, rigConfig{})
					j := job("job")
					files := 13
					if name == "a file" {
						files = 12
					}
					r.finished(j.Work, files, encoded(func(*record.Manifest) {}), "", "")
					rule.Name, rule.Effect, rule.Code = "down", faulty.Refuse, code
					f := faulty.New(r.store, 1, rule)
					rec := r.reconciler(func(c *reconcile.Config) { c.Bucket = f })
					d := r.desired("c1", j)
					got := r.pass(rec, d).States[j.Work]
					if got.State != plan.StateUnknown || !strings.Contains(got.Reason, "look for its result: ") || strings.Contains(got.Reason, "not whole") || f.Fired("down") == 0 {
						t.Errorf("%+v", got)
					}
					f.Clear()
					r.until(rec, d, time.Hour, allFinished)
					if n := r.claims(j.Work); n != 0 {
						t.Errorf("%d launches of what is finished", n)
					}
				})
			})
		}
	}
}

// TestOldFinishesAreLookedAtBitByBit: of what was finished before this process came, a pass looks for 256 results. The rest is
// called finished until a later pass has looked.
func TestOldFinishesAreLookedAtBitByBit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{})
		jobs := numbered(257)
		for _, j := range jobs {
			r.finished(j.Work, 0, func(*record.Manifest) []byte { return nil }, "", "")
		}
		s := &results{Bucket: r.store}
		rec, d := r.reconciler(func(c *reconcile.Config) { c.Bucket = s }), r.desired("c1", jobs...)
		for pass, want := range []int64{256, 257, 257} {
			rep, lost := r.pass(rec, d), int64(0)
			for _, st := range rep.States {
				if st.State == plan.StateUnknown {
					lost++
				} else if st.State != plan.StateFinished {
					t.Errorf("%+v", st)
				}
			}
			if n := s.gets.Load(); n != want || lost != want {
				t.Errorf("pass %d: %d results were looked for, and %d are lost, want %d", pass+1, n, lost, want)
			}
		}
	})
}
