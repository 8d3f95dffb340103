package plan

import (
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// Guard holds the limits under which a reconciler refuses a commit, or warns of it (docs/guards.md). Zero values set no
// limit. What was accepted once is not judged again: a rule holds for what a commit brings.
type Guard struct {
	Prune        float64             // share of live work that one commit may stop, 0..1; default 0.20 (and never fewer than 3)
	ReplaceAfter time.Duration       // running work that was first launched longer ago is replaced only where the commit names it
	ReplaceLabel string              // of a pull request, which says the same where a forge can be asked; DefaultReplaceLabel
	Paid         Money               // what the works that are new with one commit may cost, all together
	PaidPerJob   Money               // what one job may cost
	Price        Money               // per hour, of any launch of a job
	Platforms    map[string][]string // by platform: KEY=VALUE of labels, or kind=KIND; a job on it carries one of them
	Pinned       []string            // branches, by name or glob, on which every job pins its environment
	Signers      string              // file of the repository that says who may sign commits; empty: nobody has to
	Warn         []string            // rules of guardRules that only warn, sorted
}

// DefaultReplaceLabel is guard.replace_label where none is given.
const DefaultReplaceLabel = "headway/allow-replace"

// Warns says that a rule of guard only warns.
func (g Guard) Warns(rule string) bool { return slices.Contains(g.Warn, rule) }

// Pins says that jobs on a branch must pin their environment.
func (g Guard) Pins(branch string) bool {
	return slices.ContainsFunc(g.Pinned, func(glob string) bool {
		ok, _ := path.Match(glob, branch) // it was checked when it was read
		return ok
	})
}

// Admits says whether a job may name a platform in its ladder, and else which labels would let it.
func (g Guard) Admits(platform string, j *Job) (who []string, ok bool) {
	who, ruled := g.Platforms[platform]
	return who, !ruled || slices.ContainsFunc(who, func(label string) bool {
		key, value, _ := strings.Cut(label, "=")
		return j.Labels[key] == value && value != "" || key == "kind" && value == j.Kind
	})
}

// The keys of guard, and those of them that guard.warn may name. secrets is the rule that secrets never go with trust: any;
// it holds unasked. (Tables of values.)
var (
	guardKeys  = []string{"prune", "replace_after", "replace_label", "paid", "paid_per_job", "price", "platforms", "pinned", "signers", "warn"}
	guardRules = []string{"replace_after", "paid", "paid_per_job", "price", "platforms", "pinned", "secrets"}
)

// guardRead is what is left to check once the whole file is read.
type guardRead struct {
	warn, platforms *node // nil: not given
	set             []string
}

func (d *decoder) guard(n *node, f *Field, g *Guard) (r guardRead) {
	d.pairs(n, f, func(k, v *node) {
		f := &Field{Name: "guard." + clip(k.Value)}
		r.set = append(r.set, k.Value)
		switch k.Value {
		case "prune":
			if p, ok := d.share(v, f); ok {
				g.Prune = p
			}
		case "replace_after":
			g.ReplaceAfter, _ = d.duration(v, f)
		case "replace_label":
			if l, ok := d.label(v, f); ok {
				g.ReplaceLabel = l
			}
		case "paid":
			g.Paid, _ = d.amount(v, f)
		case "paid_per_job":
			g.PaidPerJob, _ = d.amount(v, f)
		case "price":
			g.Price, _ = d.price(v, f)
		case "platforms":
			g.Platforms, r.platforms = d.admitted(v, f), v
		case "pinned":
			g.Pinned, _ = list(d, v, f, MaxList, "a list of branches, such as [main]", func(m *node) (string, bool) { return d.branch(m, f) })
		case "signers":
			g.Signers, _ = d.codePath(v, f)
		case "warn":
			f.Allowed, r.warn = guardRules, v
			got, ok := list(d, v, f, MaxList, "a list of rules, such as [price]", func(m *node) (string, bool) { return d.choice(m, f) })
			g.Warn, _ = d.unique(v, f, got, ok)
			slices.Sort(g.Warn)
		default:
			d.unknown(k, "guard", guardKeys)
		}
	})
	return r
}

// label reads the name of a label as every forge takes it.
func (d *decoder) label(n *node, f *Field) (string, bool) {
	s, ok := d.text(n, f)
	if ok && (len(s) > 50 || !isName(strings.ReplaceAll(s, " ", "-"), "._-/:") || strings.TrimSpace(s) != s) {
		d.refuse(n, "BadLabel", f.Name+" is "+show(s), "the name of a label, such as "+DefaultReplaceLabel+": letters, digits, spaces and ._-/: with at most 50 of them", "")
		return "", false
	}
	return s, ok
}

// branch reads a branch's name, or a glob of such.
func (d *decoder) branch(n *node, f *Field) (string, bool) {
	s, ok := d.text(n, f)
	if !ok {
		return "", false
	}
	short := strings.TrimPrefix(s, "refs/heads/")
	if _, err := path.Match(s, "x"); err != nil || s == "" || short != s || strings.Contains(s, "**") || strings.ContainsAny(s, " ~^:") {
		d.refuse(n, "BadBranch", f.Name+" names "+show(s), "the name of a branch, or a glob such as release/*", first(short != s && short != "", "write "+clip(short), ""))
		return "", false
	}
	return s, true
}

// admitted reads who may use which platform.
func (d *decoder) admitted(n *node, f *Field) map[string][]string {
	out := map[string][]string{}
	d.pairs(n, f, func(k, v *node) {
		f := &Field{Name: f.Name + "." + clip(k.Value)}
		labels, ok := list(d, v, f, MaxList, "a list such as [team=vision, kind=train]", func(m *node) (string, bool) {
			s, good := d.text(m, f)
			key, value, cut := strings.Cut(s, "=")
			if good && (!cut || !isName(key, "._-/") || value == "") {
				d.refuse(m, "BadLabel", f.Name+" names "+show(s), "a label as KEY=VALUE, such as team=a, or kind=train", "as the jobs write it: labels: {team: a}")
				return "", false
			}
			return s, good
		})
		if labels, ok = d.unique(v, f, labels, ok); ok && len(labels) == 0 {
			d.refuse(v, "EmptyList", f.Name+" is an empty list", "at least one label", "to keep every job off a platform, take it out of the jobs' on")
		}
		out[k.Value] = labels
	})
	return out
}

// checkGuard refuses what guard says of something that is not there.
func (d *decoder) checkGuard(c *Config, r guardRead) {
	if r.platforms != nil && r.platforms.Kind == mappingNode {
		known := slices.Sorted(maps.Keys(c.Platforms))
		for i := 0; i+1 < len(r.platforms.Content); i += 2 {
			if k := r.platforms.Content[i]; k.Kind == scalarNode && !slices.Contains(known, k.Value) {
				d.refuse(k, "UnknownPlatform", "guard.platforms names "+show(k.Value)+", which is no platform of "+ConfigFile, aPlatform(known), didYouMean(k.Value, known, ""))
			}
		}
	}
	if r.warn == nil {
		return
	}
	for _, m := range r.warn.Content {
		if slices.Contains(guardRules, m.Value) && m.Value != "secrets" && !slices.Contains(r.set, m.Value) {
			d.refuse(m, "Missing", "guard.warn names "+show(m.Value)+", and guard does not set it", "a rule that is set", "give guard."+m.Value+", or take it out of guard.warn")
		}
	}
}
