package courier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// spiteful is a store that lets uploads land by halves, loses answers, refuses and delays; and that checks, at every
// write that lands anywhere, that what the witness names is whole: the manifest has the bytes that were promised, and
// each of its files is there with its size and its hash.
type spiteful struct {
	*mem.Bucket
	t       *testing.T
	mu      sync.Mutex // of what follows; never held over a wait
	rng     *rand.Rand
	faults  float64 // share of the courier's puts that go wrong
	meddle  func()  // called in the middle of each upload of a file
	halves  int
	lost    int
	checked int
	named   map[int64]bool // milestones that the witness has named
}

func (s *spiteful) draw() (wrong bool, kind int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.Float64() < s.faults, s.rng.IntN(4)
}

// Put is the holder's and the courier's.
func (s *spiteful) Put(ctx context.Context, key string, b bucket.Body, c bucket.Cond) (bucket.Version, error) {
	unknown := &bucket.Error{Op: "put", Key: key, Code: bucket.Unknown}
	if !strings.Contains(key, "/milestone/") {
		v, err := s.Bucket.Put(ctx, key, b, c)
		s.check()
		return v, err
	}
	if s.meddle != nil && !strings.HasSuffix(key, manifestName) {
		half := make([]byte, b.Size()/2)
		_, _ = b.ReadAt(half, 0)
		s.meddle()
	}
	defer s.check()
	wrong, kind := s.draw()
	if !wrong {
		return s.Bucket.Put(ctx, key, b, c)
	}
	switch kind {
	case 0: // half of it lands, and the line is cut: no store should, and it must not matter
		half := make([]byte, b.Size()/2)
		_, _ = b.ReadAt(half, 0)
		_, _ = s.Bucket.Put(ctx, key, bytes.NewReader(half), c)
		s.count(&s.halves)
		return "", unknown
	case 1: // it lands, and the answer is lost
		_, _ = s.Bucket.Put(ctx, key, b, c)
		s.count(&s.lost)
		return "", unknown
	case 2: // it never leaves
		s.count(&s.lost)
		return "", unknown
	}
	select {
	case <-time.After(time.Minute):
	case <-ctx.Done():
		return "", unknown
	}
	return s.Bucket.Put(ctx, key, b, c)
}

func (s *spiteful) count(n *int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	*n++
	return *n
}

// read returns what lies at a key; nil: nothing.
func (s *spiteful) read(key string) []byte {
	o, err := s.Get(context.WithoutCancel(s.t.Context()), key, bucket.Range{})
	if err != nil {
		return nil
	}
	defer o.Body.Close()
	b, err := io.ReadAll(o.Body)
	if err != nil {
		return nil
	}
	return b
}

// check holds the newest version of the witness against what it names.
func (s *spiteful) check() {
	b := s.read(record.WitnessKey(work))
	if b == nil {
		return
	}
	rec, err := witness.Decode(work, b)
	if err != nil || rec.Resume == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checked++
	s.named[rec.Resume.Milestone] = true
	if why := s.broken(rec.Resume); why != "" {
		s.t.Errorf("rev %d names milestone %d: %s", rec.Rev, rec.Resume.Milestone, why)
	}
}

func (s *spiteful) broken(p *record.Pointer) string {
	b := s.read(p.Manifest)
	var m record.Manifest
	if record.Hash(b) != p.SHA256 {
		return fmt.Sprintf("its manifest has %d bytes, and not those that were promised", len(b))
	}
	if err := record.Decode(b, record.MaxManifest, &m); err != nil {
		return err.Error()
	}
	for _, f := range m.Files {
		got := s.read(strings.TrimSuffix(p.Manifest, manifestName) + f.Path)
		if int64(len(got)) != f.Size || record.Hash(got) != f.SHA256 {
			return fmt.Sprintf("%s has %d bytes of %d, or others", f.Path, len(got), f.Size)
		}
	}
	if len(m.Files) != 3 {
		return fmt.Sprintf("%d files of 3", len(m.Files))
	}
	return ""
}

// train stages a milestone for each round as a program does, and moves the pointer as the step path does: when and only
// when the courier has said that it is complete, and never by force.
func train(t *testing.T, s *spiteful, src, priv string, move bool, write func(round int)) (moved, refused int) {
	put := func(key string, v any) {
		b, err := record.Encode(v)
		if err == nil {
			_, err = s.Bucket.Put(t.Context(), key, bytes.NewReader(b), bucket.IfAbsent())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put(record.ClaimKey(work, 1), record.Claim{Protocol: 1, Work: work, Dispatch: 1})
	lease := witness.LeaseFor(0, time.Minute, 0)
	h, err := witness.Capture(t.Context(), s, witness.CaptureRequest{Work: work, Dispatch: 1, Lease: lease})
	if err != nil {
		t.Fatal(err)
	}
	if v := h.Open(t.Context(), record.Open{Platform: "here"}); v.Outcome != witness.Won {
		t.Fatal(v)
	}
	reports := make(chan Report, 100)
	k := New(t.Context(), Config{Store: s, Work: work, Attempt: 1, Dir: priv, Patience: 90 * time.Second, Report: func(r Report) { reports <- r }})
	defer k.Close()
	for round := range 12 {
		write(round)
		if _, err := k.Stage(src, "", move, int64(round+1)); err != nil {
			t.Fatal(err)
		}
		r := <-reports
		if r.Err != nil {
			refused++
			continue
		}
		switch v := h.Advance(t.Context(), r.Pointer, witness.Progress{Step: r.Pointer.Step}, lease); v.Outcome {
		case witness.Won:
			moved++
		default:
			refused++
		}
		s.check()
	}
	return moved, refused
}

// Given a store that lets uploads land by halves, loses their answers and gives some up, and a program that rewrites
// its files while they are copied and uploaded. Then at every version of the witness what it names is whole.
func TestGateNoHalfFileIsEverNamed(t *testing.T) {
	halves, lost, gone, moved, checked := 0, 0, 0, 0, 0
	for seed := range uint64(12) {
		src, priv := t.TempDir(), t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 10))
			s := &spiteful{Bucket: mem.New(), t: t, rng: rng, faults: 0.2 + 0.06*float64(seed), named: map[int64]bool{}}
			write := func(round int) {
				for i := range 3 {
					body := bytes.Repeat([]byte{byte(round), byte(i), byte(seed)}, 1000+100*i+round)
					if err := errors.Join(os.MkdirAll(filepath.Join(src, "d"), 0o755), os.WriteFile(filepath.Join(src, "d", fmt.Sprint(i)), body, 0o644)); err != nil {
						t.Fatal(err)
					}
				}
			}
			n := 0
			s.meddle = func() { write(1000 + s.count(&n)) }
			m, r := train(t, s, src, priv, false, write)
			moved, gone = moved+m, gone+r
			halves, lost, checked = halves+s.halves, lost+s.lost, checked+s.checked
			if m > 0 && len(s.named) != m {
				t.Errorf("the witness has named %d milestones, %d moves were won", len(s.named), m)
			}
		})
	}
	if halves < 50 || lost < 50 || gone < 5 || moved < 50 {
		t.Fatalf("%d uploads landed by half, %d lost, %d milestones given up, %d named: too little went wrong, or too much", halves, lost, gone, moved)
	}
	t.Logf("%d uploads landed by half, %d lost, %d milestones given up, %d named, looked at %d times", halves, lost, gone, moved, checked)
}

// The same, of a program that hands its files over and goes on writing into them: what is moved is still its own.
func TestGateFilesThatAreWrittenAfterTheyWereHandedOver(t *testing.T) {
	src, priv := filepath.Join(t.TempDir(), "out"), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := &spiteful{Bucket: mem.New(), t: t, rng: rand.New(rand.NewPCG(1, 1)), named: map[int64]bool{}}
		var open []*os.File
		done := func() {
			for _, f := range open {
				_ = f.Close()
			}
			open = nil
		}
		defer func() { done() }()
		write := func(round int) {
			done()
			if err := os.MkdirAll(src, 0o755); err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				f, err := os.Create(filepath.Join(src, fmt.Sprint(i)))
				if err == nil {
					_, err = f.Write(bytes.Repeat([]byte{byte(round), byte(i)}, 200_000))
				}
				if err != nil {
					t.Fatal(err)
				}
				open = append(open, f)
			}
		}
		meddled := 0
		s.meddle = func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			meddled++
			for _, f := range open {
				_, _ = f.WriteAt(bytes.Repeat([]byte{byte(meddled), 7}, 200_000), 0)
			}
		}
		_, refused := train(t, s, src, priv, true, write)
		if meddled < 12 || refused != 12 {
			t.Fatalf("%d files were written while they went up, %d milestones refused, want 12", meddled, refused)
		}
	})
}
