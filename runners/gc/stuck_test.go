package gc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/dir"
	"github.com/headway-run/headway/runners/bucket/faulty"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
)

// onDisk is a rich world in a folder, all of it as old as gc wants it, with more files that no headway wrote.
func onDisk(t *testing.T, more func(w *world) []string) (*world, string) {
	t.Helper()
	at := t.TempDir()
	b, err := dir.Open(at, dir.Options{Create: true})
	must(t, err)
	w := &world{Bucket: b, pass: func(time.Duration) {}, t: t, ctx: t.Context()}
	w.fill()
	for _, key := range more(w) {
		name := filepath.Join(at, "objects", filepath.FromSlash(key))
		must(t, os.MkdirAll(filepath.Dir(name), 0o777))
		must(t, os.WriteFile(name, []byte("x"), 0o666))
	}
	old := time.Now().Add(-48 * time.Hour)
	must(t, filepath.WalkDir(filepath.Join(at, "objects"), func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return os.Chtimes(p, old, old)
	}))
	return w, at
}

// TestOddKey: a key that no store deletes keeps nothing else, is named in full, is no success, and a dry run does not
// promise it.
func TestOddKey(t *testing.T) {
	long := strings.Repeat("long", 40) + "\x01"
	var odd []string
	w, _ := onDisk(t, func(w *world) []string {
		work := w.works[0].id
		odd = []string{record.MilestonePrefix(work, 1, 3) + "a\x01", record.MilestonePrefix(work, 1, 4) + long, record.ResultPrefix(work, 1) + "\x02"}
		return odd
	})
	planned, err := Plan(t.Context(), w, everything)
	must(t, err)
	before := w.keys()
	did, err := Apply(t.Context(), w, everything)
	stays, is := errors.AsType[*Incomplete](err)
	if !is || stays.Failed != len(odd) || did.Failed != len(odd) || !bucket.Is(err, bucket.BadKey) {
		t.Fatalf("%v, %+v", err, did)
	}
	if did.Sum() != planned.Sum() || did.Sum().Objects < 30 {
		t.Errorf("promised %+v, did %+v", planned.Sum(), did.Sum())
	}
	after := w.keys()
	for _, key := range odd {
		if _, there := after[key]; !there {
			t.Errorf("%q went", key)
		}
		for when, rep := range map[string]Report{"look": planned, "run": did} {
			named := false
			for _, l := range rep.Left {
				named = named || l.Work == w.works[0].id && strings.Contains(l.Why, shown(key))
			}
			if !named || strings.HasSuffix(shown(key), "...") {
				t.Errorf("%s: %q is not named in full: %+v", when, key, rep.Left)
			}
		}
	}
	for key := range before {
		if strings.HasPrefix(key, record.MilestonePrefix(w.works[0].id, 1, 3)) && key != odd[0] {
			if _, there := after[key]; there {
				t.Errorf("%q stays", key)
			}
		}
	}
	again, err := Apply(t.Context(), w, everything)
	if _, is := errors.AsType[*Incomplete](err); !is || again.Sum().Objects != 0 {
		t.Errorf("the next run: %v %+v", err, again.Sum())
	}
	for _, j := range w.works {
		w.manifests(j)
	}
}

// TestRefusedDeletes: what the store does not let go keeps no other work; no file goes whose manifest stays.
func TestRefusedDeletes(t *testing.T) {
	w, _ := rich(t, t.Context())
	whole, err := Plan(t.Context(), w, everything)
	must(t, err)
	work := w.works[0].id
	f := faulty.New(w.Bucket, 1, faulty.Rule{Op: "delete", Key: "work/" + work + "/attempt/00000001/*", Code: bucket.Denied})
	did, err := Apply(t.Context(), f, everything)
	if stays, is := errors.AsType[*Incomplete](err); !is || stays.Failed == 0 || did.Failed != stays.Failed {
		t.Fatalf("%v %+v", err, did)
	}
	for _, j := range w.works {
		w.manifests(j)
	}
	w.clean("after refusals")
	if got := did.Sum().Objects; got < whole.Sum().Objects/2 || got >= whole.Sum().Objects {
		t.Errorf("%d of %d objects went", got, whole.Sum().Objects)
	}
	rest, err := Apply(t.Context(), w, everything)
	if err != nil || rest.Sum().Objects+did.Sum().Objects != whole.Sum().Objects {
		t.Errorf("%v: %+v, then %+v, of %+v", err, did.Sum(), rest.Sum(), whole.Sum())
	}
}

// TestNothingGoes: a store that lets nothing go ends the run with an error soon.
func TestNothingGoes(t *testing.T) {
	w, _ := rich(t, t.Context())
	b := &refuses{Bucket: w.Bucket}
	if did, err := Apply(t.Context(), b, everything); !bucket.Is(err, bucket.Denied) || did.Sum().Objects != 0 || b.n.Load() > (mostSilent+1)*lanes {
		t.Errorf("%v %+v after %d deletes", err, did, b.n.Load())
	}
}

type refuses struct {
	bucket.Bucket
	n atomic.Int64
}

func (r *refuses) Delete(_ context.Context, key string) error {
	r.n.Add(1)
	return &bucket.Error{Op: "delete", Key: key, Code: bucket.Denied}
}

// tight is a store on a full disk: it takes nothing until room has been made by deletes.
type tight struct {
	bucket.Bucket
	mu   sync.Mutex
	room int // deletes until there is some
	code bucket.Code
}

func (d *tight) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	d.mu.Lock()
	full := d.room > 0
	d.mu.Unlock()
	if full {
		return "", &bucket.Error{Op: "put", Key: key, Code: d.code}
	}
	return d.Bucket.Put(ctx, key, body, c)
}

func (d *tight) Delete(ctx context.Context, key string) error {
	err := d.Bucket.Delete(ctx, key)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room--
	return err
}

// TestFullDisk: on a full store what needs no note goes first, of every work and of the code; then there is room for the
// notes, and one run ends where it ends on a store that has room.
func TestFullDisk(t *testing.T) {
	w, _ := rich(t, t.Context())
	whole, err := Apply(t.Context(), w, everything)
	must(t, err)
	want := after(w)
	w, _ = rich(t, t.Context())
	planned, err := Plan(t.Context(), w, everything)
	must(t, err)
	noteless := 0
	for _, it := range planned.Items {
		switch it.Reason {
		case Unnamed, Partial, Launches, Logs, Code:
			noteless += it.Objects
		case Behind, Finished:
		}
	}
	did, err := Apply(t.Context(), &tight{Bucket: w.Bucket, room: noteless / 2, code: bucket.Full}, everything)
	if err != nil || did.Failed != 0 || did.Sum() != whole.Sum() {
		t.Fatalf("%v %+v, want %+v", err, did, whole.Sum())
	}
	if did.Works != whole.Works || did.Objects != whole.Objects || did.Young != whole.Young {
		t.Errorf("%+v, want the counts of %+v", did, whole)
	}
	if diff := cmp.Diff(want, after(w)); diff != "" {
		t.Errorf("(-with room +full):\n%s", diff)
	}
	w.clean("after it")
}

// TestNoNotes: a store that takes no note loses what needs none, in all works, and that is no success.
func TestNoNotes(t *testing.T) {
	for _, code := range []bucket.Code{bucket.Full, bucket.Denied} {
		b := newClocked(mem.New())
		w := &world{Bucket: b, pass: b.pass, t: t, ctx: t.Context()}
		for i := range 2 * mostSilent {
			h := w.capture(w.add(i))
			w.advance(h)
			w.advance(h)
			w.log(h, 0)
			w.upload(h, true)
			w.revoke(h)
		}
		b.pass(2 * time.Hour)
		planned, err := Plan(t.Context(), w, everything)
		must(t, err)
		did, err := Apply(t.Context(), &tight{Bucket: w.Bucket, room: 1 << 30, code: code}, everything)
		stays, is := errors.AsType[*Incomplete](err)
		if !is || !bucket.Is(err, code) || stays.Failed != len(w.works) || len(did.Left) != len(w.works) || did.More {
			t.Fatalf("%s: %v, %d left of %d works", code, err, len(did.Left), len(w.works))
		}
		of := map[Reason]int{}
		for _, total := range planned.Totals {
			of[total.Reason] = total.Objects
		}
		for _, total := range did.Totals {
			if total.Reason == Behind || total.Reason == Finished || total.Objects != of[total.Reason] {
				t.Errorf("%s: %+v went, %d were planned", code, total, of[total.Reason])
			}
		}
		if did.Sum().Objects < 100 {
			t.Errorf("%s: only %+v went", code, did.Sum())
		}
		w.clean("without notes")
	}
}

// TestOddPin: a key among the pins that no store reads lets nothing go, and is named in full.
func TestOddPin(t *testing.T) {
	for _, key := range []string{"accepted/a\x01", "lane/m/" + strings.Repeat("long", 50) + "\x02", "lane/\xff\xfe"} {
		w, _ := onDisk(t, func(*world) []string { return []string{key} })
		before := len(w.keys())
		for _, do := range []bool{false, true} {
			o := everything
			o.Apply = do
			_, err := Run(t.Context(), w, o)
			if r, is := errors.AsType[*Refusal](err); !is || r.Key != strconv.QuoteToASCII(key) || !strings.Contains(r.Text, "cannot be read (") {
				t.Errorf("%q, apply %v: %v", key, do, err)
			}
		}
		if len(w.keys()) != before {
			t.Errorf("%q: something went", key)
		}
	}
}

// TestPlanAcceptedMeanwhile: a plan that is accepted right before any request of a run, or while a delete's answer is
// out, keeps its bundle, but for the requests that stand between the last look at the plans and the delete.
func TestPlanAcceptedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		code := record.CodeKey(specTree(1))
		lost, n := 0, 1
		for ; ; n++ {
			w, _ := rich(t, t.Context())
			c := &everyRequest{Bucket: w.Bucket, at: n, do: func() { w.put("accepted/-", []byte(`{"code":"`+specTree(1)+`"}`)) }}
			_, err := Apply(t.Context(), c, everything)
			must(t, err)
			if int(c.n.Load()) < n {
				break
			}
			if !w.has(code) {
				lost++
				if !strings.HasPrefix(c.key, "code/") {
					t.Errorf("a plan accepted before request %d (%s) loses its code", n, c.key)
				}
			}
		}
		if lost > 1 || n < 50 { // before the delete itself
			t.Errorf("the code went with %d of %d requests", lost, n)
		}
	})
}

// everyRequest does something before one of the requests that pass.
type everyRequest struct {
	bucket.Bucket
	n   atomic.Int64
	at  int
	key string
	do  func()
}

func (e *everyRequest) step(key string) {
	if int(e.n.Add(1)) == e.at {
		e.key = key
		e.do()
	}
}

func (e *everyRequest) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	e.step(key)
	return e.Bucket.Get(ctx, key, r)
}

func (e *everyRequest) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	e.step(prefix)
	return e.Bucket.List(ctx, prefix, after, limit)
}

func (e *everyRequest) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	e.step(key)
	return e.Bucket.Put(ctx, key, body, c)
}

func (e *everyRequest) Delete(ctx context.Context, key string) error {
	e.step(key)
	return e.Bucket.Delete(ctx, key)
}
