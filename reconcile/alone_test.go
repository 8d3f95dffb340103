package reconcile

import (
	"testing"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners"
)

// Three jobs whose shared launch was refused for good are due at the same moment: each goes alone. Jobs that were refused
// alone, and those that were never launched, share.
func TestWhatWasRefusedTogetherGoesAlone(t *testing.T) {
	refused := Dispatch{N: 1, Platform: "here", Launch: "l", Answered: true, Class: string(runners.Rejected)}
	single, taken := refused, refused
	single.Launch, taken.OK, taken.Class = "", true, ""
	for name, c := range map[string]struct {
		last []Dispatch
		want int // launches
	}{
		"never launched":                   {nil, 1},
		"refused together":                 {[]Dispatch{refused}, 3},
		"refused alone":                    {[]Dispatch{single}, 1},
		"taken together":                   {[]Dispatch{taken}, 1},
		"refused together, then taken":     {[]Dispatch{refused, taken}, 1},
		"taken, and then refused together": {[]Dispatch{taken, refused}, 3},
	} {
		p := &pass{platforms: map[string]*platform{"here": {capacity: 3, conf: plan.Platform{Name: "here", Slots: 9}}}}
		var todo []*order
		for _, w := range []plan.Digest{"a", "b", "c"} {
			todo = append(todo, &order{t: &target{work: w, asked: asked{job: &plan.Job{Work: w}}, length: 1, rank: 1}, a: Action{Kind: Launch, Platform: "here"},
				history: History{Dispatches: c.last}})
		}
		leaders := map[*order]bool{}
		for _, o := range p.crews(todo) {
			leaders[o.crew[0]] = true
		}
		if len(leaders) != c.want {
			t.Errorf("%s: %d launches, want %d", name, len(leaders), c.want)
		}
	}
}
