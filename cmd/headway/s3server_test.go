//go:build s3server

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
)

// TestS3ServerFaults: on a real server, a bucket that is missing and credentials that are wrong each get one sentence, and
// what was finished before stays whole.
func TestS3ServerFaults(t *testing.T) {
	var s struct{ Endpoint, Access, Secret, Region, Bucket string }
	if err := json.Unmarshal([]byte(os.Getenv("HEADWAY_TEST_S3")), &s); err != nil {
		t.Fatalf("HEADWAY_TEST_S3 does not describe a server (%v): run .ci/s3server/run go test -tags s3server ./cmd/headway -run S3Server", err)
	}
	url := func(bucket string) string {
		return fmt.Sprintf("s3://%s/faults?endpoint=%s&region=%s&path_style=true", bucket, s.Endpoint, s.Region)
	}
	right := []string{"AWS_ACCESS_KEY_ID=" + s.Access, "AWS_SECRET_ACCESS_KEY=" + s.Secret}
	p := newStoreProject(t, built(t), url(s.Bucket), right...)
	p.run("apply --wait", 0, "finished by attempt 1")

	p.keys = []string{"AWS_ACCESS_KEY_ID=" + s.Access, "AWS_SECRET_ACCESS_KEY=wrong-but-still-secret"}
	for _, verb := range []string{"status", "plan", "apply", "revoke job", "explain job", "fetch job"} {
		p.run(verb, 1, "error: ", "Denied", "hint: ")
	}
	p.keys = []string{"AWS_ACCESS_KEY_ID=nobody", "AWS_SECRET_ACCESS_KEY=wrong-but-still-secret"}
	p.run("apply", 1, "error: ", "Denied", "hint: ")
	p.keys = nil
	p.run("apply", 1, "error: ", "credentials")

	p.keys = right
	p.on(url("no-such-bucket-here"))
	p.commit("another bucket")
	for _, verb := range []string{"status", "plan", "apply", "apply --wait"} {
		p.run(verb, 1, "error: ", "NoBucket", "no-such-bucket-here", "hint: ")
	}

	p.on(url(s.Bucket))
	p.commit("the right one again")
	p.run("status", 0, "finished")
	p.run("apply --wait", 0)
	p.run("doctor --deep", 0, " 0 findings")
}
