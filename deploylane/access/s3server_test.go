//go:build s3server

package access_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	aws3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/deploylane/access"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/s3"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// server is the line that .ci/s3server/run hands to its command.
type server struct {
	Endpoint, Access, Secret, Region string
	Users                            map[string]string
}

// site is a bucket of a test's own on the real server, with the policies in force.
type site struct {
	t      *testing.T
	s      server
	admin  *aws3.Client
	bucket string
	own    access.Place
	policy access.Policy
}

func newSite(t *testing.T) *site {
	t.Helper()
	g := &site{t: t, bucket: fmt.Sprintf("apart-%d", time.Now().UnixNano())}
	if err := json.Unmarshal([]byte(os.Getenv("HEADWAY_TEST_S3")), &g.s); err != nil {
		t.Fatalf("HEADWAY_TEST_S3 does not describe a server (%v): run .ci/s3server/run go test -tags s3server ./deploylane/access", err)
	}
	g.admin = aws3.New(aws3.Options{BaseEndpoint: &g.s.Endpoint, Region: g.s.Region, UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(g.s.Access, g.s.Secret, "")})
	if _, err := g.admin.CreateBucket(t.Context(), &aws3.CreateBucketInput{Bucket: &g.bucket}); err != nil {
		t.Fatal(err)
	}
	var err error
	g.own = access.Place{Bucket: g.bucket, Prefix: "lane/"}
	apart, err := access.Separate("research", "lane", access.Place{Bucket: g.bucket, Prefix: "research/"}, g.own)
	if err != nil {
		t.Fatal(err)
	}
	g.policy = apart[g.bucket]
	g.enforce(g.policy)
	return g
}

func (g *site) enforce(p access.Policy) {
	g.t.Helper()
	b, err := json.Marshal(p)
	if err != nil {
		g.t.Fatal(err)
	}
	if _, err := g.admin.PutBucketPolicy(g.t.Context(), &aws3.PutBucketPolicyInput{Bucket: &g.bucket, Policy: aws.String(string(b))}); err != nil {
		g.t.Fatal(err)
	}
}

// as opens a prefix of the bucket with the keys of one user; "": the server's owner, whom no policy binds.
func (g *site) as(user, prefix string) bucket.Bucket {
	g.t.Helper()
	keys := credentials.NewStaticCredentialsProvider(g.s.Access, g.s.Secret, "")
	if user != "" {
		keys = credentials.NewStaticCredentialsProvider(user, g.s.Users[user], "")
	}
	b, err := s3.New(s3.Config{Endpoint: g.s.Endpoint, Region: g.s.Region, Bucket: g.bucket, Prefix: prefix, PathStyle: true, Credentials: keys})
	if err != nil {
		g.t.Fatal(err)
	}
	return b
}

// may says which of the verbs a user may do on a key: "r", "w" (each of the three conditions), "d", "l" for the listing
// of its folder.
func (g *site) may(user, prefix, key string) string {
	g.t.Helper()
	owner, b := g.as("", prefix), g.as(user, prefix)
	if _, err := owner.Put(g.t.Context(), key, strings.NewReader("theirs"), bucket.Always()); err != nil {
		g.t.Fatal(err)
	}
	head, err := owner.Get(g.t.Context(), key, bucket.Range{})
	if err != nil {
		g.t.Fatal(err)
	}
	_ = head.Body.Close()
	var out strings.Builder
	tell := func(verb string, err error) {
		switch {
		case err == nil || bucket.Is(err, bucket.NotFound) || bucket.Is(err, bucket.Condition) || bucket.Is(err, bucket.Raced):
			out.WriteString(verb)
		case !bucket.Is(err, bucket.Denied):
			g.t.Fatalf("%s %s %s%s: %v", user, verb, prefix, key, err)
		}
	}
	o, err := b.Get(g.t.Context(), key, bucket.Range{})
	if err == nil {
		_, err = io.Copy(io.Discard, o.Body)
		_ = o.Body.Close()
	}
	tell("r", err)
	_, err = b.Put(g.t.Context(), key, strings.NewReader("mine"), bucket.Always())
	tell("w", err)
	_, err = b.Put(g.t.Context(), key+".new", strings.NewReader("mine"), bucket.IfAbsent())
	tell("c", err)
	_, err = b.Put(g.t.Context(), key, strings.NewReader("mine"), bucket.IfIs(head.Version))
	tell("s", err)
	tell("d", b.Delete(g.t.Context(), key))
	_, err = b.List(g.t.Context(), key[:strings.LastIndex(key, "/")+1], "", 1)
	tell("l", err)
	return out.String()
}

func TestS3ServerResearchAndTheLaneAreApart(t *testing.T) {
	g := newSite(t)
	w := strings.Repeat("ab", 32)
	got := map[string]string{}
	for _, user := range []string{"research", "lane", "worker"} {
		for _, key := range []string{record.WitnessKey(w), record.ClaimKey(w, 1), record.ResultManifestKey(w, 1), "lane/digits/current", "lane/ledger/1.json"} {
			for _, prefix := range []string{"research/", "lane/"} {
				got[user+" "+prefix] += " " + g.may(user, prefix, key)
			}
		}
	}
	want := map[string]string{
		"research research/": " rwcsdl rwcsdl rwcsdl rwcsdl rwcsdl",
		"research lane/":     " rl rl rl rl rl",
		"lane research/":     " rl rl rl rl rl",
		"lane lane/":         " rwcsl rwcsl rwcsl rwcsl rwcsl",
		"worker research/":   "     ",
		"worker lane/":       "     ",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	// A wider grant does not undo the refusal.
	wide := g.policy
	wide.Statement = append(wide.Statement, access.Statement{Sid: "All", Effect: "Allow", Principal: &access.Principal{AWS: []string{"research", "lane"}},
		Action: []string{"s3:*"}, Resource: []string{"arn:aws:s3:::" + g.bucket, "arn:aws:s3:::" + g.bucket + "/*"}})
	g.enforce(wide)
	if r, l := g.may("research", "lane/", "lane/digits/current"), g.may("lane", "research/", record.WitnessKey(w)); r != "rl" || l != "rl" {
		t.Errorf("under a grant of everything: research %q, lane %q", r, l)
	}
}

func TestS3ServerAWorkerOfTheLaneHasItsAttemptOnly(t *testing.T) {
	g := newSite(t)
	mine, other, input, code := strings.Repeat("ab", 32), strings.Repeat("cd", 32), strings.Repeat("ef", 32), strings.Repeat("12", 20)
	p := g.policy
	p.Statement = append(p.Statement, access.Worker(g.own, access.Attempt{Work: mine, Dispatch: 3, Attempt: 2, Code: code, Inputs: []string{input}}).For("worker").Statement...)
	g.enforce(p)
	got := map[string]string{}
	for name, key := range map[string]string{
		"its lease":              record.WitnessKey(mine),
		"its claim":              record.ClaimKey(mine, 3),
		"its spec":               record.SpecKey(mine),
		"its attempt's result":   record.ResultManifestKey(mine, 2),
		"its attempt's log":      record.SegmentKey(record.LogPrefix(mine, 2), 0),
		"an earlier milestone":   record.MilestoneManifestKey(mine, 1, 4),
		"a later attempt":        record.OpenKey(mine, 3),
		"its code":               record.CodeKey(code),
		"an input":               record.ResultManifestKey(input, 1),
		"an input's lease":       record.WitnessKey(input),
		"another work's lease":   record.WitnessKey(other),
		"another work's result":  record.ResultManifestKey(other, 2),
		"another bundle":         record.CodeKey(strings.Repeat("34", 20)),
		"the lane's records":     "lane/digits/v1.0.0/release.json",
		"the pointer":            "lane/digits/current",
		"the ledger":             "lane/ledger/1.json",
		"a platform's state":     record.PlatformKey("pinned"),
		"an attempt that begins": record.AttemptPrefix(mine, 20) + "open.json",
	} {
		got[name] = g.may("worker", "lane/", key)
	}
	want := map[string]string{
		"its lease": "rws", "its claim": "rl", "its spec": "rl", "its attempt's result": "rwcsl", "its attempt's log": "rwcsl",
		"an earlier milestone": "rl", "a later attempt": "rl", "its code": "r", "an input": "r", "an input's lease": "r", "another work's lease": "", "another work's result": "",
		"another bundle": "", "the lane's records": "", "the pointer": "", "the ledger": "", "a platform's state": "", "an attempt that begins": "rl",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// With no more than these rights a worker takes its lease and ends.
func TestS3ServerTheRightsAreEnoughForALease(t *testing.T) {
	g := newSite(t)
	w := strings.Repeat("ab", 32)
	p := g.policy
	p.Statement = append(p.Statement, access.Worker(g.own, access.Attempt{Work: w, Dispatch: 1, Attempt: 1}).For("worker").Statement...)
	g.enforce(p)
	claim, err := record.Encode(record.Claim{Protocol: record.Protocol, Work: w, Dispatch: 1, Nonce: record.Nonce()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.as("lane", "lane/").Put(t.Context(), record.ClaimKey(w, 1), bytes.NewReader(claim), bucket.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	b := g.as("worker", "lane/")
	h, err := witness.Capture(t.Context(), b, witness.CaptureRequest{Work: w, Dispatch: 1, Lease: witness.Lease{Seconds: 60, Phase: "start"}})
	if err != nil {
		t.Fatal(err)
	}
	if v := h.Open(t.Context(), record.Open{Protocol: record.Protocol, Work: w, Attempt: 1, Dispatch: 1}); v.Over() {
		t.Fatalf("%+v", v)
	}
	if v := h.Renew(t.Context(), witness.Progress{Step: 1}, witness.Lease{Seconds: 60, Phase: "run"}); v.Over() {
		t.Fatalf("%+v", v)
	}
	if v := h.Yield(t.Context(), "the test is over"); v.Outcome != witness.Won {
		t.Fatalf("%+v", v)
	}
}
