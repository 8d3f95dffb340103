package tag

import (
	"fmt"
	"strings"
)

// Prepared is a tag that waits for a signature: git tag -s -F FILE NAME COMMIT, where FILE holds Text.
type Prepared struct {
	Name string
	Text string
}

// Prepare fills what follows from the policy into a release's message (Env, Generation, Parent, and the subject where there
// is none) and says at once what a look would refuse for the ledger's or the policy's sake: a *Refusal. Whether the candidate
// is what m says, the caller has looked up.
func Prepare(m Message, entries []Entry, p *Policy) (Prepared, error) {
	n, r := Parse(refTags+dirRelease+m.Model+"/"+m.Version, p.Stages)
	if r != nil {
		return Prepared{}, r
	}
	rule := p.Rule(m.Model)
	if rule == nil {
		return Prepared{}, fmt.Errorf("lane/policy.yaml has no rule for the model %s: add one, in a commit that a root key signs", clip(m.Model))
	}
	m.Env, m.Generation, m.Parent = EnvDigest(rule.Requires), 2, m.Candidate
	if m.Subject == "" {
		m.Subject = fmt.Sprintf("release %s %s", m.Model, m.Version)
	}
	return prepared(n, m, entries)
}

// PrepareStage writes the message that points a stage at a version, or takes it away (version none); the number is the next
// one. s is what the lane's records say of the version, nil for none.
func PrepareStage(repo, model, stage, version, reason string, s *Standing, entries []Entry, p *Policy) (Prepared, error) {
	k, previous := NextStage(entries, stage)
	n, r := Parse(Name{Model: model, Stage: stage, N: k}.Ref(), p.Stages)
	if r != nil {
		return Prepared{}, r
	}
	m := Message{Subject: fmt.Sprintf("point %s of %s at %s", stage, model, version), Repo: repo, Model: model, Version: version, Previous: previous, Reason: reason}
	if version != None && s != nil {
		m.Evidence = s.Record
	}
	q := &inquiry{name: n, message: &m, entries: entries, standing: s, policy: p}
	if r := checkStanding(q); r != nil {
		return Prepared{}, r
	}
	return prepared(n, m, entries)
}

func prepared(n Name, m Message, entries []Entry) (Prepared, error) {
	text, err := m.Text()
	if err != nil {
		return Prepared{}, err
	}
	q := &inquiry{ref: Ref{Name: n.Ref()}, name: n, message: &m, entries: entries}
	if was, _ := first(entries, n.Ref()); was != nil {
		next := n
		if n.Stage == "" {
			next.Version = NextVersion(entries, n.Version)
		}
		return Prepared{}, fmt.Errorf("%s is in the ledger (%s), and a name is judged once: take %s", n, was.Code, strings.TrimPrefix(next.Ref(), refTags))
	}
	if r := checkVersion(q); r != nil {
		return Prepared{}, r
	}
	return Prepared{n.String(), text}, nil
}
