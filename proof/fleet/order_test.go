package fleet_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/proof/fleet"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
)

// recorder is a store that takes its time, a different one for each request, and notes every request with its body.
// How long one takes follows from the seed, the request and how often it was made before: not from who asks first.
type recorder struct {
	bucket.Bucket
	seed  int64
	slow  time.Duration
	began time.Time

	mu    sync.Mutex
	times map[string]int
	lines []string
}

func newRecorder(seed int64, slow time.Duration) *recorder {
	return &recorder{Bucket: mem.New(), seed: seed, slow: slow, began: time.Now(), times: map[string]int{}}
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.lines)
}

// take notes a request where the store takes it, which is some time after it was sent.
func (r *recorder) take(ctx context.Context, op, key, body string) error {
	r.mu.Lock()
	line := op + " " + key
	r.times[line]++
	h := fnv.New64()
	fmt.Fprintf(h, "%d %s %d", r.seed, line, r.times[line])
	r.mu.Unlock()
	long := time.Duration(rand.New(rand.NewSource(int64(h.Sum64()))).Int63n(int64(r.slow)))
	select {
	case <-time.After(long):
	case <-ctx.Done():
		return &bucket.Error{Op: op, Key: key, Code: bucket.Unknown, Err: ctx.Err()}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf("%s %s %s", time.Since(r.began), line, body))
	return nil
}

// Get implements bucket.Bucket.
func (r *recorder) Get(ctx context.Context, key string, g bucket.Range) (*bucket.Object, error) {
	if err := r.take(ctx, "get", key, ""); err != nil {
		return nil, err
	}
	return r.Bucket.Get(ctx, key, g)
}

// Put implements bucket.Bucket.
func (r *recorder) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	b, err := io.ReadAll(io.NewSectionReader(body, 0, body.Size()))
	if err != nil {
		return "", err
	}
	if err := r.take(ctx, "put", key, string(b)); err != nil {
		return "", err
	}
	return r.Bucket.Put(ctx, key, body, c)
}

// List implements bucket.Bucket.
func (r *recorder) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	if err := r.take(ctx, "list", prefix, ""); err != nil {
		return nil, err
	}
	return r.Bucket.List(ctx, prefix, after, limit)
}

// tape is everything that the workers of one small world ask of the store, with times and bodies.
func tape(t *testing.T, seed int64) (lines []string) {
	synctest.Test(t, func(t *testing.T) {
		cryptotest.SetGlobalRandom(t, uint64(seed))
		r := newRecorder(seed, 400*time.Millisecond)
		y := open(t, fleet.Config{PhaseEvery: 4, PhaseFor: 40 * time.Second}, sim.Config{Bucket: r, Model: sim.Model{Step: 300 * time.Millisecond, Notice: 20 * time.Second}},
			"worker 1 die 5; worker 2 hang 7")
		works := []record.Spec{spec(1), spec(2), spec(3)}
		for _, s := range works {
			y.launch(s)
			time.Sleep(17 * time.Millisecond)
		}
		time.Sleep(6 * time.Second)
		if _, err := y.d.Release(t.Context(), y.r, works[2].Work, 3); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		y.writeOff(works[0].Work)
		y.writeOff(works[1].Work)
		for _, s := range works {
			y.launch(s)
			time.Sleep(13 * time.Millisecond)
		}
		time.Sleep(time.Hour)
		for _, s := range works {
			y.finished(s.Work)
		}
		y.r.Close()
		lines = r.lines
	})
	return lines
}

// The same seed is the same sequence of requests, byte for byte and instant for instant.
func TestSameSeedSameRequests(t *testing.T) {
	for seed := range int64(8) {
		first := tape(t, seed)
		if diff := cmp.Diff(first, tape(t, seed)); diff != "" {
			t.Fatalf("seed %d (-first +second):\n%.4000s", seed, diff)
		}
		if again := strings.Join(first, "\n"); seed > 0 && len(first) < 100 || !strings.Contains(again, "open.json") {
			t.Fatalf("only %d requests", len(first))
		}
	}
}
