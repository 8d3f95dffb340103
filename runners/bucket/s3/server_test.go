//go:build s3server

package s3_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/buckettest"
	"github.com/headway-run/headway/runners/bucket/probe"
	"github.com/headway-run/headway/runners/bucket/s3"
)

// server is the line that .ci/s3server/run hands to its command.
type server struct {
	Endpoint    string `json:"endpoint"`
	TLSEndpoint string `json:"tls_endpoint"`
	Access      string `json:"access"`
	Secret      string `json:"secret"`
	Region      string `json:"region"`
	Bucket      string `json:"bucket"`
	CA          string `json:"ca"`
}

// real returns a Config for each way to reach the real server. Without one these tests fail: they are asked for by a tag.
func real(t testing.TB) (map[string]s3.Config, server) {
	t.Helper()
	var s server
	if err := json.Unmarshal([]byte(os.Getenv("HEADWAY_TEST_S3")), &s); err != nil {
		t.Fatalf("HEADWAY_TEST_S3 does not describe a server (%v): run .ci/s3server/run go test -tags s3server ./runners/bucket/...", err)
	}
	pem, err := os.ReadFile(s.CA)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	c := s3.Config{Bucket: s.Bucket, Region: s.Region, Credentials: static(s.Access, s.Secret), RootCAs: roots, PathStyle: true}
	plain, secure := c, c
	plain.Endpoint, secure.Endpoint = s.Endpoint, s.TLSEndpoint
	return map[string]s3.Config{"http": plain, "https": secure}, s
}

func TestS3ServerConformance(t *testing.T) {
	configs, _ := real(t)
	for name, c := range configs {
		t.Run(name, func(t *testing.T) {
			buckettest.Run(t, func(t *testing.T) bucket.Bucket { return open(t, c) })
		})
	}
}

func TestS3ServerConformanceWithTrailers(t *testing.T) {
	configs, _ := real(t)
	c := configs["https"]
	c.Quirks.TrailerChecksums = true
	buckettest.Run(t, func(t *testing.T) bucket.Bucket { return open(t, c) })
}

func TestS3ServerMistakes(t *testing.T) {
	configs, s := real(t)
	for name, c := range configs {
		t.Run(name, func(t *testing.T) {
			missing := c
			missing.Bucket = "no-such-bucket"
			every(t, open(t, missing), bucket.NoBucket, "make bucket")
			key := c
			key.Credentials = static("nobody", s.Secret)
			every(t, open(t, key), bucket.Denied, "does not know this access key")
			secret := c
			secret.Credentials = static(s.Access, "wrong")
			every(t, open(t, secret), bucket.Denied, "secret key does not belong")
			region := c
			region.Region = "eu-central-1"
			every(t, open(t, region), bucket.NoBucket, "another region")
		})
	}
}

// every sends each verb and wants the same refusal, with a hint.
func every(t *testing.T, b bucket.Bucket, code bucket.Code, hint string) {
	t.Helper()
	_, getErr := b.Get(t.Context(), "k", bucket.Range{})
	_, listErr := b.List(t.Context(), "", "", 0)
	_, putErr := b.Put(t.Context(), "k", strings.NewReader("x"), bucket.Always())
	_, createErr := b.Put(t.Context(), "k", strings.NewReader("x"), bucket.IfAbsent())
	_, swapErr := b.Put(t.Context(), "k", strings.NewReader("x"), bucket.IfIs(`"00"`))
	for verb, err := range map[string]error{"get": getErr, "list": listErr, "put": putErr, "create": createErr, "swap": swapErr} {
		if !bucket.Is(err, code) || !strings.Contains(err.Error(), hint) {
			t.Errorf("%s: got %v; want %s and %q", verb, err, code, hint)
		}
	}
}

func TestS3ServerPresignedConditions(t *testing.T) {
	configs, _ := real(t)
	c := configs["http"]
	b := open(t, c)
	key := "presigned/" + time.Now().Format("150405.000000000")
	send := func(m bucket.Method, header, value, body string, spoil bool) int {
		u, err := b.Presign(t.Context(), m, key, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if spoil {
			u = u[:len(u)-4] + "0000"
		}
		req, err := http.NewRequestWithContext(t.Context(), string(m), u, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if header != "" {
			req.Header.Set(header, value)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	for _, step := range []struct {
		m             bucket.Method
		header, value string
		spoil         bool
		want          int
	}{
		{bucket.MethodPut, "", "", true, 403}, {bucket.MethodPut, "If-None-Match", "*", false, 200}, {bucket.MethodPut, "If-None-Match", "*", false, 412},
		{bucket.MethodPut, "If-Match", `"00"`, false, 412}, {bucket.MethodGet, "", "", false, 200}, {bucket.MethodGet, "", "", true, 403},
	} {
		if got := send(step.m, step.header, step.value, "x", step.spoil); got != step.want {
			t.Errorf("%+v: status %d", step, got)
		}
	}
}

func TestS3ServerProbe(t *testing.T) {
	configs, _ := real(t)
	for name, c := range configs {
		other := configs["http"]
		if name == "http" {
			other = configs["https"]
		}
		t.Run(name, func(t *testing.T) {
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: c.RootCAs, MinVersion: tls.VersionTLS12}}}
			r, err := probe.Run(t.Context(), open(t, c), probe.Options{Doors: []bucket.Bucket{open(t, other)}, HTTP: client})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%+v", r)
			if !r.Pass || r.Has(probe.QuirkNoAuth) || r.Has(probe.QuirkPresignIgnores) || r.Has(probe.QuirkETagUnquoted) {
				t.Errorf("quirks %v, notes %q", r.Quirks, r.Notes)
			}
		})
	}
}
