package plan

import (
	"testing"

	"pgregory.net/rapid"
)

// A path matches where the walk over a tree that holds nothing else finds it.
func TestMatchesIsWhatIsFound(t *testing.T) {
	part := rapid.SampledFrom([]string{"plans", "a", "b.yaml", "c.yml", "x"})
	seg := rapid.SampledFrom([]string{"plans", "a", "*.yaml", "*", "**", "b.*"})
	join := func(list []string) (out string) {
		for i, s := range list {
			if i > 0 {
				out += "/"
			}
			out += s
		}
		return out
	}
	hits := 0
	rapid.Check(t, func(t *rapid.T) {
		p, g := join(rapid.SliceOfN(part, 1, 4).Draw(t, "path")), join(rapid.SliceOfN(seg, 1, 4).Draw(t, "glob"))
		c := Config{Plans: []string{g}}
		l := &loader{tree: NewMemTree(map[string]string{p: "x"}), config: c, planPos: []Pos{{}}}
		l.find()
		found := len(l.files) == 1
		if found {
			hits++
		}
		if got := c.Matches(p); got != found {
			t.Fatalf("%s in %s: %v, the walk says %v", p, g, got, found)
		}
	})
	if hits == 0 {
		t.Error("nothing was found, so nothing was shown")
	}
}
