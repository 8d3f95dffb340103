package tag

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/record"
)

// Files of the protected branch that say who may do what.
const (
	SignersFile = "lane/allowed_signers"
	PolicyFile  = "lane/policy.yaml"
)

// Bounds of a policy.
const (
	maxRules   = 1000
	maxPeople  = 100
	maxSigners = 10
)

// Policy is lane/policy.yaml: who may release which model and point which stage, and what a release must be.
type Policy struct {
	Stages  []string // that exist
	Rules   []Rule   // the first one whose glob fits a model counts, alone
	Revoked []string // fingerprints of keys that count no more, whatever lane/allowed_signers says
}

// Rule is what holds for the models of a glob.
type Rule struct {
	Models   string              // glob, as path.Match reads it: nlp-*
	Release  []string            // principals who may release
	Stages   map[string][]string // stage → principals who may point it
	Signers  int                 // different people that a release needs, its own signer included
	Requires map[string]string   // environment that a release is trained in
}

// ReadPolicy reads lane/policy.yaml. An error is a plan.DocumentError: all problems, one a line, with their places.
func ReadPolicy(data []byte) (*Policy, error) {
	doc := plan.ReadDocument(PolicyFile, data)
	f := doc.Root().Fields("stages", "models", "revoked")
	p := &Policy{Stages: f["stages"].Required("the stages that exist, such as stages: [prod]").Names(maxPeople)}
	for _, s := range p.Stages {
		if why := CheckStage(s); why != "" {
			f["stages"].Refuse("BadStage", why, "lower-case letters, digits and dashes", "")
		}
	}
	for _, v := range f["revoked"].List(maxRules) {
		print := v.Text("")
		if !strings.HasPrefix(print, "SHA256:") && !hexKey.MatchString(print) {
			v.Refuse("BadFingerprint", v.Name()+" is "+clip(print), "a fingerprint as ssh-keygen -l prints it, or the 40 hex digits of an OpenPGP key", "")
		}
		p.Revoked = append(p.Revoked, print)
	}
	for _, v := range f["models"].Required("a list of rules, such as models: [{match: digits, release: [ann@example.com]}]").List(maxRules) {
		p.Rules = append(p.Rules, readRule(v, p.Stages))
	}
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return p, nil
}

func readRule(v plan.Value, stages []string) Rule {
	f := v.Fields("match", "release", "stages", "signers", "requires")
	r := Rule{Models: f["match"].Required("a glob of models, such as match: nlp-*").Text(""), Release: people(f["release"].Required("principals of " + SignersFile)),
		Signers: int(f["signers"].Int(1, maxSigners, 1)), Stages: map[string][]string{}, Requires: map[string]string{}}
	if _, err := path.Match(r.Models, "x"); err != nil || r.Models == "" {
		f["match"].Refuse("BadGlob", "match is "+clip(r.Models), "a glob such as nlp-*", "")
	}
	for name, who := range f["stages"].Entries() {
		if !slices.Contains(stages, name) {
			who.Refuse("UnknownStage", "the stage "+clip(name), "one of "+strings.Join(stages, ", "), "add it to stages at the top")
		}
		r.Stages[name] = people(who)
	}
	for name, value := range f["requires"].Required("the environment that a release is trained in, such as requires: {os: linux, probe: \"v1 sha256:…\"}").Entries() {
		r.Requires[name] = value.Any("")
	}
	if f["requires"].Given() && len(r.Requires) == 0 {
		f["requires"].Refuse("Empty", "requires is empty", "at least one field of the environment", "")
	} else if f["requires"].Given() && r.Requires["probe"] == "" && r.Requires["probe_run"] == "" {
		f["requires"].Refuse("NoProbe", "requires pins no probe, so no computation of the machine is held against the pinned one", `probe: "v1 sha256:…", or a probe_run of your own`,
			"on a machine of the pinned class headway-agent facts prints the line (headway-lane agent facts does too); docs/attestation.md has both kinds")
	}
	return r
}

func people(v plan.Value) (out []string) {
	for _, p := range v.List(maxPeople) {
		out = append(out, p.Text(""))
	}
	if v.Given() && len(out) == 0 {
		v.Refuse("Empty", v.Name()+" names nobody", "principals of "+SignersFile, "")
	}
	return out
}

// Rule is what holds for a model; nil: nothing may be released under its name.
func (p *Policy) Rule(model string) *Rule {
	for i, r := range p.Rules {
		if ok, _ := path.Match(r.Models, model); ok {
			return &p.Rules[i]
		}
	}
	return nil
}

// may says whether a principal may make a tag of this name.
func (p *Policy) may(who string, n Name) bool {
	r := p.Rule(n.Model)
	if r == nil || who == "" {
		return false
	}
	if n.Stage != "" {
		return slices.Contains(r.Stages[n.Stage], who)
	}
	return slices.Contains(r.Release, who)
}

// rights says what a principal may do, for a sentence.
func (p *Policy) rights(who string) string {
	var release, stage []string
	for _, r := range p.Rules {
		if slices.Contains(r.Release, who) {
			release = append(release, r.Models)
		}
		for _, s := range p.Stages {
			if slices.Contains(r.Stages[s], who) {
				stage = append(stage, s+" of "+r.Models)
			}
		}
	}
	var out []string
	if len(release) > 0 {
		out = append(out, "release "+strings.Join(release, ", "))
	}
	if len(stage) > 0 {
		out = append(out, "point "+strings.Join(stage, ", "))
	}
	if len(out) == 0 {
		return "release nothing"
	}
	return strings.Join(out, " and ")
}

// EnvDigest is what the trailer Env-Fingerprint holds: the sha256 of the pinned environment, one NAME=VALUE a line in
// the order of the names, values quoted as Go does.
func EnvDigest(requires map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(requires)) {
		fmt.Fprintf(&b, "%s=%q\n", name, requires[name])
	}
	return record.Hash([]byte(b.String()))
}
