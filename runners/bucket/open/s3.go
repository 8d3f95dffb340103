package open

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/s3"
)

// openS3 reads s3://bucket/prefix with the parameters endpoint, region, path_style and quirks. What the URL leaves out
// comes from AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION and AWS_DEFAULT_REGION. Keys in a URL are refused: URLs are
// committed and printed.
func openS3(ctx context.Context, u *url.URL, o Options) (bucket.Bucket, error) {
	raw := u.Redacted()
	if u.User != nil {
		return nil, bad(raw, "credentials in a URL are not accepted", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead")
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, bad(raw, "the part behind ? is no list of name=value pairs", "write ?endpoint=https://host&region=name")
	}
	for name, values := range q {
		switch name {
		case "endpoint", "region", "path_style", "quirks":
		default:
			return nil, bad(raw, fmt.Sprintf("unknown parameter %q", name), "endpoint, region, path_style and quirks are known")
		}
		if len(values) != 1 {
			return nil, bad(raw, fmt.Sprintf("parameter %q is given %d times", name, len(values)), "give it once")
		}
	}
	env := o.getenv()
	c := s3.Config{
		Bucket: u.Host, Prefix: u.Path,
		Endpoint: first(q.Get("endpoint"), env("AWS_ENDPOINT_URL_S3"), env("AWS_ENDPOINT_URL")),
		Region:   first(q.Get("region"), env("AWS_REGION"), env("AWS_DEFAULT_REGION")),
	}
	switch v := q.Get("path_style"); v {
	case "":
		c.PathStyle = c.Endpoint != "" && !strings.Contains(c.Endpoint, ".amazonaws.com") // right for everybody else
	case "true", "false":
		c.PathStyle = v == "true"
	default:
		return nil, bad(raw, fmt.Sprintf("found path_style=%q", v), "expected true or false")
	}
	if c.Region == "" && c.Endpoint != "" {
		c.Region = "us-east-1" // what services that have no regions expect
	}
	if c.Quirks, err = s3.ParseQuirks(q.Get("quirks")); err != nil {
		return nil, bad(raw, err.Error(), "copy the quirks from the report of headway doctor")
	}
	if c.RootCAs, err = authorities(env("AWS_CA_BUNDLE")); err != nil {
		return nil, bad(raw, err.Error(), "AWS_CA_BUNDLE must name a PEM file of certificates")
	}
	if c.Credentials, err = o.credentials(ctx); err != nil {
		return nil, err
	}
	b, err := s3.New(c)
	if err != nil {
		return nil, err
	}
	return b, nil
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

func (o Options) getenv() func(string) string {
	if o.Getenv == nil {
		return func(string) string { return "" }
	}
	return o.Getenv
}

// credentials are the caller's provider, or the three variables.
func (o Options) credentials(context.Context) (aws.CredentialsProvider, error) {
	if o.Credentials != nil {
		return aws.NewCredentialsCache(o.Credentials), nil
	}
	env := o.getenv()
	c := aws.Credentials{AccessKeyID: env("AWS_ACCESS_KEY_ID"), SecretAccessKey: env("AWS_SECRET_ACCESS_KEY"), SessionToken: env("AWS_SESSION_TOKEN"), Source: "environment"}
	if c.AccessKeyID == "" || c.SecretAccessKey == "" {
		return nil, &bucket.Error{Op: "open", Key: "s3", Code: bucket.Denied, Err: errors.New("no credentials for the store"),
			Hint: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"}
	}
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return c, nil }), nil
}

func authorities(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read authorities: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("no certificate in %s", file)
	}
	return pool, nil
}
