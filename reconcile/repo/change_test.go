package repo

import (
	"errors"
	"io/fs"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestLastChange: of a history with merges, the last change is the one that everything else lies before.
func TestLastChange(t *testing.T) {
	o := newOrigin(t)
	r := watch(t, Options{Remote: o.dir, Branch: "main"})
	commit := func(content string, parents ...string) string {
		f := files("y", "1")
		if content != "" {
			f = files("y", "1", "lane/keys", content)
		}
		return o.commitTree(o.tree(f), content, parents...)
	}
	root := commit("")
	one := commit("one", root)
	side := commit("one", one) // forked before the next change
	two := commit("two", one)
	back := commit("one", two)
	stray := commit("stray", one)
	for name, c := range map[string]struct{ tip, commit, beside string }{
		"added":                             {one, one, ""},
		"changed":                           {two, two, ""},
		"not touched since":                 {commit("two", two), two, ""},
		"set back in a commit":              {back, back, ""},
		"an old branch merged":              {commit("two", two, side), two, ""},
		"the same, parents the other way":   {commit("two", side, two), two, ""},
		"a merge that takes the old back":   {commit("one", two, side), one, two},
		"the same, with the parents turned": {commit("one", side, two), one, two},
		"set back, and an old one merged":   {commit("one", side, back), back, ""},
		"a merge that writes its own":       {commit("three", two, side), "", ""},
		"two changes, one of them taken":    {commit("two", two, stray), two, stray},
		"two changes, solved anew":          {commit("four", two, stray), "", ""},
	} {
		if c.commit == "" {
			c.commit = c.tip
		}
		got, beside, err := r.LastChange(t.Context(), c.tip, "lane/keys")
		if again, _, err := r.LastChange(t.Context(), c.tip, "lane/keys"); err != nil || again != got {
			t.Errorf("%s: asked again, it is %.8s, %v", name, again, err)
		}
		if err != nil || got != c.commit || beside != c.beside {
			t.Errorf("%s: got %.8s beside %.8s, %v; want %.8s beside %.8s", name, got, beside, err, c.commit, c.beside)
		}
	}
	for _, tip := range []string{root, commit("", two)} {
		if _, _, err := r.LastChange(t.Context(), tip, "lane/keys"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("not there: %v", err)
		}
	}
}

// TestLastChangeIsTheLast: in any history, a commit is named without another beside it exactly when it is the one change
// that all others lie before, and the tip has its content.
func TestLastChangeIsTheLast(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := newOrigin(t)
		type node struct {
			hash, content string
			parents       []int
			before        map[int]bool
		}
		var all []node
		for i := range rapid.IntRange(1, 9).Draw(rt, "commits") {
			n := node{content: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "content"), before: map[int]bool{i: true}}
			var hashes []string
			for range min(i, rapid.IntRange(1, 3).Draw(rt, "parents")) {
				if p := rapid.IntRange(0, i-1).Draw(rt, "parent"); !slices.Contains(n.parents, p) {
					n.parents, hashes = append(n.parents, p), append(hashes, all[p].hash)
					for b := range all[p].before {
						n.before[b] = true
					}
				}
			}
			if len(n.parents) > 0 && rapid.Bool().Draw(rt, "kept") {
				n.content = all[n.parents[0]].content
			}
			n.hash = o.commitTree(o.tree(files("f", n.content)), "c", hashes...)
			all = append(all, n)
		}
		tip := all[len(all)-1]
		var changed []int
		for i := range tip.before {
			if !slices.ContainsFunc(all[i].parents, func(p int) bool { return all[p].content == all[i].content }) {
				changed = append(changed, i)
			}
		}
		want := ""
		for _, c := range changed {
			if all[c].content == tip.content && !slices.ContainsFunc(changed, func(d int) bool { return !all[c].before[d] }) {
				want = all[c].hash
			}
		}
		r := watch(t, Options{Remote: o.dir, Branch: "main"})
		got, beside, err := r.LastChange(t.Context(), tip.hash, "f")
		if err != nil {
			rt.Fatal(err)
		}
		if (beside == "") != (want != "") || want != "" && got != want {
			rt.Fatalf("got %s beside %q, want %q", got, beside, want)
		}
	})
}
