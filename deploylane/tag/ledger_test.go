package tag

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/counting"
	"github.com/headway-run/headway/runners/bucket/faulty"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
)

// scene is a repository in memory: a signature is the name of who signed.
type scene struct {
	mu   sync.Mutex
	refs map[string]string
	raws map[string]string
}

func newScene() *scene { return &scene{refs: map[string]string{}, raws: map[string]string{}} }

// push points a release tag at an object; text makes one object differ from another.
func (s *scene) push(t interface{ Fatal(...any) }, version, text string) {
	m := releaseMessage(version)
	m.Subject, m.PlanSHA256 = text, record.Hash([]byte("plan"))
	body, err := m.Text()
	if err != nil {
		t.Fatal(err)
	}
	name := "release/digits/" + version
	raw := fmt.Sprintf("object %s\ntype commit\ntag %s\ntagger A <a@x> 1 +0000\n\n%s-----BEGIN SSH SIGNATURE-----\nann\n-----END SSH SIGNATURE-----\n", id("c"), name, body)
	object := record.Hash([]byte(raw))[:40]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refs[refTags+name], s.raws[object] = object, raw
}

func (s *scene) drop(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.refs, refTags+"release/digits/"+version)
}

// Tags implements Git.
func (s *scene) Tags(context.Context) (out []Ref, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.refs)) {
		out = append(out, Ref{name, s.refs[name]})
	}
	return out, nil
}

// Tip implements Git.
func (s *scene) Tip(context.Context) (string, error) { return id("e"), nil }

// Object implements Git.
func (s *scene) Object(_ context.Context, r Ref) (string, []byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return "tag", []byte(s.raws[r.Object]), nil
}

// Descends implements Git.
func (s *scene) Descends(context.Context, string, string) (bool, error) { return true, nil }

// File implements Git.
func (s *scene) File(_ context.Context, _, path string, _ int64) ([]byte, error) {
	switch path {
	case PolicyFile:
		return []byte(policyText), nil
	case planPath:
		return []byte("plan"), nil
	}
	return nil, nil
}

// LastChange implements Git.
func (s *scene) LastChange(context.Context, string, string) (Change, error) {
	return Change{Commit: id("f"), Signature: []byte("root")}, nil
}

func (s *scene) watch(store bucket.Bucket) *Watch {
	return &Watch{Git: s, Store: store, Seal: testSeal(), Repo: "git.example.com/team/models", Roots: []string{"root"},
		Facts: &fixedFacts{candidates: map[string]Candidate{hash("2") + "/3": {Generation: 1, Manifest: hash("4")}}},
		Keys: Keys{Root: func(_, signature []byte) (string, error) { return string(signature), nil },
			Signers: func([]byte) (Verify, error) {
				return func([]byte, []byte, time.Time) (string, string, error) { return "ann@example.com", "SHA256:ann", nil }, nil
			}}}
}

func testSeal() Seal {
	return Seal{Key: ed25519.NewKeyFromSeed([]byte(strings.Repeat("k", ed25519.SeedSize)))}
}

// whole checks a ledger as a stranger finds it: a chain, each tag object judged once, one release of a version, versions
// in order.
func whole(store bucket.Bucket) ([]Entry, error) {
	l := OpenLedger(store, testSeal(), "digits")
	if err := l.Read(context.Background()); err != nil {
		return nil, err
	}
	verdicts, released := map[string]bool{}, map[string]bool{}
	var last Version
	for i, e := range l.Entries() {
		what := e.Ref + " " + e.Object
		if e.Code == TagDeleted {
			continue
		}
		if verdicts[what] {
			return nil, fmt.Errorf("entry %d: %s is judged twice", i+1, what)
		}
		verdicts[what] = true
		if e.Code != Accepted {
			continue
		}
		if v := e.Name().Version; released[e.Ref] || v.Compare(last) <= 0 {
			return nil, fmt.Errorf("entry %d: %s is accepted after %s", i+1, e.Ref, last)
		}
		released[e.Ref], last = true, e.Name().Version
	}
	return l.Entries(), nil
}

// TestTwoLanesOneLedger: two lanes look at a repository whose tags come, move and go, over a store that refuses, loses
// answers, sends twice, cuts bodies short and lists late. The ledger stays one chain with one verdict for each tag object, what
// was read once stays, and in good weather both lanes have all of it.
func TestTwoLanesOneLedger(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		inner, s := mem.New(), newScene()
		var lanes [2]*Watch
		var stores [2]*faulty.Bucket
		for i := range lanes {
			stores[i] = faulty.New(inner, rapid.Uint64().Draw(rt, "seed"),
				faulty.Rule{Op: "put", Probability: 0.15, Effect: faulty.Lose}, faulty.Rule{Op: "put", Probability: 0.1, Effect: faulty.Twice},
				faulty.Rule{Op: "put", Probability: 0.1, Effect: faulty.Refuse, Code: bucket.Raced}, faulty.Rule{Probability: 0.1, Effect: faulty.Refuse},
				faulty.Rule{Op: "get", Probability: 0.1, Effect: faulty.Truncate}, faulty.Rule{Op: "list", Probability: 0.2, Effect: faulty.Lag})
			lanes[i] = s.watch(stores[i])
		}
		var seen []Entry
		look := func(i int) error {
			l, err := lanes[i].Look(context.Background(), time.Unix(1_780_000_000, 0))
			if err != nil {
				return err
			}
			for _, m := range l.Models {
				if err := errors.Join(m.Trouble...); err != nil {
					return err
				}
			}
			return nil
		}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			version := rapid.SampledFrom([]string{"v1.0.0", "v1.0.1", "v1.1.0", "v1.1.0-rc.1"}).Draw(rt, "version")
			switch rapid.IntRange(0, 4).Draw(rt, "step") {
			case 0, 1:
				s.push(rt, version, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "object"))
			case 2:
				s.drop(version)
			default:
				var group sync.WaitGroup
				for i := range lanes {
					group.Go(func() {
						_ = look(i) // trouble is what the store is for here; what was written is checked below
					})
				}
				group.Wait()
			}
			now, err := whole(inner)
			if err != nil {
				rt.Fatal(err)
			}
			if len(now) < len(seen) || len(seen) > 0 && !cmp.Equal(seen, now[:len(seen)]) {
				rt.Fatalf("what was written once is no longer there:\n%s", cmp.Diff(seen, now))
			}
			seen = now
		}
		stores[0].Clear()
		stores[1].Clear()
		if err := errors.Join(look(0), look(1), look(0)); err != nil {
			rt.Fatalf("in good weather: %v", err)
		}
		now, err := whole(inner)
		if err != nil {
			rt.Fatal(err)
		}
		for i, w := range lanes {
			if l := w.ledgers["digits"]; len(now) > 0 && !cmp.Equal(now, l.Entries()) {
				rt.Fatalf("lane %d has another ledger:\n%s", i, cmp.Diff(now, l.Entries()))
			}
		}
		refs, _ := s.Tags(context.Background())
		for _, r := range refs {
			if !slices.ContainsFunc(now, func(e Entry) bool { return e.Ref == r.Name && e.Object == r.Object && e.Code != TagDeleted }) {
				rt.Fatalf("%s was never judged", r.Name)
			}
		}
	})
}

// TestAHeldEntryLandsLate: the answer to a verdict is lost and the verdict lands after another lane's, or before it.
func TestAHeldEntryLandsLate(t *testing.T) {
	for _, first := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			inner, s, release := mem.New(), newScene(), make(chan struct{})
			s.push(t, "v1.0.0", "a")
			slow := s.watch(faulty.New(inner, 1, faulty.Rule{Op: "put", Times: 1, Effect: faulty.Hold, Release: release}))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if l, err := slow.Look(ctx, time.Now()); err != nil || len(l.Models[0].Trouble) != 1 {
				t.Fatalf("the first look: %+v, %v", l, err)
			}
			land := func() {
				close(release)
				synctest.Wait()
			}
			if first {
				land()
			}
			for _, w := range []*Watch{s.watch(inner), slow} {
				if l, err := w.Look(t.Context(), time.Now()); err != nil || len(l.Models[0].Trouble) > 0 || Release(l.Models[0].Entries, "v1.0.0") == nil {
					t.Fatalf("%+v, %v", l, err)
				}
			}
			if !first {
				land()
			}
			if now, err := whole(inner); err != nil || len(now) != 1 {
				t.Errorf("%d entries, %v", len(now), err)
			}
		})
	}
}

// TestAnEditedLedgerStops: an entry that was changed, removed, put in or copied from another model is found by whoever
// reads, and nothing is judged behind it.
func TestAnEditedLedgerStops(t *testing.T) {
	for name, edit := range map[string]func(t *testing.T, b bucket.Bucket, texts []string){
		"a verdict was turned": func(t *testing.T, b bucket.Bucket, texts []string) {
			write(t, b, 1, strings.Replace(texts[0], "release of digits", "release of DIGITS", 1))
		},
		"the last verdict was turned": func(t *testing.T, b bucket.Bucket, texts []string) {
			write(t, b, 3, strings.Replace(texts[2], `"Accepted"`, `"Unsigned"`, 1))
		},
		"one more by another lane": func(t *testing.T, b bucket.Bucket, texts []string) {
			e, _ := decode([]byte(texts[2]))
			l := OpenLedger(b, Seal{Key: ed25519.NewKeyFromSeed([]byte(strings.Repeat("x", ed25519.SeedSize)))}, "digits")
			l.entries = []Entry{{}, {}, e}
			if _, err := l.append(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		},
		"written in another way": func(t *testing.T, b bucket.Bucket, texts []string) { write(t, b, 3, texts[2]+"\n") },
		"removed":                func(t *testing.T, b bucket.Bucket, _ []string) { remove(t, b, 1) },
		"one in the middle":      func(t *testing.T, b bucket.Bucket, _ []string) { remove(t, b, 2) },
		"swapped": func(t *testing.T, b bucket.Bucket, texts []string) {
			write(t, b, 1, texts[1])
			write(t, b, 2, texts[0])
		},
		"of another model, as a lane signed it": func(t *testing.T, b bucket.Bucket, texts []string) {
			remove(t, b, 3)
			behind(t, b, strings.Replace(texts[2], "/digits/", "/letters/", 1))
		},
		"of an earlier life, as a lane signed it": func(t *testing.T, b bucket.Bucket, texts []string) {
			remove(t, b, 3)
			remove(t, b, 2)
			behind(t, b, texts[1])
			write(t, b, 3, texts[2])
		},
		"of a newer lane": func(t *testing.T, b bucket.Bucket, texts []string) {
			write(t, b, 3, strings.Replace(texts[2], `"protocol": 1`, `"protocol": 2`, 1))
		},
		"no JSON": func(t *testing.T, b bucket.Bucket, _ []string) { write(t, b, 3, "{") },
		"too large": func(t *testing.T, b bucket.Bucket, texts []string) {
			write(t, b, 3, texts[2]+strings.Repeat(" ", maxEntry))
		},
	} {
		b, s := mem.New(), newScene()
		for _, v := range []string{"v1.0.0", "v1.0.1", "v1.0.2"} {
			s.push(t, v, "a")
		}
		l, err := s.watch(b).Look(t.Context(), time.Now())
		if err != nil || len(l.Models[0].New) != 3 {
			t.Fatalf("%+v, %v", l, err)
		}
		var texts []string
		for _, e := range l.Models[0].Entries {
			text, err := record.Encode(e)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(text))
		}
		edit(t, b, texts)
		s.push(t, "v1.0.3", "a")
		l, err = s.watch(b).Look(t.Context(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		m := l.Models[0]
		if len(m.Trouble) != 1 {
			t.Errorf("%s: %v", name, m.Trouble)
			continue
		}
		if d, ok := errors.AsType[*Damaged](m.Trouble[0]); !ok || !strings.HasPrefix(d.Key, "lane/digits/ledger/") || Release(m.Entries, "v1.0.3") != nil {
			t.Errorf("%s: %v", name, m.Trouble[0])
		}
	}
}

// behind appends an entry as a lane does.
func behind(t *testing.T, b bucket.Bucket, text string) {
	t.Helper()
	e, _ := decode([]byte(text))
	l := OpenLedger(b, testSeal(), "digits")
	if err := l.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.append(t.Context(), e); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, b bucket.Bucket, seq int64, text string) {
	t.Helper()
	if _, err := b.Put(t.Context(), Key("digits", seq), strings.NewReader(text), bucket.Always()); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, b bucket.Bucket, seq int64) {
	t.Helper()
	if err := b.Delete(t.Context(), Key("digits", seq)); err != nil {
		t.Fatal(err)
	}
}

// TestARestIsCheap: while nothing changes, a look asks the store once for each model, and trusts nothing but the chain.
func TestARestIsCheap(t *testing.T) {
	b, s := counting.New(mem.New()), newScene()
	s.push(t, "v1.0.0", "a")
	w := s.watch(b)
	for range 3 {
		before := b.Counts()
		if l, err := w.Look(t.Context(), time.Now()); err != nil || len(l.Models) != 1 || len(l.Models[0].Entries) != 1 {
			t.Fatalf("%+v, %v", l, err)
		}
		if before.Put > 0 {
			if now := b.Counts(); now.Get != before.Get+1 || now.List != before.List || now.Put != before.Put {
				t.Errorf("a look at rest: from %+v to %+v", before, now)
			}
		}
	}
}

// hooked runs something before the first write.
type hooked struct {
	bucket.Bucket
	once   sync.Once
	before func()
}

// Put implements bucket.Bucket.
func (h *hooked) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	h.once.Do(h.before)
	return h.Bucket.Put(ctx, key, body, c)
}

// TestTheLoserJudgesAnew: a lane that loses a number judges over what the winner wrote: what it was about to accept has moved.
func TestTheLoserJudgesAnew(t *testing.T) {
	b, s := mem.New(), newScene()
	s.push(t, "v1.0.0", "a")
	slow := s.watch(&hooked{Bucket: b, before: func() {
		s.push(t, "v1.0.0", "b")
		if l, err := s.watch(b).Look(t.Context(), time.Now()); err != nil || len(l.Models[0].New) != 1 {
			t.Errorf("the quick one: %+v, %v", l, err)
		}
	}})
	l, err := slow.Look(t.Context(), time.Now())
	if err != nil || len(l.Models[0].Trouble) > 0 {
		t.Fatalf("%+v, %v", l, err)
	}
	var got []string
	for _, e := range l.Models[0].Entries {
		got = append(got, string(e.Code)+" "+e.RawHash[:4])
	}
	refs, _ := s.Tags(t.Context())
	if len(got) != 2 || got[0] != "Accepted "+refs[0].Object[:4] || !strings.HasPrefix(got[1], "TagMoved ") {
		t.Errorf("%v", got)
	}
}

// TestHalfAnEntryIsNoDamage: a body that the network cut is read again, and nobody is told that somebody edited it.
func TestHalfAnEntryIsNoDamage(t *testing.T) {
	b, s := mem.New(), newScene()
	s.push(t, "v1.0.0", "a")
	if _, err := s.watch(b).Look(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	w := s.watch(faulty.New(b, 1, faulty.Rule{Op: "get", Times: 1, Effect: faulty.Truncate}))
	l, err := w.Look(t.Context(), time.Now())
	if err != nil || len(l.Models[0].Trouble) != 1 {
		t.Fatalf("%+v, %v", l, err)
	}
	if _, damaged := errors.AsType[*Damaged](l.Models[0].Trouble[0]); damaged {
		t.Error(l.Models[0].Trouble[0])
	}
	if l, err = w.Look(t.Context(), time.Now()); err != nil || len(l.Models[0].Trouble) > 0 || len(l.Models[0].Entries) != 1 {
		t.Errorf("%+v, %v", l, err)
	}
}
