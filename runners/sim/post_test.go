package sim_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/sim"
	"github.com/headway-run/headway/runners/witness"
)

// A worker of somebody else's stands where the platform's own would: faults, notice, kill and truth are the same.
func TestWorkStandsInForTheWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		posts := make(chan sim.Post, 2)
		c := sim.Config{Model: sim.Model{Notice: time.Minute}, Work: func(ctx context.Context, p sim.Post) string {
			posts <- p
			p.Captured(3)
			p.Stepped(5)
			select {
			case <-p.Notice:
			case <-ctx.Done():
			}
			<-ctx.Done()
			return "killed in " + fmt.Sprint(p.Instance)
		}}
		r, d := begin(t, c, "worker 2 slow 3s")
		defer r.Close()
		for n := int64(1); n <= 2; n++ {
			d.Launch(t.Context(), r, []runners.Launch{launch(n)})
		}
		began := time.Now()
		if _, err := d.Release(t.Context(), r, work, 2); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("killed %s after the notice", took)
		}
		first, p := <-posts, <-posts
		if p.Instance != 2 {
			p = first
		}
		if p.Fault != (sim.Fault{Op: sim.OpWorker, From: 2, Effect: sim.Slow, For: 3 * time.Second}) || p.Model.Steps != 100 || p.Job.Dispatch != 2 || p.Bucket != d.Bucket {
			t.Errorf("%+v", p)
		}
		want := []sim.Instance{{ID: 1, Machine: 1, Cards: []int{0}, Work: work, Dispatch: 1, Attempt: 3, Step: 5, Live: true, Paid: time.Minute, Worked: time.Minute},
			{ID: 2, Machine: 2, Cards: []int{0}, Work: work, Dispatch: 2, Attempt: 3, Step: 5, End: "killed in 2", Paid: time.Minute, Worked: time.Minute}}
		if diff := cmp.Diff(want, r.Truth()); diff != "" {
			t.Errorf("truth (-want +got):\n%s", diff)
		}
	})
}

// door is one instance's way to a store.
type door struct {
	bucket.Bucket
	puts int
}

func (d *door) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	d.puts++
	return d.Bucket.Put(ctx, key, body, c)
}

// Each instance's own store is the one that its worker uses.
func TestPortGivesEachInstanceItsStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		doors := map[int]*door{}
		r, d := begin(t, sim.Config{Bucket: b, Port: func(instance int) bucket.Bucket {
			doors[instance] = &door{Bucket: b}
			return doors[instance]
		}}, "worker 1 die 35")
		defer r.Close()
		d.Launch(t.Context(), r, []runners.Launch{launch(1)})
		time.Sleep(time.Hour)
		if seen, err := witness.Read(t.Context(), b, work); err != nil || seen.Record.Resume == nil || seen.Record.Resume.Step != 30 {
			t.Errorf("%+v, %v", seen.Record, err)
		}
		if len(doors) != 1 || doors[1] == nil || doors[1].puts < 3 {
			t.Errorf("doors: %+v", doors)
		}
	})
}
