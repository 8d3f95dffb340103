package plan

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// Jobs that change places where they lie come out as if they were copied, all of them or some.
func TestJobsAreArranged(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(0, 12).Draw(rt, "jobs")
		jobs, order := make([]Job, n), make([]int, n)
		for i := range jobs {
			jobs[i].Name, order[i] = fmt.Sprint(i), i
		}
		order = rapid.Permutation(order).Draw(rt, "order")[:rapid.SampledFrom([]int{n, n, n / 2}).Draw(rt, "kept")]
		want := []string{}
		for _, i := range order {
			want = append(want, jobs[i].Name)
		}
		got := []string{}
		for _, j := range arranged(jobs, slices.Clone(order)) {
			got = append(got, j.Name)
		}
		if d := cmp.Diff(want, got); d != "" {
			rt.Fatal(d)
		}
	})
}
