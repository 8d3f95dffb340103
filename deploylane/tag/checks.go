package tag

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

func (q *inquiry) tag() string { return q.name.String() }

// next is the name to take instead of this one: whatever is said of a tag spends its name.
func (q *inquiry) next() string {
	seen := append(slices.Clone(q.entries), Entry{Ref: q.ref.Name, Object: q.ref.Object})
	if q.name.Stage != "" {
		n, _ := NextStage(seen, q.name.Stage)
		return Name{Model: q.name.Model, Stage: q.name.Stage, N: n}.String()
	}
	return Name{Model: q.name.Model, Version: NextVersion(seen, q.name.Version)}.String()
}

func checkName(q *inquiry) (r *Refusal) {
	q.name, r = Parse(q.ref.Name, q.policy.Stages)
	return r
}

func checkKind(q *inquiry) *Refusal {
	switch {
	case q.kind != "tag":
		return refuse(LightweightTag, "tag", q.tag(), "kind", q.kind, "next", q.next())
	case q.malformed != nil:
		return refuse(Malformed, "tag", q.tag(), "why", q.malformed.Error(), "next", q.next())
	}
	return nil
}

func checkObject(q *inquiry) *Refusal {
	switch o := q.object; {
	case o.Kind != "commit":
		return refuse(NotACommit, "tag", q.tag(), "next", q.next(), "kind", o.Kind)
	case o.Name != q.tag():
		return refuse(TagNameMismatch, "tag", q.tag(), "next", q.next(), "name", o.Name)
	case o.Signatures == 0:
		return refuse(Unsigned, "tag", q.tag(), "next", q.next())
	case o.Signatures > 1:
		return refuse(ManySignatures, "tag", q.tag(), "count", strconv.Itoa(o.Signatures), "next", q.next())
	}
	return nil
}

// checkSignature refuses what no known key vouches for. A key that is known and not valid now waits for checkSigner: that
// its owner may not do this at all is said first.
func checkSignature(q *inquiry) *Refusal {
	if q.unsigned == nil || q.unsigned.Code == NotValid {
		return nil
	}
	pairs := []string{"tag", q.tag(), "why", q.unsigned.Text, "key", cmp.Or(q.key, "an OpenPGP key"), "next", q.next()}
	switch q.unsigned.Code {
	case WrongNamespace, WeakKey, UnknownSigner, Unsigned:
		return refuse(q.unsigned.Code, pairs...)
	}
	return refuse(BadSignature, pairs...)
}

func checkSigner(q *inquiry) *Refusal {
	switch {
	case slices.Contains(q.policy.Revoked, q.key):
		return refuse(SignerRevoked, "tag", q.tag(), "next", q.next(), "key", q.key)
	case !q.policy.may(q.who, q.name):
		return refuse(NotAllowed, "tag", q.tag(), "next", q.next(), "who", cmp.Or(q.who, "its signer"), "may", q.policy.rights(q.who))
	case q.unsigned != nil:
		return refuse(NotValid, "tag", q.tag(), "next", q.next(), "why", q.unsigned.Text, "now", q.now.UTC().Format(time.RFC3339))
	}
	return nil
}

func checkMessage(q *inquiry) *Refusal {
	m, err := ParseMessage(q.object.Message, q.name.Stage == "")
	bad := func(why string) *Refusal { return refuse(BadMessage, "tag", q.tag(), "next", q.next(), "why", why) }
	switch {
	case err != nil:
		return bad(err.Error())
	case m.Model != q.name.Model:
		return bad("is about the model " + m.Model)
	case q.name.Stage == "" && m.Version != q.name.Version.String():
		return bad("is about the version " + m.Version)
	}
	q.message = m
	return nil
}

func checkRepo(q *inquiry) *Refusal {
	if q.message.Repo != q.repo {
		return refuse(WrongRepository, "tag", q.tag(), "next", q.next(), "signed", q.message.Repo, "here", q.repo)
	}
	return nil
}

func checkBranch(q *inquiry) *Refusal {
	if !q.onBranch {
		return refuse(NotOnBranch, "tag", q.tag(), "next", q.next(), "commit", short(q.object.Target))
	}
	return nil
}

// checkMoved looks for another object under this name. Who is seen first has the name, be it that he was refused.
func checkMoved(q *inquiry) *Refusal {
	was, deleted := first(q.entries, q.ref.Name)
	if was == nil || was.Object == q.ref.Object {
		return nil
	}
	how := "is now"
	if deleted {
		how = "was deleted and made again as"
	}
	return refuse(TagMoved, "tag", q.tag(), "first", short(was.Object), "how", how, "now", short(q.ref.Object), "next", q.next())
}

func checkVersion(q *inquiry) *Refusal {
	if q.name.Stage != "" {
		return nil
	}
	v := q.name.Version
	best, any := highest(q.entries, v.Major)
	if !any || v.Compare(best) > 0 {
		return nil
	}
	return refuse(VersionNotNewer, "version", v.String(), "highest", best.String(), "line", fmt.Sprintf("v%d", v.Major),
		"next", NextVersion(q.entries, v).String())
}

func checkStage(q *inquiry) *Refusal {
	if q.name.Stage == "" {
		return nil
	}
	n, previous := NextStage(q.entries, q.name.Stage)
	if q.name.N != n {
		return refuse(StageGap, "tag", q.tag(), "expected", Name{Model: q.name.Model, Stage: q.name.Stage, N: n}.String())
	}
	if q.message.Previous != previous {
		return refuse(StageFork, "tag", q.tag(), "found", short(q.message.Previous), "expected", short(previous))
	}
	return nil
}

func checkPlan(q *inquiry) *Refusal {
	if q.name.Stage != "" || q.planSum == q.message.PlanSHA256 {
		return nil
	}
	return refuse(PlanMismatch, "tag", q.tag(), "plan", q.message.Plan, "commit", short(q.object.Target), "found", cmp.Or(short(q.planSum), "nothing"),
		"signed", short(q.message.PlanSHA256))
}

// checkPinned holds what the message asks for against the policy: a second generation, in the environment that it pins.
func checkPinned(q *inquiry) *Refusal {
	if q.name.Stage != "" {
		return nil
	}
	m := q.message
	if m.Generation != 2 {
		return refuse(NotSecond, "tag", q.tag(), "found", fmt.Sprintf("generation %d", m.Generation))
	}
	if m.Parent != m.Candidate {
		return refuse(NotSecond, "tag", q.tag(), "found", "the parent "+short(m.Parent)+" and the candidate "+short(m.Candidate))
	}
	if pinned := EnvDigest(q.policy.Rule(q.name.Model).Requires); m.Env != pinned {
		return refuse(EnvNotPinned, "tag", q.tag(), "signed", short(m.Env), "pinned", short(pinned), "model", q.name.Model)
	}
	return nil
}

// checkEvidence holds what the message speaks of against what the stores have.
func checkEvidence(q *inquiry) *Refusal {
	if q.name.Stage != "" {
		return checkStanding(q)
	}
	m, c := q.message, q.candidate
	what := fmt.Sprintf("the result of attempt %d of work %s", m.Attempt, short(m.Candidate))
	switch {
	case c == nil:
		return refuse(EvidenceMissing, "tag", q.tag(), "what", what, "fix", "tag a candidate that has finished")
	case c.Generation != 1:
		return refuse(NotSecond, "tag", q.tag(), "found", fmt.Sprintf("a child of work %s, which is of generation %d", short(m.Candidate), c.Generation))
	case c.Manifest != m.Artifact:
		return refuse(Artifact, "tag", q.tag(), "what", what, "found", short(c.Manifest), "signed", short(m.Artifact))
	}
	return nil
}

func checkStanding(q *inquiry) *Refusal {
	m, s := q.message, q.standing
	switch {
	case m.Version == None:
	case Release(q.entries, m.Version) == nil:
		return refuse(EvidenceMissing, "tag", q.tag(), "what", "the version "+m.Version, "fix", "point it at a version whose release tag was accepted")
	case s == nil:
		return refuse(EvidenceMissing, "tag", q.tag(), "what", "a backtest of "+m.Version, "fix", "sign once headway-lane show says that it waits for a signer")
	case s.Released && m.Reason == "":
		return refuse(BadMessage, "tag", q.tag(), "next", q.next(), "why", "points back at "+m.Version+", which was released before, and gives no Reason (--reason \"…\")")
	case !s.Released && s.Spread != "within" && s.Spread != "better":
		return refuse(SpreadTooWide, "model", q.name.Model, "version", m.Version, "verdict", cmp.Or(s.Spread, "nothing"))
	case s.Record != m.Evidence:
		return refuse(Artifact, "tag", q.tag(), "what", "the record of "+m.Version, "found", short(s.Record), "signed", short(m.Evidence))
	}
	return nil
}

// signersOf says who vouches for a release: the principals that signed it, and the stage tags of its version that came after
// it, each with the key that they used. A person counts once, and so does a key.
func signersOf(entries []Entry, version string) (who []string) {
	keys := map[string]bool{}
	for _, e := range entries {
		if e.Code != Accepted || e.Message == nil || e.Message.Version != version || slices.Contains(who, e.Signer) || keys[e.Key] {
			continue
		}
		who, keys[e.Key] = append(who, e.Signer), true
	}
	return who
}

// Approved says whether a version has as many signers as the policy wants: nil, or NeedSecondSigner. It is asked again and
// again, and is no verdict on a tag.
func Approved(entries []Entry, p *Policy, model, version string) *Refusal {
	needed := maxSigners
	if r := p.Rule(model); r != nil {
		needed = r.Signers
	}
	who := signersOf(entries, version)
	if Release(entries, version) != nil && len(who) >= needed {
		return nil
	}
	names := "nobody"
	if len(who) > 0 {
		names = strings.Join(who, ", ")
	}
	return refuse(NeedSecond, "model", model, "version", version, "missing", strconv.Itoa(max(1, needed-len(who))), "needed", strconv.Itoa(needed), "who", names)
}

// Frozen says that a version rests on a key which the policy revokes by now: the sentence, or "".
func Frozen(entries []Entry, p *Policy, version string) string {
	for _, e := range entries {
		if e.Code == Accepted && e.Message != nil && e.Message.Version == version && slices.Contains(p.Revoked, e.Key) {
			return fmt.Sprintf("%s was signed by %s with key %s, which lane/policy.yaml revokes: nothing more is done with %s; take another version",
				clip(e.Name().String()), clip(e.Signer), clip(e.Key), version)
		}
	}
	return ""
}
