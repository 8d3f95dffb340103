package tag

import (
	"fmt"
	"strings"
	"unicode"
)

// Code is the stable word of a verdict on a tag.
type Code string

// The verdicts. All but Accepted refuse, in the order in which they are looked for; TagDeleted is a note, no verdict.
const (
	Accepted        Code = "Accepted"
	BadTagName      Code = "BadTagName"
	LightweightTag  Code = "LightweightTag"
	Malformed       Code = "Malformed"
	NotACommit      Code = "NotACommit"
	TagNameMismatch Code = "TagNameMismatch"
	Unsigned        Code = "Unsigned"
	ManySignatures  Code = "MultipleSignatures"
	WrongNamespace  Code = "WrongNamespace"
	WeakKey         Code = "WeakKey"
	BadSignature    Code = "BadSignature"
	UnknownSigner   Code = "UnknownSigner"
	SignerRevoked   Code = "SignerRevoked"
	NotAllowed      Code = "SignerNotAllowed"
	NotValid        Code = "SignerNotValidAtFirstSight"
	BadMessage      Code = "BadMessage"
	WrongRepository Code = "WrongRepository"
	NotOnBranch     Code = "NotOnProtectedBranch"
	TagMoved        Code = "TagMoved"
	VersionNotNewer Code = "VersionNotNewer"
	StageGap        Code = "StageGap"
	StageFork       Code = "StageFork"
	PlanMismatch    Code = "PlanMismatch"
	NotSecond       Code = "NotSecondGeneration"
	EnvNotPinned    Code = "EnvNotPinned"
	EvidenceMissing Code = "EvidenceMissing"
	SpreadTooWide   Code = "SpreadTooWide"
	Artifact        Code = "ArtifactMismatch"
	NeedSecond      Code = "NeedSecondSigner"
	TagDeleted      Code = "TagDeleted"
)

// Sentence is what a code says. Words in braces stand for what was found.
type Sentence struct {
	Code Code
	When string // it is said
	Text string
}

// Sentences gives all of them, in the order of the checks.
func Sentences() []Sentence { return append([]Sentence(nil), sentences...) }

// sentences is the table of all texts that refuse a tag, or say of one that it is gone.
var sentences = []Sentence{
	{BadTagName, "a name under release/ or stage/ that is none of ours", "{tag} is no name of the lane: {why}"},
	{LightweightTag, "the ref is not a tag object", "{tag} points straight at a {kind}, and such a tag carries no signer; its name is spent: prepare {next} and create it with git tag -s"},
	{Malformed, "the tag object is not what git tag writes, or holds what a person cannot see", "the tag object of {tag} cannot be trusted to be read alike by everybody: {why}; its name is spent: prepare {next} and create it with git tag -s"},
	{NotACommit, "the target is another tag, a tree or a blob", "{tag} tags a {kind}, and its name is spent: tag the commit itself, as {next}"},
	{TagNameMismatch, "the name inside the object is another one", "{tag} points at the signed tag {name}; its name is spent: push {next} under its own name"},
	{Unsigned, "an annotated tag without a signature", "{tag} is not signed, and its name is spent: prepare {next} and create it with git tag -s"},
	{ManySignatures, "more than one signature block", "{tag} carries {count} signatures, and programs differ in which one they believe; its name is spent: prepare {next} and sign it once"},
	{WrongNamespace, "the signature was made for something else than Git", "the signature of {tag} is not one for Git ({why}); its name is spent: prepare {next} and create it with git tag -s, which signs in the namespace git"},
	{WeakKey, "RSA below 3072 bits, or DSA", "the key that signed {tag} is too weak ({why}); its name is spent: sign {next} with ed25519, ECDSA, a security key, or RSA of 3072 bits and more"},
	{BadSignature, "the signature does not fit the bytes", "the signature of {tag} does not count ({why}); its name is spent: prepare {next} and create it with git tag -s"},
	{UnknownSigner, "the key is not listed", "{tag} is signed by {key}, which lane/allowed_signers does not list: ask its owners, and take {next} then, since the name is spent"},
	{SignerRevoked, "the key is on the list of revoked ones", "{tag} is signed by key {key}, which lane/policy.yaml revokes; its name is spent: sign {next} with another one"},
	{NotAllowed, "listed, but not for this model or stage", "{who} may {may}, and {tag} is none of it: ask somebody whom lane/policy.yaml names for it to sign {next}, since the name is spent"},
	{NotValid, "outside valid-after and valid-before when we first saw the tag", "{why}, and we first saw {tag} at {now}; the date inside the tag does not count; its name is spent: sign {next} with a key that is valid today"},
	{BadMessage, "the message is not a subject and one block of known trailers, each once", "the message of {tag} {why}; its name is spent: headway-lane tag prepare writes one for {next}"},
	{WrongRepository, "the trailer Repo names another repository", "{tag} was signed for {signed}, and this is {here}; its name is spent: prepare and sign {next} here"},
	{NotOnBranch, "the commit cannot be reached from the protected branch", "{tag} is on commit {commit}, which is not on the protected branch: merge it, and tag it as {next}, since the name is spent; what lives on other branches or in forks alone is not released"},
	{TagMoved, "the ledger has another object for this name", "{tag} was first seen as {first} and {how} {now}: what runs goes on under the first; to release something else, take {next}"},
	{VersionNotNewer, "not above the highest accepted version of its major line", "{version} is not above {highest}, the highest that was accepted of {line}: the next one is {next}"},
	{StageGap, "the number is not the next free one", "{tag} comes where {expected} is due: run headway-lane tag prepare again"},
	{StageFork, "Previous is not the stage tag that was accepted last", "{tag} follows {found}, and the one accepted last is {expected}: run headway-lane tag prepare again"},
	{PlanMismatch, "the plan at that commit is not the one that was signed", "{plan} at {commit} has the sha256 {found}, and {tag} was signed for {signed}: prepare and sign anew"},
	{NotSecond, "not the second generation of a first one", "{tag} asks for {found}: a release is generation 2, whose parent is the candidate, of generation 1"},
	{EnvNotPinned, "the environment is not the one that the policy pins", "{tag} was signed for the environment {signed}, and lane/policy.yaml pins {pinned} for {model}: prepare and sign anew"},
	{EvidenceMissing, "what the tag speaks of is not in the store", "{tag} speaks of {what}, and the store has none: {fix}"},
	{SpreadTooWide, "an approval of what the spread check did not pass", "the spread check of {model} {version} says {verdict}: it cannot be approved; release another candidate"},
	{Artifact, "the store has another hash than the tag", "{what} is {found} in the store, and {tag} was signed for {signed}: find out who changed it before anything is signed anew"},
	{NeedSecond, "the policy wants more signers", "{model} {version} waits for {missing} more of {needed} signers: somebody else than {who} signs stage/{model}/STAGE/N (headway-lane tag prepare writes its message)"},
	{TagDeleted, "an accepted tag is no longer there", "{tag} ({object}) was deleted: nothing changes, the ledger keeps what it started"},
}

// Refusal is a verdict that refuses, in one sentence.
type Refusal struct {
	Code Code
	Text string
}

func (r *Refusal) Error() string { return string(r.Code) + ": " + r.Text }

// refuse fills the sentence of a code. Values are foreign text: they are cut and escaped here.
func refuse(code Code, pairs ...string) *Refusal {
	for _, s := range sentences {
		if s.Code != code {
			continue
		}
		for i := 1; i < len(pairs); i += 2 {
			pairs[i] = clip(pairs[i])
		}
		for i := 0; i < len(pairs); i += 2 {
			pairs[i] = "{" + pairs[i] + "}"
		}
		return &Refusal{code, strings.NewReplacer(pairs...).Replace(s.Text)}
	}
	return &Refusal{code, string(code)}
}

// clip makes foreign text fit into a sentence: about 300 bytes, what cannot be printed escaped. Twice is as once.
func clip(s string) string {
	var b strings.Builder
	for _, r := range s {
		if b.Len() > 300 {
			return b.String() + "…"
		}
		switch {
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

func short(id string) string {
	if len(id) > 12 {
		return id[:12]
	}
	return id
}
