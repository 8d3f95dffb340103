package plan

import (
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
)

// configKeys documents headway.yaml. (Table of values.)
var configKeys = []Field{
	{Name: "headway", Type: TypeText, Allowed: []string{"v1"}, Example: "v1", Doc: "Version of this file. Required."},
	{Name: "name", Type: TypeName, Example: "team-a", Doc: "Name of this plan repository; needed when several share one store."},
	{Name: "store", Type: TypeText, Default: "embedded", Example: "s3://acme-headway/team-a", Doc: "Where results and leases lie: embedded (a folder beside the repository), dir:///PATH, or s3://BUCKET/PREFIX?endpoint=…&region=…"},
	{Name: "plans", Type: TypeList, Default: "[plans/**/*.yaml]", Example: "[plans/**/*.yaml]", Doc: "Globs of plan files, relative to the root; ** stands for any folders."},
	{Name: "platforms", Type: TypePlatform, Example: "{here: {runner: local, slots: 2}}", Doc: "Places to run, by name."},
	{Name: "defaults.on", Type: TypeNames, Example: "[here]", Doc: "Ladder of jobs that give none."},
	{Name: "defaults.on_delete", Type: TypeText, Default: "drain", Allowed: onDeletes, Doc: "on_delete of jobs that give none."},
	{Name: "defaults.limits.retries", Type: TypeInt, Default: "5", Doc: "As in a job; likewise wall, paid, price and parallel."},
	{Name: "guard.prune", Type: TypePercent, Default: "20%", Example: "20%", Doc: "A commit that would stop more than this share of the live work (and more than 3) is refused."},
}

// platformKeys documents one platform; a runner may know more. (Table of values.)
var platformKeys = []Field{
	{Name: "runner", Type: TypeName, Example: "local", Doc: "The plugin: local, sim, … Required."},
	{Name: "slots", Type: TypeInt, Default: "the runner's own", Example: "2", Doc: "Launches at a time."},
	{Name: "gpu", Type: TypeList, Default: "none", Example: "[RTX_4090]", Doc: "Cards that it offers."},
	{Name: "max_price", Type: TypePrice, Default: "no limit", Example: "0.45/h", Doc: "Price per hour above which no offer of it is taken."},
	{Name: "capture", Type: TypeDuration, Default: "the family's own", Example: "10m", Doc: "How long after a launch the first lease may take to appear."},
}

// ConfigFields is the table of headway.yaml.
func ConfigFields() []Field { return slices.Clone(configKeys) }

// PlatformFields is the table of one platform of headway.yaml. Every other key goes to the runner as text.
func PlatformFields() []Field { return slices.Clone(platformKeys) }

// config reads headway.yaml. The defaults for jobs go into def.
func (d *decoder) config(root *node, def *entry) (Config, []Pos) {
	c := Config{Store: "embedded", Guard: Guard{Prune: 0.20}, Platforms: make(map[string]Platform)}
	var planPos []Pos
	top := []string{"headway", "name", "store", "plans", "platforms", "defaults", "guard"}
	version := false
	d.pairs(root, &Field{Name: "the file"}, func(k, v *node) {
		f := &Field{Name: k.Value}
		switch k.Value {
		case "headway":
			version = true
			f.Allowed = []string{"v1"}
			d.choice(v, f)
		case "name":
			c.Name, _ = d.name(v, f)
		case "store":
			c.Store, _ = d.store(v, f)
		case "plans":
			c.Plans, planPos = d.globs(v, f)
		case "platforms":
			d.pairs(v, f, func(k, v *node) {
				if p, ok := d.platform(k, v); ok {
					c.Platforms[p.Name] = p
				}
			})
		case "defaults":
			d.fields(v, f, "", []string{"on", "on_delete", "limits"}, def)
		case "guard":
			d.pairs(v, f, func(k, v *node) {
				if k.Value != "prune" {
					d.unknown(k, "guard", []string{"prune"})
					return
				}
				if p, ok := d.share(v, &Field{Name: "guard.prune"}); ok {
					c.Guard.Prune = p
				}
			})
		default:
			d.unknown(k, "", top)
		}
	})
	if !version {
		d.refuse(root, "Missing", "the file does not say its version", "headway: v1", "")
	}
	if planPos == nil {
		c.Plans, planPos = []string{"plans/**/*.yaml"}, []Pos{{File: d.file}}
	}
	c.Defaults = Defaults{On: def.job.On, OnDelete: def.job.OnDelete, Limits: def.job.Limits}
	for _, on := range def.job.On {
		if _, ok := c.Platforms[on]; !ok {
			known := slices.Sorted(platformSeq(c.Platforms)) // in the words of checkLadder, so that it is said once
			d.ps.refuse(def.at("on"), "UnknownPlatform", "on names "+show(on)+", which is no platform of "+ConfigFile, aPlatform(known), didYouMean(on, known, ""))
		}
	}
	return c, planPos
}

// aPlatform says what a ladder may name.
func aPlatform(known []string) string {
	if len(known) == 0 {
		return "a platform that is configured, and none is: give " + ConfigFile + " one, such as platforms: {here: {runner: local}}"
	}
	return oneOf(known)
}

func platformSeq(m map[string]Platform) func(func(string) bool) {
	return func(yield func(string) bool) {
		for n := range m {
			if !yield(n) {
				return
			}
		}
	}
}

func (d *decoder) globs(n *node, f *Field) ([]string, []Pos) {
	pos := []Pos{}
	got, _ := list(d, n, f, MaxList, "a list of globs", func(m *node) (string, bool) {
		s, ok := d.text(m, f)
		if !ok {
			return "", false
		}
		if want := checkGlob(s); want != "" {
			d.refuse(m, "BadGlob", "plans has "+show(s), want, "")
			return "", false
		}
		pos = append(pos, at(d.file, m))
		return s, true
	})
	if n.Kind == sequenceNode && len(n.Content) == 0 {
		d.refuse(n, "EmptyList", "plans is an empty list", "at least one glob", "an empty plan stops nothing; to end everything on purpose, say so in the commit")
	}
	return got, pos
}

// share is a percentage, as a fraction.
func (d *decoder) share(n *node, f *Field) (float64, bool) {
	s, _, ok := d.scalar(n, f, "a share such as 20%")
	if !ok {
		return 0, false
	}
	num, pct := strings.CutSuffix(s, "%")
	v, err := strconv.ParseFloat(num, 64)
	if err != nil || !pct || !isDecimal(num) || v < 0 || v > 100 {
		d.refuse(n, "BadShare", f.Name+" is "+show(s), "a share from 0% to 100%, such as 20%", "")
		return 0, false
	}
	return v / 100, true
}

func (d *decoder) store(n *node, f *Field) (string, bool) {
	s, ok := d.text(n, f)
	if !ok {
		return "", false
	}
	u, err := url.Parse(s)
	want, hint := "embedded, dir:///PATH or s3://BUCKET/PREFIX", ""
	switch {
	case s == "embedded":
		return s, true
	case err != nil:
	case looksSecret(s) != "":
		return "", false // reported
	case u.User != nil:
		d.refuse(n, "InlineSecret", "store has a user name or password in it", "a URL without", "credentials come from the environment")
		return "", false
	case u.Scheme == "s3" && u.Host != "":
		return s, true
	case u.Scheme == "dir" && u.Host == "" && path.IsAbs(u.Path):
		return s, true
	case u.Scheme == "dir":
		want, hint = "dir:///PATH, with three slashes", "the path must be absolute"
	}
	d.refuse(n, "BadStore", "store is "+show(s), want, hint)
	return "", false
}

func (d *decoder) platform(k, v *node) (Platform, bool) {
	p := Platform{Name: k.Value, Pos: at(d.file, k), Options: make(map[string]string)}
	if !isName(k.Value, "._-") {
		d.badName(k, "this platform", k.Value)
	}
	in, runner := "platforms."+clip(k.Value), false
	ok := d.pairs(v, &Field{Name: in}, func(k, v *node) {
		f := &Field{Name: in + "." + clip(k.Value)}
		switch k.Value {
		case "runner":
			runner = true
			p.Runner, _ = d.name(v, f)
		case "slots":
			p.Slots, _ = d.positive(v, f)
		case "gpu":
			p.GPU, _ = d.gpuList(v, f)
		case "max_price":
			p.MaxPrice, _ = d.price(v, f)
		case "capture":
			p.Capture, _ = d.duration(v, f)
		default:
			d.option(k, v, f, &p)
		}
	})
	if ok && !runner {
		d.refuse(k, "Missing", in+" names no runner", "runner: local, for example", "")
	}
	return p, ok && looksSecret(p.Name) == ""
}

// option keeps a key that only the runner knows.
func (d *decoder) option(k, v *node, f *Field, p *Platform) {
	var known []string
	for _, r := range platformKeys {
		known = append(known, r.Name)
	}
	if near := nearest(k.Value, known); near != "" && len(k.Value) > 3 {
		d.ps.warn(at(d.file, k), "OddOption", f.Name+" is handed to the runner as an option of its own", "did you mean "+near+"?")
	}
	if s, ok := d.value(v, f); ok {
		if namesSecret(k.Value, s) {
			d.refuse(v, "InlineSecret", f.Name+" has a value that looks like a secret, as its name says", "the name of a secret", "credentials come from the environment of the dispatcher")
			return
		}
		p.Options[k.Value] = s
	}
}
