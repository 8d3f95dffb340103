package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headway-run/headway/plan/flops"
)

// check refuses what one field alone cannot show. It runs on a resolved entry, before its matrix is expanded.
func (l *loader) check(e *entry) {
	before := l.ps.errors
	j := &e.job
	switch {
	case e.bad["run"]:
	case e.has("run") && len(strings.TrimSpace(j.Run)) == 0:
		l.fail(e, e.at("run"), "BadValue", "run is empty", "a command line", "")
	case !e.has("run") && e.frozen == "" && !l.broken[e.file]:
		l.fail(e, e.namePo, "Missing", "job "+show(e.name)+" has no run", "a command line", "for example run: python3 train.py")
	}
	l.checkLadder(e)
	l.checkGPU(e)
	l.checkSecrets(e)
	l.checkCards(e)
	l.checkCode(e)
	l.checkWork(e)
	l.checkRest(e)
	if l.ps.errors > before {
		l.broken[e.file] = true
		e.freeze("it has an error")
	}
}

func (l *loader) checkLadder(e *entry) {
	j := &e.job
	if e.bad["on"] || l.defaults.bad["on"] && !e.has("on") {
		return
	}
	if len(j.On) == 0 {
		if !e.has("on") && e.frozen == "" && !l.broken[e.file] {
			l.fail(e, e.namePo, "Missing", "job "+show(e.name)+" names no platform", "on: [PLATFORM, …]", "or say it for all jobs under `defaults` in "+ConfigFile)
		} else if e.has("on") {
			l.fail(e, e.at("on"), "EmptyList", "on is an empty list", "at least one platform", "use suspend: true to keep a job from running")
		}
		return
	}
	for _, name := range j.On {
		if _, ok := l.config.Platforms[name]; !ok {
			known := l.platformNames()
			l.ps.refuse(e.at("on"), "UnknownPlatform", "on names "+show(name)+", which is no platform of "+ConfigFile, aPlatform(known), didYouMean(name, known, ""))
		}
	}
}

// cardVars name the cards that a program may use. (Table of values.)
var cardVars = []string{"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}

// checkCards refuses a job that names its cards itself where a platform of its ladder deals them: it would take those of others,
// and the platform would refuse its launch, which spends a retry.
func (l *loader) checkCards(e *entry) {
	j := &e.job
	for _, v := range cardVars {
		if _, set := j.Env[v]; !set {
			continue
		}
		for _, name := range j.On {
			if l.config.Platforms[name].Options["cards"] != "" {
				l.ps.refuse(e.at("env"), "DealtCards", "env."+v+" names the cards of job "+show(e.name)+", and platform "+show(name)+" deals its cards itself (cards)",
					"no "+v+" in env", "take it out, or take "+name+" out of on")
				return
			}
		}
	}
}

func (l *loader) platformNames() []string {
	var out []string
	for n := range l.config.Platforms {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// lookup is flops.LookupOn with a memory: plans name few cards many times.
func (l *loader) lookup(provider, name string) (flops.Match, error) {
	key := provider + "\x00" + name
	g, ok := l.gpus[key]
	if !ok {
		g.match, g.err = flops.LookupOn(provider, name)
		l.gpus[key] = g
	}
	return g.match, g.err
}

func (l *loader) checkGPU(e *entry) {
	g := &e.job.GPU
	if e.bad["gpu.any"] {
		return
	}
	if len(g.Any) == 0 {
		for _, f := range []string{"gpu.count", "gpu.dtype"} {
			if e.has(f) && !e.has("gpu.any") {
				l.ps.refuse(e.at(f), "Missing", f+" without cards", "gpu: {any: [CARD, …]}", "name the cards, or leave gpu out for CPU")
			}
		}
		return
	}
	pos, before := e.at("gpu.any"), l.ps.errors
	for _, name := range g.Any {
		m, err := l.lookup("", name)
		if err != nil {
			hint := ""
			var unknown *flops.UnknownGPUError
			if errors.As(err, &unknown) && len(unknown.Nearest()) > 0 {
				hint = "did you mean " + strings.Join(unknown.Nearest(), ", ") + "?"
			} else if unknown != nil && unknown.Slice {
				hint = "a slice of a card has no rated peak: name the whole card"
			}
			l.ps.refuse(pos, "UnknownGPU", "unknown card "+show(name), "an id or a short name of a known card", hint)
			continue
		}
		l.checkMode(e, name, m)
	}
	if l.ps.errors == before {
		l.checkOffers(e)
	}
}

// checkMode refuses a math mode that a card lacks. A card whose peaks are not known at all is only warned about.
func (l *loader) checkMode(e *entry, name string, m flops.Match) {
	dtype := e.job.GPU.DType
	if dtype == "" {
		return
	}
	known, ok := l.modes[name]
	if !ok {
		for _, c := range m.GPUs {
			for _, mode := range c.Modes() {
				if !slices.Contains(known.list, string(mode)) {
					known.list = append(known.list, string(mode))
				}
			}
		}
		l.modes[name] = known
	}
	have := known.list
	if slices.Contains(have, dtype) {
		return
	}
	pos := e.at("gpu.dtype")
	if len(have) == 0 {
		l.ps.warn(pos, "UnknownPeak", "no rated peak of "+show(name)+" is known: its goodput cannot be judged", "")
		return
	}
	l.ps.refuse(pos, "NoSuchMode", show(name)+" has no rated peak for "+dtype, oneOf(have), "change dtype or take the card out")
}

// checkOffers refuses a job whose cards no platform of its ladder offers.
func (l *loader) checkOffers(e *entry) {
	if len(e.job.On) == 0 {
		return
	}
	var offered []string
	for _, name := range e.job.On {
		p, ok := l.config.Platforms[name]
		if !ok {
			return // reported
		}
		for _, offer := range p.GPU {
			for _, want := range e.job.GPU.Any {
				if l.covers(p.Runner, offer, want, e.job.GPU.Count) {
					return
				}
			}
			offered = append(offered, name+": "+offer)
		}
	}
	what := "a platform that does"
	if len(offered) > 0 {
		what = "one of " + clip(strings.Join(offered, ", "))
	}
	l.ps.refuse(e.at("gpu.any"), "NotOffered", "no platform of "+show(strings.Join(e.job.On, ", "))+" offers "+strings.Join(e.job.GPU.Any, " or "),
		what, "add a platform to on, or the card to gpu of a platform in "+ConfigFile)
}

// covers says that an offer of a platform is a card that the job takes. A bare offer stands for any number of cards.
func (l *loader) covers(runner, offer, want string, count int) bool {
	o, err := l.lookup(runner, offer)
	if err != nil {
		return false
	}
	w, err := l.lookup(runner, want)
	if err != nil {
		return false
	}
	if o.Count > 1 && o.Count < max(w.Count, count) {
		return false
	}
	return slices.ContainsFunc(o.GPUs, func(a flops.GPU) bool {
		return slices.ContainsFunc(w.GPUs, func(b flops.GPU) bool { return a.ID == b.ID })
	})
}

func (l *loader) checkSecrets(e *entry) {
	j := &e.job
	switch {
	case len(j.Secrets) == 0 || j.Trust != "any":
	case l.config.Guard.Warns("secrets"):
		l.ps.warn(e.at("secrets"), "SecretsOnAny", "secrets on trust: any are handed to strangers' machines", "set trust: datacenter or trust: own")
	default:
		l.ps.refuse(e.at("secrets"), "SecretsOnAny", "secrets on trust: any would be handed to strangers' machines", "trust: datacenter or trust: own", "set trust, or run the job without secrets; guard: {warn: [secrets]} in "+ConfigFile+" would allow it with a warning")
	}
	for _, s := range j.Secrets {
		if _, both := j.Env[s]; both {
			l.ps.refuse(e.at("secrets"), "Twice", show(s)+" is both in secrets and in env", "one of the two", "")
		}
	}
}

func (l *loader) checkCode(e *entry) {
	if e.job.Code == "" {
		return
	}
	c := l.folder(e.job.Code)
	e.job.CodeTree = c.tree
	if c.code != "" {
		hint := c.hint
		if c.code == "NoSuchFolder" {
			if m := l.meant(e.at("code").File, c, e.job.Code); m != "" {
				hint = "did you mean " + m + "?"
			}
		}
		l.ps.refuse(e.at("code"), c.code, "code: "+c.text, c.wants, hint)
		return
	}
	if file := l.files[e.file].path; strings.HasPrefix(file, e.job.Code+"/") {
		l.ps.warn(e.at("code"), "PlanInCode", "the code folder holds this plan file: every change of the plan makes other work", "keep plans and code apart")
	}
}

func (l *loader) checkWork(e *entry) {
	w := e.work
	if w == nil {
		return
	}
	if !w.computed {
		w.flops, w.err = flops.Compute(w.values)
		w.computed = true
	}
	e.job.FLOPs = w.flops
	err := w.err
	var all flops.KeyErrors
	if err != nil && !errors.As(err, &all) {
		all = flops.KeyErrors{{Index: -1, Text: err.Error()}}
	}
	for _, k := range all {
		pos, ok := w.pos[k.Key]
		if !ok {
			pos = e.at("work")
		}
		where := "work"
		if k.Key != "" {
			where += "." + k.Key
		}
		if k.Index >= 0 {
			where += fmt.Sprintf("[%d]", k.Index)
		}
		if k.Sub != "" {
			where += "." + k.Sub
		}
		hint := ""
		if k.Nearest != "" {
			hint = "did you mean " + k.Nearest + "?"
		}
		l.ps.refuse(pos, "BadWork", where+": "+k.Text, strings.TrimPrefix(k.Expected, "expected "), hint)
	}
}

func (l *loader) checkRest(e *entry) {
	j := &e.job
	if e.has("watch.path") != e.has("watch.interval") {
		f, other := "watch.path", "watch.interval"
		if e.has(other) {
			f, other = other, f
		}
		l.ps.refuse(e.at(f), "Missing", f+" without "+other, "both", "")
	}
	s := &j.Score
	if (s.HasMin || s.HasMax) && s.Name == "" {
		l.ps.refuse(e.at(first(e.has("score.at_least"), "score.at_least", "score.at_most")), "Missing", "a score without a name", "score: {name: METRIC, …}", "")
	}
	if s.Name != "" && !s.HasMin && !s.HasMax && e.has("score.name") && !e.has("score.at_least") && !e.has("score.at_most") {
		l.ps.refuse(e.at("score.name"), "Missing", "a score without a bound", "at_least or at_most", "")
	}
	if s.HasMin && s.HasMax && s.AtLeast > s.AtMost {
		l.ps.refuse(e.at("score.at_most"), "OutOfRange", "score.at_most is below score.at_least: nothing can reach it", "at_least not above at_most", "")
	}
	if j.GPU.Count > 64 {
		l.ps.refuse(e.at("gpu.count"), "OutOfRange", fmt.Sprintf("gpu.count is %d", j.GPU.Count), "1 to 64", "")
	}
}

func first(cond bool, a, b string) string {
	if cond {
		return a
	}
	return b
}
