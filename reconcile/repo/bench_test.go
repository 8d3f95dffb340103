package repo

import (
	"fmt"
	"testing"

	"github.com/headway-run/headway/plan"
)

// BenchmarkQuietPoll is one poll that finds nothing new, with a server on loopback in the same process.
func BenchmarkQuietPoll(b *testing.B) {
	o := newOrigin(b)
	o.commit("main", "a", files("x", "1"))
	for name, at := range map[string]string{"local": o.dir, "http": serve(b, o).address()} {
		b.Run(name, func(b *testing.B) {
			r := watch(b, Options{Remote: at, Branch: "main"})
			if _, err := r.Head(b.Context()); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, ok := r.Poll(b.Context()).(Unchanged); !ok {
					b.Fatal("moved")
				}
			}
		})
	}
}

// BenchmarkReadAll reads 2,000 packed files of a fresh handle.
func BenchmarkReadAll(b *testing.B) {
	o := newOrigin(b)
	content := map[string]file{}
	for i := range 2000 {
		content[fmt.Sprintf("plans/team%02d/job%04d.yaml", i%50, i)] = file{body: fmt.Sprintf("jobs:\n  j%d: {seed: %d}\n", i, i)}
	}
	o.packed(content)
	c := o.commit("main", "many", content)
	for b.Loop() {
		r, err := Open(Options{Remote: o.dir, Branch: "main"})
		if err != nil {
			b.Fatal(err)
		}
		tr, err := r.Tree(c)
		if err != nil {
			b.Fatal(err)
		}
		if err := eachFile(tr, "", func(p string, _ plan.Entry) error {
			_, err := tr.Read(p, plan.MaxFileBytes)
			return err
		}); err != nil {
			b.Fatal(err)
		}
		if err := r.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
