// Package access words who may do what in the stores, as policies that S3 servers enforce: research never writes what is
// the lane's, the lane never writes what is research's, and a worker of the lane writes one attempt of one work. It decides
// nothing at run time: a policy that nobody put in force protects nothing, which is why a test puts these in force on a
// real server and tries every key.
package access

import (
	"fmt"
	"net/url"
	"path"
	"strings"

	"github.com/headway-run/headway/runners/record"
)

// Place is where a store lies: a bucket, and the prefix of its keys, "" or with a slash at its end.
type Place struct{ Bucket, Prefix string }

// At reads the place of a store's URL, s3://BUCKET/PREFIX. Its parameters say how the server is reached, not where things lie.
func At(store string) (Place, error) {
	u, err := url.Parse(store)
	if err != nil || u.Scheme != "s3" || u.Host == "" {
		return Place{}, fmt.Errorf("%.200q has no policies: expected s3://BUCKET/PREFIX; a folder's owner and mode say who writes it", store)
	}
	p := Place{Bucket: u.Host, Prefix: strings.TrimPrefix(path.Clean("/"+u.Path), "/")}
	if p.Prefix != "" {
		p.Prefix += "/"
	}
	if strings.ContainsAny(p.Prefix, "*?${}") {
		return Place{}, fmt.Errorf("the prefix %.200q has a character that a policy reads as a pattern: expected letters, digits, - _ . and /", p.Prefix)
	}
	return p, nil
}

// Overlaps says whether one of two places lies in the other, or is it.
func (p Place) Overlaps(o Place) bool {
	return p.Bucket == o.Bucket && (strings.HasPrefix(p.Prefix, o.Prefix) || strings.HasPrefix(o.Prefix, p.Prefix))
}

func (p Place) bucket() string { return "arn:aws:s3:::" + p.Bucket }

// keys names keys of the place; a * in them means anything.
func (p Place) keys(patterns ...string) []string {
	out := make([]string, len(patterns))
	for i, k := range patterns {
		out[i] = p.bucket() + "/" + p.Prefix + k
	}
	return out
}

// Policy is a policy document in AWS's language, which other S3 servers read as well.
type Policy struct {
	Version   string
	Statement []Statement
}

// Statement of a policy. A statement without a principal is one of an identity or of a session.
type Statement struct {
	Sid       string
	Effect    string
	Principal *Principal `json:",omitempty"`
	Action    []string
	Resource  []string
	Condition map[string]map[string][]string `json:",omitempty"`
}

// Principal is whom a statement of a bucket's policy is about, as the server calls it: an ARN, or an access key.
type Principal struct{ AWS []string }

// NotApart says that two stores cannot be kept apart by policies.
type NotApart struct{ Research, Lane Place }

func (e *NotApart) Error() string {
	return fmt.Sprintf("the stores of research (s3://%s/%s) and of the lane (s3://%s/%s) lie one in the other: no policy tells their keys apart for sure; give the lane a bucket of its own, or each of the two its own prefix",
		e.Research.Bucket, e.Research.Prefix, e.Lane.Bucket, e.Lane.Prefix)
}

// The actions of S3 that headway's verbs come to. Whole objects only: no versions, no access lists, no tags.
func reads() []string   { return []string{"s3:GetObject"} }
func lists() []string   { return []string{"s3:ListBucket"} }
func writes() []string  { return []string{"s3:PutObject", "s3:AbortMultipartUpload"} }
func removes() []string { return []string{"s3:DeleteObject"} }

// Separate is each bucket's policy that keeps research and the lane apart, by bucket. Who writes research may read the
// lane's records (its collector has to know what a release names) and write none; who writes the lane may read all of
// research and write nothing there. Refusals are said outright, so that no wider grant elsewhere undoes them. The error is
// a *NotApart.
func Separate(research, lane string, at, own Place) (map[string]Policy, error) {
	if at.Overlaps(own) {
		return nil, &NotApart{at, own}
	}
	out := map[string]Policy{}
	add := func(p Place, sid, effect, who string, actions, resources []string, prefix string) {
		s := Statement{Sid: sid, Effect: effect, Principal: &Principal{AWS: []string{who}}, Action: actions, Resource: resources}
		if prefix != "" {
			s.Condition = within(prefix)
		}
		d := out[p.Bucket]
		d.Version, d.Statement = version, append(d.Statement, s)
		out[p.Bucket] = d
	}
	all := func(p Place) []string { return p.keys("*") }
	add(at, "ResearchUsesItsOwn", "Allow", research, join(reads(), writes(), removes()), all(at), "")
	add(at, "ResearchListsItsOwn", "Allow", research, lists(), []string{at.bucket()}, at.Prefix+"*")
	add(own, "ResearchReadsTheLane", "Allow", research, reads(), all(own), "")
	add(own, "ResearchListsTheLane", "Allow", research, lists(), []string{own.bucket()}, own.Prefix+"*")
	add(own, "ResearchWritesNoLane", "Deny", research, join(writes(), removes()), all(own), "")
	add(own, "LaneUsesItsOwn", "Allow", lane, join(reads(), writes()), all(own), "")
	add(own, "LaneListsItsOwn", "Allow", lane, lists(), []string{own.bucket()}, own.Prefix+"*")
	add(at, "LaneReadsResearch", "Allow", lane, reads(), all(at), "")
	add(at, "LaneListsResearch", "Allow", lane, lists(), []string{at.bucket()}, at.Prefix+"*")
	add(at, "LaneWritesNoResearch", "Deny", lane, join(writes(), removes()), all(at), "")
	return out, nil
}

// Attempt is what one worker of the lane is launched for.
type Attempt struct {
	Work     string // digest
	Dispatch int64
	Attempt  int64    // the one that its capture makes
	Code     string   // id of its code's tree; "": none
	Inputs   []string // digests of the works it reads
}

// Worker is what a worker of the lane may do: hold its lease, read what its work is made of, and write its own attempt. It
// reads the work's other attempts, to go on from their milestones, and changes none. The statements have no principal:
// they are a session's, or get one by For.
func Worker(own Place, a Attempt) Policy {
	work := record.WorkPrefix(a.Work)
	readable := []string{record.WitnessKey(a.Work), work + "*"}
	if a.Code != "" {
		readable = append(readable, record.CodeKey(a.Code))
	}
	for _, in := range a.Inputs {
		readable = append(readable, record.WitnessKey(in), record.WorkPrefix(in)+"*") // its lease says which attempt finished
	}
	return Policy{Version: version, Statement: []Statement{
		{Sid: "ReadItsWork", Effect: "Allow", Action: reads(), Resource: own.keys(readable...)},
		{Sid: "SeeWhetherItIsTheFirst", Effect: "Allow", Action: lists(), Resource: []string{own.bucket()}, Condition: within(own.Prefix + work + "*")},
		{Sid: "HoldItsLease", Effect: "Allow", Action: []string{"s3:PutObject"},
			Resource: own.keys(record.WitnessKey(a.Work), record.RefusalKey(a.Work, a.Dispatch))},
		{Sid: "WriteItsAttempt", Effect: "Allow", Action: writes(), Resource: own.keys(record.AttemptPrefix(a.Work, a.Attempt) + "*")},
	}}
}

// For is the policy of a bucket with its statements given to one principal.
func (p Policy) For(who string) Policy {
	out := Policy{Version: p.Version}
	for _, s := range p.Statement {
		s.Principal = &Principal{AWS: []string{who}}
		out.Statement = append(out.Statement, s)
	}
	return out
}

const version = "2012-10-17"

func within(prefix string) map[string]map[string][]string {
	return map[string]map[string][]string{"StringLike": {"s3:prefix": {prefix}}}
}

func join(lists ...[]string) (out []string) {
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}
