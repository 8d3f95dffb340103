package deploylane

import (
	"bytes"
	"errors"
	"io"
	"path"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// memory is a folder of files in memory.
type memory map[string]*bytes.Buffer

type file struct{ *bytes.Buffer }

func (file) Close() error { return nil }

func (m memory) open(name string) (io.WriteCloser, error) {
	m[name] = &bytes.Buffer{}
	return file{m[name]}, nil
}

// TestFetch: what is fetched is what the release names, and a file that was swapped or is gone is an error.
func TestFetch(t *testing.T) { synctest.Test(t, fetchIsHeldAgainstHashes) }

func fetchIsHeldAgainstHashes(t *testing.T) {
	g := newRig(t, 5)
	g.tagged("v1.0.0", 1)
	if _, _, err := g.lane.Fetch(t.Context(), "digits", "v1.0.0", memory{}.open); !stopped(err, "NotReleased") {
		t.Errorf("before the release: %v", err)
	}
	s := g.settle(g.lane, "v1.0.0")
	got := memory{}
	files, attestation, err := g.lane.Fetch(t.Context(), "digits", "v1.0.0", got.open)
	if err != nil || len(attestation) == 0 || len(files) == 0 || len(got) != len(files) {
		t.Fatalf("%d files, %d written, %d bytes of attestation, %v", len(files), len(got), len(attestation), err)
	}
	dir := path.Dir(s.Chain[len(s.Chain)-1].Record.Release.Artifact.Key)
	for _, f := range files {
		key := dir + "/" + f.Path
		was, _, err := get(t.Context(), g.own, key, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(was), got[f.Path].String()); d != "" {
			t.Error(d)
		}
		put := func(text string) {
			t.Helper()
			if _, err := g.own.Put(t.Context(), key, strings.NewReader(text), bucket.Always()); err != nil {
				t.Fatal(err)
			}
		}
		put(string(was) + "x")
		larger := memory{}
		if _, _, err := g.lane.Fetch(t.Context(), "digits", "v1.0.0", larger.open); !stopped(err, "ArtifactMismatch") || larger[f.Path].Len() > 0 {
			t.Errorf("%s was swapped: %v, and %d bytes of it were written", f.Path, err, larger[f.Path].Len())
		}
		if err := g.own.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if _, _, err := g.lane.Fetch(t.Context(), "digits", "v1.0.0", memory{}.open); !stopped(err, "ArtifactMismatch") {
			t.Errorf("%s is gone: %v", f.Path, err)
		}
		put(string(was))
	}
}

func stopped(err error, code string) bool {
	s, ok := errors.AsType[*Stop](err)
	return ok && s.Code == code
}

// TestWaiting: a release says for whom or what it waits: a second person, a target.
func TestWaiting(t *testing.T) { synctest.Test(t, whoIsWaitedFor) }

func whoIsWaitedFor(t *testing.T) {
	g := newRig(t, 5)
	o, _ := OrderOf(g.tagged("v1.0.0", 1))
	g.place.metrics["val_accuracy"] = 0.99 // better
	waits := func(want string) {
		t.Helper()
		got, err := g.lane.Waiting(t.Context(), "digits", "v1.0.0", Book{Entries: g.entries, Policy: g.policy})
		if err != nil || want == "" != (got == "") || !strings.Contains(got, want) {
			t.Errorf("it waits for %q, want %q (%v)", got, want, err)
		}
	}
	waits("")
	if _, err := g.lane.Begin(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	waits("the retraining, work ")
	g.settle(g.lane, "v1.0.0")
	waits("a second person has to look at it")
	writes := len(g.records())
	waits("a second person")
	if n := len(g.records()); n != writes {
		t.Errorf("looking wrote %d records", n-writes)
	}
}

// TestEligible: what the first stage would refuse is known before the tag is signed, and asking writes nothing.
func TestEligible(t *testing.T) {
	for _, c := range []struct {
		seeds int
		spoil string // a job whose work is gone
		code  string
	}{{5, "", ""}, {2, "", "TooFewSeeds"}, {5, "digits-backtest", "NotFinished"}} {
		g := newRig(t, c.seeds)
		o, _ := OrderOf(g.tagged("v1.0.0", 1))
		if c.spoil != "" {
			if err := g.research.Delete(t.Context(), record.WitnessKey(string(g.job(c.spoil).Work))); err != nil {
				t.Fatal(err)
			}
		}
		err := g.lane.Eligible(t.Context(), o)
		if c.code == "" && err != nil || c.code != "" && !stopped(err, c.code) {
			t.Errorf("%+v: %v", c, err)
		}
		if n := len(g.records()); n > 0 {
			t.Errorf("asking wrote %d records", n)
		}
	}
}
