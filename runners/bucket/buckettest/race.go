package buckettest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/faulty"
)

// createRace: exactly one of the racers wins, and the key holds his bytes.
func createRace(t *testing.T, s store) {
	for round := range 12 {
		key := fmt.Sprintf("race/%d", round)
		winners := race(t, s, key, bucket.IfAbsent())
		if len(winners) != 1 {
			t.Fatalf("round %d: %d winners of a create race", round, len(winners))
		}
		if body, _ := s.read(t, key); body != winners[0] {
			t.Fatalf("round %d: the key holds %q, the winner wrote %q", round, body, winners[0])
		}
	}
}

// swapRace: at most one wins with one version; none only if the store said Raced to all.
func swapRace(t *testing.T, s store) {
	v := s.must(t, "k", "start", bucket.IfAbsent())
	for round := range 12 {
		winners := race(t, s, "k", bucket.IfIs(v))
		body, info := s.read(t, "k")
		if len(winners) != 1 || body != winners[0] {
			t.Fatalf("round %d: winners %v, the key holds %q", round, winners, body)
		}
		v = info.Version
	}
}

// race puts distinct bytes from eight goroutines at once, asking again where the store said that it was raced.
func race(t *testing.T, s store, key string, c bucket.Cond) []string {
	t.Helper()
	var mu sync.Mutex
	var winners []string
	var wg sync.WaitGroup
	start := make(chan struct{})
	for g := range 8 {
		wg.Go(func() {
			body := fmt.Sprintf("%d-%s", g, nonce())
			<-start
			for {
				_, err := s.Put(t.Context(), s.key(key), strings.NewReader(body), c)
				switch {
				case err == nil:
					mu.Lock()
					winners = append(winners, body)
					mu.Unlock()
				case bucket.Is(err, bucket.Raced), bucket.Is(err, bucket.Throttled):
					continue
				case !bucket.Is(err, bucket.Condition):
					t.Errorf("racer: %v", err)
				}
				return
			}
		})
	}
	close(start)
	wg.Wait()
	return winners
}

// Count adds n to a counter by compare-and-swap, settling every unknown outcome by reading, as the witness does: the
// body is "total nonce". It is exported for tests that count over processes. It returns how many of its swaps won.
func Count(ctx context.Context, b bucket.Bucket, key string, n int) (int, error) {
	for won := 0; won < n; {
		body, info, err := get(ctx, b, key, bucket.Range{})
		if err != nil {
			if ctx.Err() != nil {
				return won, err
			}
			if c := bucket.CodeOf(err); c == bucket.Unknown || c == bucket.Throttled {
				continue
			}
			return won, err
		}
		total, err := strconv.Atoi(strings.Fields(body + " ?")[0])
		if err != nil {
			return won, fmt.Errorf("the counter holds %q: %w", body, err)
		}
		ok, err := settle(ctx, b, key, info.Version, fmt.Sprintf("%d %s", total+1, nonce()))
		if err != nil {
			return won, err
		}
		if ok {
			won++
		}
	}
	return n, nil
}

// settle writes next over the version base, and says whether it is in the history.
func settle(ctx context.Context, b bucket.Bucket, key string, base bucket.Version, next string) (bool, error) {
	for {
		_, err := b.Put(ctx, key, strings.NewReader(next), bucket.IfIs(base))
		if err == nil {
			return true, nil
		}
		if ctx.Err() != nil {
			return false, err
		}
		switch bucket.CodeOf(err) {
		case bucket.Throttled, bucket.Raced:
			continue
		case bucket.Condition, bucket.Unknown:
		default:
			return false, err
		}
		body, info, err := get(ctx, b, key, bucket.Range{})
		switch {
		case err != nil:
			continue
		case body == next:
			return true, nil
		case info.Version != base:
			return false, nil // nobody else can have built on ours without our seeing it: see lossyCounter
		}
	}
}

// counter: acknowledged increments and the final value agree.
func counter(t *testing.T, s store) { count(t, s, s.Bucket, 6, 8) }

// lossyCounter loses answers and sends twice. A winner that is overwritten before it re-reads counts itself as a loser,
// so the total may exceed the acknowledged count by the faults that fired, and never fall short of it.
func lossyCounter(t *testing.T, s store) {
	f := faulty.New(s.Bucket, 7,
		faulty.Rule{Name: "lose", Op: "put", Conditional: true, Probability: 0.3, Effect: faulty.Lose},
		faulty.Rule{Name: "twice", Op: "put", Conditional: true, Probability: 0.3, Effect: faulty.Twice},
		faulty.Rule{Name: "refuse", Op: "put", Conditional: true, Probability: 0.2, Effect: faulty.Refuse, Code: bucket.Unknown},
		faulty.Rule{Name: "raced", Op: "put", Conditional: true, Probability: 0.2, Effect: faulty.Refuse, Code: bucket.Raced})
	extra := count(t, s, f, 4, 10)
	if faults := f.Fired("lose") + f.Fired("twice"); extra > faults {
		t.Errorf("%d increments more than acknowledged, but only %d faults", extra, faults)
	}
	if u := f.Unfired(); len(u) > 0 {
		t.Errorf("these faults never fired: %v", u)
	}
}

// count runs goroutines × n increments and returns by how much the total exceeds them.
func count(t *testing.T, s store, through bucket.Bucket, goroutines, n int) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s.must(t, "counter", "0", bucket.IfAbsent())
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			if _, err := Count(ctx, through, s.key("counter"), n); err != nil {
				t.Errorf("count: %v", err)
			}
		})
	}
	wg.Wait()
	body, _ := s.read(t, "counter")
	total, _ := strconv.Atoi(strings.Fields(body)[0])
	extra := total - goroutines*n
	if extra < 0 || through == s.Bucket && extra != 0 {
		t.Fatalf("%d increments were acknowledged, the counter says %d", goroutines*n, total)
	}
	return extra
}

// wholeObjects: under overwrites of changing length nobody reads a mixture, and the version fits the bytes.
func wholeObjects(t *testing.T, s store) {
	var versions sync.Map // version → the byte that fills its content
	body := func(i int) string { return strings.Repeat(string(rune('a'+i%26)), 1+(i*7919)%150_000) }
	versions.Store(s.must(t, "k", body(0), bucket.IfAbsent()), body(0))
	var done atomic.Bool
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for !done.Load() {
				got, info, err := get(t.Context(), s, s.key("k"), bucket.Range{})
				if err != nil {
					t.Errorf("a reader saw an error: %v", err)
					return
				}
				if err := whole(got, info); err != nil {
					t.Error(err)
					return
				}
				versions.LoadOrStore(info.Version, got)
			}
		})
	}
	for i := 1; i < 60; i++ {
		v := s.must(t, "k", body(i), bucket.Always())
		if was, seen := versions.LoadOrStore(v, body(i)); seen && was != body(i) {
			t.Errorf("version %s was read with other bytes than were written", v)
		}
	}
	done.Store(true)
	wg.Wait()
}

func whole(got string, info bucket.Info) error {
	if int64(len(got)) != info.Size || got == "" {
		return fmt.Errorf("a reader got %d bytes of an object of %d", len(got), info.Size)
	}
	if strings.Count(got, got[:1]) != len(got) {
		return errors.New("a reader got a mixture of two objects")
	}
	return nil
}
