package s3_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/buckettest"
	"github.com/headway-run/headway/runners/bucket/probe"
	"github.com/headway-run/headway/runners/bucket/s3"
)

func static(access, secret string) aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: access, SecretAccessKey: secret}, nil
	})
}

func open(t testing.TB, c s3.Config) *s3.Bucket {
	t.Helper()
	if c.Bucket == "" {
		c.Bucket = "headway"
	}
	if c.Region == "" {
		c.Region = "us-east-1"
	}
	if c.Credentials == nil {
		c.Credentials = static("key", "secret")
	}
	c.PathStyle = true
	b, err := s3.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func fake(t *testing.T) string {
	t.Helper()
	return serve(t, func(h http.Handler) http.Handler { return h })
}

// serve starts the fake server behind a handler.
func serve(t *testing.T, front func(http.Handler) http.Handler) string {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("headway"); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(front(gofakes3.New(backend).Server()))
	t.Cleanup(srv.Close)
	return srv.URL
}

// TestConformanceOverFakeServer uses a prefix; the probe below uses a whole bucket.
func TestConformanceOverFakeServer(t *testing.T) {
	endpoint := fake(t)
	const single = 64 << 20 // this server gives a multipart upload two ETags
	buckettest.Run(t, func(t *testing.T) bucket.Bucket {
		return open(t, s3.Config{Endpoint: endpoint, Prefix: "/team/a/", PartSize: single})
	})
}

// TestProbeOverFakeServer: it checks no signatures, and the probe says so.
func TestProbeOverFakeServer(t *testing.T) {
	r, err := probe.Run(t.Context(), open(t, s3.Config{Endpoint: fake(t)}), probe.Options{})
	if err != nil || !r.Pass || !r.Has(probe.QuirkNoAuth) || r.Has(probe.QuirkPresignIgnores) {
		t.Errorf("%v, report %+v", err, r)
	}
}

// TestMissingBucket: one sentence that names it.
func TestMissingBucket(t *testing.T) {
	b := open(t, s3.Config{Endpoint: fake(t), Bucket: "nowhere"})
	_, err := b.Put(t.Context(), "k", strings.NewReader("x"), bucket.IfAbsent())
	if !bucket.Is(err, bucket.NoBucket) || !strings.Contains(err.Error(), `make bucket "nowhere"`) {
		t.Errorf("got %v", err)
	}
}

// TestUnquotedStore: refused with the way out, and usable when the way is taken.
func TestUnquotedStore(t *testing.T) {
	endpoint := serve(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if v := r.Header.Get("If-Match"); strings.HasPrefix(v, `"`) {
				failing(412, "PreconditionFailed")(w, r)
				return
			} else if v != "" {
				r.Header.Set("If-Match", `"`+v+`"`)
			}
			h.ServeHTTP(w, r)
		})
	})
	_, err := probe.Run(t.Context(), open(t, s3.Config{Endpoint: endpoint}), probe.Options{Rounds: 1})
	if err == nil || !strings.Contains(err.Error(), "add quirks=etag_unquoted") {
		t.Errorf("without the quirk: %v", err)
	}
	if _, err := probe.Run(t.Context(), open(t, s3.Config{Endpoint: endpoint, Quirks: s3.Quirks{ETagUnquoted: true}}), probe.Options{Rounds: 1}); err != nil {
		t.Errorf("with the quirk: %v", err)
	}
}

// TestIgnoringStore: a server that parses the conditions and drops them, as many young ones did, is refused in a sentence.
func TestIgnoringStore(t *testing.T) {
	for header, want := range map[string]string{"If-None-Match": "it silently ignores If-None-Match", "If-Match": "it silently ignores If-Match"} {
		endpoint := serve(t, func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header.Del(header)
				h.ServeHTTP(w, r)
			})
		})
		_, err := probe.Run(t.Context(), open(t, s3.Config{Endpoint: endpoint}), probe.Options{})
		if err == nil || !strings.HasPrefix(err.Error(), "this store cannot hold leases: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s dropped: %v", header, err)
		}
	}
}
