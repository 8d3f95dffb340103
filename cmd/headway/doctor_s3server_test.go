//go:build s3server

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/open"
	"github.com/headway-run/headway/runners/record"
)

// TestS3ServerDoctor: on a real server a lease is deleted and a result is cut short by hand; the doctor names both, with
// exit code 1, and the command that it proposes makes the lease anew.
func TestS3ServerDoctor(t *testing.T) {
	var s struct{ Endpoint, Access, Secret, Region, Bucket string }
	if err := json.Unmarshal([]byte(os.Getenv("HEADWAY_TEST_S3")), &s); err != nil {
		t.Fatalf("HEADWAY_TEST_S3 does not describe a server (%v): run .ci/s3server/run go test -tags s3server ./cmd/headway -run S3Server", err)
	}
	where := fmt.Sprintf("s3://%s/doctor-%d?endpoint=%s&region=%s&path_style=true", s.Bucket, time.Now().UnixNano(), s.Endpoint, s.Region)
	p := newStoreProject(t, built(t), where, "AWS_ACCESS_KEY_ID="+s.Access, "AWS_SECRET_ACCESS_KEY="+s.Secret)
	p.run("apply --wait", 0, "finished by attempt 1")
	p.run("doctor --deep", 0, " 0 findings", "ok  invariants")

	t.Setenv("AWS_ACCESS_KEY_ID", s.Access)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s.Secret)
	b, err := open.URL(t.Context(), where, open.Options{Getenv: os.Getenv})
	if err != nil {
		t.Fatal(err)
	}
	page, err := b.List(t.Context(), record.WitnessPrefix, "", 2)
	if err != nil || len(page.Items) != 1 {
		t.Fatal(len(page.Items), err)
	}
	work := strings.TrimPrefix(page.Items[0].Key, record.WitnessPrefix)
	put := func(key, text string) {
		t.Helper()
		if _, err := b.Put(t.Context(), key, strings.NewReader(text), bucket.Always()); err != nil {
			t.Fatal(err)
		}
	}
	file := record.ResultPrefix(work, 1) + "metrics.json"
	put(file, "{}")
	p.run("doctor --deep", 1, "BAD I3: "+file, "headway apply computes it anew", "1 thing to mend")
	put(file, "{\"x\": 1}\n")
	p.run("doctor --deep --json", 0, `"ok": true`)

	if err := b.Delete(t.Context(), record.WitnessKey(work)); err != nil {
		t.Fatal(err)
	}
	said := p.run("doctor --no-probe", 1, "BAD I5: "+record.WitnessKey(work), "headway doctor --repair "+work)
	proposed := regexp.MustCompile(`headway (doctor --repair .*)`).FindStringSubmatch(said)
	if proposed == nil {
		t.Fatal("no command is proposed:\n" + said)
	}
	p.run(proposed[1], 0, "is made anew: revoked at attempt 1", "the next launch starts over")
	p.run("apply --wait", 0, "finished by attempt 2")
	// What attempt 1 says of its end is all that is left of the life before.
	p.run("doctor --deep", 1, "BAD I5: "+record.EndKey(work, 1), "nothing depends on it")
	if err := b.Delete(t.Context(), record.EndKey(work, 1)); err != nil {
		t.Fatal(err)
	}
	p.run("doctor --deep", 0, " 0 findings")
}
