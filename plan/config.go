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
	{Name: "lanes", Type: TypeList, Default: "none", Example: "[s3://acme-lane/team-a]", Doc: "Stores of deploy lanes that release what lies in this store, as URLs like store: what their records name, `headway gc` keeps. It reads them and never writes them."},
	{Name: "plans", Type: TypeList, Default: "[plans/**/*.yaml]", Example: "[plans/**/*.yaml]", Doc: "Globs of plan files, relative to the root; ** stands for any folders."},
	{Name: "platforms", Type: TypePlatform, Example: "{here: {runner: local, slots: 2}}", Doc: "Places to run, by name."},
	{Name: "defaults.on", Type: TypeNames, Example: "[here]", Doc: "Ladder of jobs that give none."},
	{Name: "defaults.on_delete", Type: TypeText, Default: "drain", Allowed: onDeletes, Doc: "on_delete of jobs that give none."},
	{Name: "defaults.limits.retries", Type: TypeInt, Default: "5", Doc: "As in a job; likewise wall, paid, price and parallel."},
	{Name: "defaults.suspend", Type: TypeBool, Default: "false", Example: "true", Doc: "suspend of jobs that give none: true keeps everything and launches nothing of the whole plan, but jobs that say suspend: false."},
	{Name: "limits.parallel", Type: TypeMap, Default: "no limit", Example: "{team=a: 10}", Doc: "Works of jobs that carry a label, as KEY=VALUE, that may run at once. Of a platform: its slots; of a group: limits.parallel of its jobs."},
	{Name: "guard.prune", Type: TypePercent, Default: "20%", Example: "20%", Doc: "A commit that would stop more than this share of the live work (and more than 3) is refused."},
	{Name: "guard.replace_after", Type: TypeDuration, Default: "no limit", Example: "6h", Doc: "A commit that replaces running work whose first launch is longer ago than this is refused, unless its message names the jobs: Allow-Replace: JOB, JOB."},
	{Name: "guard.replace_label", Type: TypeText, Default: DefaultReplaceLabel, Example: DefaultReplaceLabel, Doc: "A label of the pull request that replaces such work, which says so as well as the message does, where the forge can be asked: by `headway comment`, and by `headway watch --forge`."},
	{Name: "guard.paid", Type: TypeAmount, Default: "no limit", Example: "200 USD", Doc: "A commit whose new works may cost more than this, all together, is refused. What a job may cost is its limits.paid; left out, the dearest price of its ladder times limits.wall, or times the estimated time. Units are never converted: what is paid in another one does not count."},
	{Name: "guard.paid_per_job", Type: TypeAmount, Default: "no limit", Example: "50 USD", Doc: "The same for each job by itself."},
	{Name: "guard.price", Type: TypePrice, Default: "no limit", Example: "2 USD/h", Doc: "A commit with a job that may be launched for more than this per hour is refused: its limits.price, or the max_price or price of each platform of its ladder, has to be lower."},
	{Name: "guard.platforms", Type: TypeWho, Default: "everybody", Example: "{cluster: [team=vision, kind=train]}", Doc: "By platform, whose jobs may name it in on: those that carry one of these labels, as KEY=VALUE, or are of that kind. A platform that is not listed is everybody's."},
	{Name: "guard.pinned", Type: TypeList, Default: "none", Example: "[main, release/*]", Doc: "Branches, by name or glob, on which a job without requires is refused: its environment must be pinned."},
	{Name: "guard.signers", Type: TypePath, Default: "none", Example: "allowed_signers", Doc: "A file of this repository that says who may sign commits, in the form of ssh-keygen's allowed signers, with OpenPGP public keys beside it. As it stands in the commit that was accepted last, it decides about every commit that a new one brings. See docs/watch.md."},
	{Name: "guard.warn", Type: TypeNames, Default: "none", Allowed: guardRules, Example: "[price, pinned]", Doc: "Rules that only warn: of those above but prune, and secrets, which is that secrets never go with trust: any."},
	{Name: "notify", Type: TypeNotify, Default: "none", Example: "[{to: {secret: SLACK_WEBHOOK}, form: slack, on: [failed, parked]}]", Doc: "Messages that `headway watch` sends: to a webhook whose URL the named variable of its environment holds, in the form slack or json, on failed, finished, parked, blocked or orphan. See docs/notifications.md."},
	{Name: "retention.milestones", Type: TypeInt, Default: "3", Doc: "Of a work's line, how many milestones behind the resume pointer `headway gc` keeps."},
	{Name: "retention.finished", Type: TypeKeep, Default: "30d", Example: "30d", Doc: "How long after its end a finished work keeps its milestones and its launch records. Its result is never deleted."},
	{Name: "retention.logs", Type: TypeKeep, Default: "forever", Example: "90d", Doc: "How long the log and the events of an attempt that is over are kept."},
}

// platformKeys documents one platform; a runner may know more. (Table of values.)
var platformKeys = []Field{
	{Name: "runner", Type: TypeName, Example: "local", Doc: "The plugin: local, sim, … Required."},
	{Name: "slots", Type: TypeInt, Default: "the runner's own", Example: "2", Doc: "Launches at a time."},
	{Name: "gpu", Type: TypeList, Default: "none", Example: "[RTX_4090]", Doc: "Cards that it offers."},
	{Name: "max_price", Type: TypePrice, Default: "no limit", Example: "0.45/h", Doc: "Price per hour above which no offer of it is taken."},
	{Name: "price", Type: TypePrice, Default: "what the runner says", Example: "0.40 USD/h", Doc: "What one launch costs per hour, in the platform's own unit; counts where the runner does not say it."},
	{Name: "capture", Type: TypeDuration, Default: "the family's own", Example: "10m", Doc: "How long after a launch the first lease may take to appear. Left out, it is learnt from what launches took."},
}

// ConfigFields is the table of headway.yaml.
func ConfigFields() []Field { return slices.Clone(configKeys) }

// PlatformFields is the table of one platform of headway.yaml. Every other key goes to the runner as text.
func PlatformFields() []Field { return slices.Clone(platformKeys) }

// config reads headway.yaml. The defaults for jobs go into def.
func (d *decoder) config(root *node, def *entry) (Config, []Pos) {
	c := Config{Store: "embedded", Guard: Guard{Prune: 0.20, ReplaceLabel: DefaultReplaceLabel}, Retention: DefaultRetention(), Platforms: make(map[string]Platform)}
	var planPos []Pos
	top := []string{"headway", "name", "store", "lanes", "plans", "platforms", "defaults", "limits", "guard", "retention", "notify"}
	version, read := false, guardRead{}
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
		case "lanes":
			c.Lanes, _ = list(d, v, f, MaxList, "a list of stores", func(m *node) (string, bool) { return d.store(m, f) })
		case "plans":
			c.Plans, planPos = d.globs(v, f)
		case "platforms":
			d.pairs(v, f, func(k, v *node) {
				if p, ok := d.platform(k, v); ok {
					c.Platforms[p.Name] = p
				}
			})
		case "defaults":
			d.fields(v, f, "", []string{"on", "on_delete", "limits", "suspend"}, def)
		case "limits":
			d.pairs(v, f, func(k, v *node) {
				if k.Value != "parallel" {
					d.unknown(k, "limits", []string{"parallel"})
					return
				}
				c.Parallel = d.perLabel(v, &Field{Name: "limits.parallel"})
			})
		case "guard":
			read = d.guard(v, f, &c.Guard)
		case "notify":
			c.Notify = d.notify(v, f)
		case "retention":
			d.retention(v, f, &c.Retention)
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
	d.checkGuard(&c, read)
	c.Defaults = Defaults{On: def.job.On, OnDelete: def.job.OnDelete, Limits: def.job.Limits, Suspend: def.job.Suspend}
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

// perLabel reads how many works may run at once, by label.
func (d *decoder) perLabel(n *node, f *Field) map[string]int {
	out := map[string]int{}
	d.pairs(n, f, func(k, v *node) {
		key, value, ok := strings.Cut(k.Value, "=")
		if !ok || !isName(key, "._-/") || value == "" {
			d.refuse(k, "BadLabel", f.Name+" names "+show(k.Value), "a label as KEY=VALUE, such as team=a", "as the jobs write it: labels: {team: a}")
			return
		}
		if most, good := d.positive(v, &Field{Name: f.Name + "." + clip(k.Value)}); good {
			out[k.Value] = most
		}
	})
	return out
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
	want, hint := "dir:///PATH or s3://BUCKET/PREFIX", ""
	ours := f.Name == "store" // a lane has a store of its own, never the folder beside this repository
	if ours {
		want = "embedded, " + want
	}
	switch {
	case s == "embedded" && ours:
		return s, true
	case err != nil:
	case looksSecret(s) != "":
		return "", false // reported
	case u.User != nil:
		d.refuse(n, "InlineSecret", f.Name+" has a user name or password in it", "a URL without", "credentials come from the environment")
		return "", false
	case u.Scheme == "s3" && u.Host != "":
		return s, true
	case u.Scheme == "dir" && u.Host == "" && path.IsAbs(u.Path):
		return s, true
	case u.Scheme == "dir":
		want, hint = "dir:///PATH, with three slashes", "the path must be absolute"
	}
	d.refuse(n, "BadStore", f.Name+" is "+show(s), want, hint)
	return "", false
}

func (d *decoder) platform(k, v *node) (Platform, bool) {
	p := Platform{Name: k.Value, Pos: at(d.file, k), At: make(map[string]Pos), Options: make(map[string]string)}
	if !isName(k.Value, "._-") {
		d.badName(k, "this platform", k.Value)
	}
	in, runner := "platforms."+clip(k.Value), false
	ok := d.pairs(v, &Field{Name: in}, func(k, v *node) {
		f := &Field{Name: in + "." + clip(k.Value)}
		p.At[k.Value] = at(d.file, k)
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
		case "price":
			p.Price, _ = d.price(v, f)
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
