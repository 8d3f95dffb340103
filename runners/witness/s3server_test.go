//go:build s3server

package witness

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/headway-run/headway/runners/bucket/s3"
)

// TestS3ServerHistoriesAreLinearizable: what clients are told by a real server, over http and over TLS, is one order too.
func TestS3ServerHistoriesAreLinearizable(t *testing.T) {
	var s struct {
		Endpoint    string `json:"endpoint"`
		TLSEndpoint string `json:"tls_endpoint"`
		Access      string `json:"access"`
		Secret      string `json:"secret"`
		Region      string `json:"region"`
		Bucket      string `json:"bucket"`
		CA          string `json:"ca"`
	}
	if err := json.Unmarshal([]byte(os.Getenv("HEADWAY_TEST_S3")), &s); err != nil {
		t.Fatalf("HEADWAY_TEST_S3 does not describe a server (%v): run .ci/s3server/run go test -tags s3server ./runners/witness", err)
	}
	pem, err := os.ReadFile(s.CA)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	for name, endpoint := range map[string]string{"http": s.Endpoint, "https": s.TLSEndpoint} {
		t.Run(name, func(t *testing.T) {
			b, err := s3.New(s3.Config{Bucket: s.Bucket, Region: s.Region, Endpoint: endpoint, PathStyle: true, RootCAs: roots,
				Prefix: fmt.Sprintf("histories-%s-%d", name, time.Now().UnixNano()),
				Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
					return aws.Credentials{AccessKeyID: s.Access, SecretAccessKey: s.Secret}, nil
				})})
			if err != nil {
				t.Fatal(err)
			}
			c := &checked{}
			c.run(t, b, shape{24, 4, 5, 3, 2 * time.Second}, asIs)
			c.sound(t)
		})
	}
}
