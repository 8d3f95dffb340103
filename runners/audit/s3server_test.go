//go:build s3server

package audit

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/headway-run/headway/runners/bucket/open"
)

// TestS3ServerSpoiledBuckets: what is found on the embedded stores is found on a real server too.
func TestS3ServerSpoiledBuckets(t *testing.T) {
	var s struct{ Endpoint, Access, Secret, Region, Bucket string }
	if err := json.Unmarshal([]byte(os.Getenv("HEADWAY_TEST_S3")), &s); err != nil {
		t.Fatalf("HEADWAY_TEST_S3 does not describe a server (%v): run .ci/s3server/run go test -tags s3server ./runners/audit", err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", s.Access)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s.Secret)
	where := fmt.Sprintf("s3://%s/audit-%d?endpoint=%s&region=%s&path_style=true", s.Bucket, time.Now().UnixNano(), url.QueryEscape(s.Endpoint), s.Region)
	b, err := open.URL(t.Context(), where, open.Options{Getenv: os.Getenv})
	if err != nil {
		t.Fatal(err)
	}
	spoilAll(t, b)
}
