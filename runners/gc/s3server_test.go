//go:build s3server

package gc

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/headway-run/headway/runners/bucket/open"
)

// TestS3Server: on a real server the stamps give an age, the young stay, and without the grace all that may go goes.
func TestS3Server(t *testing.T) {
	var s struct{ Endpoint, Access, Secret, Region, Bucket string }
	if err := json.Unmarshal([]byte(os.Getenv("HEADWAY_TEST_S3")), &s); err != nil {
		t.Fatalf("HEADWAY_TEST_S3 does not describe a server (%v): run .ci/s3server/run go test -tags s3server ./runners/gc", err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", s.Access)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s.Secret)
	where := fmt.Sprintf("s3://%s/gc-%d?endpoint=%s&region=%s&path_style=true", s.Bucket, time.Now().UnixNano(), url.QueryEscape(s.Endpoint), s.Region)
	b, err := open.URL(t.Context(), where, open.Options{Getenv: os.Getenv})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Bucket: b, t: t, ctx: t.Context()}
	w.fill()
	like, _ := rich(t, t.Context())
	want, err := Plan(t.Context(), like, everything)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; { // until the stamps, which have a resolution of a second, give an age
		did, err := Apply(t.Context(), w, everything)
		if err != nil || did.Sum().Objects > 0 || time.Now().After(deadline) {
			t.Fatalf("all is young: %+v %v", did, err)
		}
		if did.Young == want.Sum().Objects {
			break
		}
	}
	o := everything
	o.off.grace = true
	did, err := Apply(t.Context(), w, o)
	if err != nil || did.Sum() != want.Sum() {
		t.Fatalf("%+v, on the embedded store %+v: %v", did.Sum(), want.Sum(), err)
	}
	w.clean("after")
	w.usable()
}
