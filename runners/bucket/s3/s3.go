// Package s3 is the store port over any S3-compatible service, with every trap of s3.md §2.3 closed: a conditional
// write is one PUT that is sent once; every PUT and part is signed with the sha256 of its bytes, so that a store cannot
// take a truncated one for whole; checksum trailers are off unless asked for; errors are classified by status first
// and code second.
//
// It is built from explicit values. No credential chain, no shared configuration file and no environment is read here:
// the worker on a rented machine links this package, and has only what it was handed.
package s3

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/headway-run/headway/runners/bucket"
)

// Config is where the store is and how to talk to it. Bucket, Region and Credentials are required.
type Config struct {
	Bucket      string
	Prefix      string // inside the bucket; with or without a trailing slash; empty: the whole bucket
	Endpoint    string // scheme and host; empty: AWS
	Region      string // never empty: R2 wants "auto", most others take "us-east-1"
	PathStyle   bool   // bucket in the path; right for everything that is not AWS
	Credentials aws.CredentialsProvider
	Quirks      Quirks

	RootCAs  *x509.CertPool // nil: the system's
	PartSize int64          // bytes of a part of a large upload, at least 8 MiB; 0: 16 MiB, more when 10,000 would not do
	Parallel int            // parts in flight of one upload; 0: 4
	Timeout  time.Duration  // of one small call from end to end, and of silence in a large one; 0: 30 s
}

// Quirks are what the probe found out about a store. The zero value fits AWS.
type Quirks struct {
	ETagUnquoted     bool // If-Match is honoured only without the quotes that the store itself sent
	TrailerChecksums bool // send the SDK's CRC32 (a trailer over TLS); many third parties store or refuse it
}

// Names of the quirks in URLs and probe reports.
const (
	QuirkETagUnquoted     = "etag_unquoted"
	QuirkTrailerChecksums = "trailer_checksums"
)

// ParseQuirks reads a comma-separated list of names.
func ParseQuirks(list string) (Quirks, error) {
	var q Quirks
	for name := range strings.SplitSeq(list, ",") {
		switch name {
		case "":
		case QuirkETagUnquoted:
			q.ETagUnquoted = true
		case QuirkTrailerChecksums:
			q.TrailerChecksums = true
		default:
			return q, fmt.Errorf("unknown quirk %q, expected %s or %s", name, QuirkETagUnquoted, QuirkTrailerChecksums)
		}
	}
	return q, nil
}

// Bucket is a bucket, or a prefix of one. Make one with New.
type Bucket struct {
	c       Config
	client  *awss3.Client
	presign *awss3.PresignClient
}

var _ bucket.Bucket = (*Bucket)(nil)

const (
	minPart     = 8 << 20
	defaultPart = 16 << 20
	maxParts    = 10_000
	maxSingle   = 5 << 30 // one PUT, bytes
)

// New checks a Config and returns the store. It sends nothing.
func New(c Config) (*Bucket, error) {
	refuse := func(what, hint string) (*Bucket, error) {
		return nil, &bucket.Error{Op: "open", Key: "s3://" + c.Bucket, Code: bucket.NoBucket, Err: errors.New(what), Hint: hint}
	}
	if c.Bucket == "" || strings.ContainsAny(c.Bucket, "/ ?#") {
		return refuse(fmt.Sprintf("bad bucket name %q", c.Bucket), "write s3://bucket/prefix")
	}
	if c.Region == "" {
		return refuse("the region is missing", "add region=…; R2 wants auto, most others take us-east-1")
	}
	if c.Credentials == nil {
		return nil, &bucket.Error{Op: "open", Key: "s3://" + c.Bucket, Code: bucket.Denied, Err: errors.New("no credentials"),
			Hint: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"}
	}
	if c.Endpoint != "" {
		u, err := url.Parse(c.Endpoint)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
			return refuse(fmt.Sprintf("bad endpoint %q", c.Endpoint), "write https://host or https://host:port, without a path; the bucket goes into s3://bucket")
		}
		c.Endpoint = u.Scheme + "://" + u.Host
	}
	if c.Prefix = strings.Trim(c.Prefix, "/"); c.Prefix != "" {
		if err := bucket.CheckKey("open", c.Prefix); err != nil {
			return nil, err
		}
		c.Prefix += "/"
	}
	if c.PartSize == 0 {
		c.PartSize = defaultPart
	}
	c.PartSize = max(c.PartSize, minPart)
	if c.Parallel < 1 {
		c.Parallel = 4
	}
	if c.Timeout <= 0 {
		c.Timeout = 30 * time.Second
	}
	client := awss3.New(options(c))
	return &Bucket{c: c, client: client, presign: awss3.NewPresignClient(client)}, nil
}

// options spells out what the SDK would otherwise decide by how the client was made.
func options(c Config) awss3.Options {
	o := awss3.Options{
		Region:                       c.Region,
		Credentials:                  keyed{c.Credentials},
		UsePathStyle:                 c.PathStyle,
		HTTPClient:                   &http.Client{Transport: newLanes(c), CheckRedirect: noRedirect},
		RequestChecksumCalculation:   aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation:   aws.ResponseChecksumValidationWhenRequired, // a whole-object checksum on a range would fail the read
		ContinueHeaderThresholdBytes: -1,                                         // some proxies stall on Expect: 100-continue
	}
	if c.Endpoint != "" {
		o.BaseEndpoint = aws.String(c.Endpoint)
	}
	if c.Quirks.TrailerChecksums {
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenSupported
	}
	return o
}

// keyed marks what goes wrong with getting keys: whatever a service of keys answers is no answer of the store.
type keyed struct{ aws.CredentialsProvider }

// Retrieve implements aws.CredentialsProvider.
func (k keyed) Retrieve(ctx context.Context) (aws.Credentials, error) {
	c, err := k.CredentialsProvider.Retrieve(ctx)
	if err != nil {
		return c, &noKeys{err}
	}
	return c, nil
}

// noRedirect hands a redirect to the classifier: it means another region, and its signature would be wrong anyway.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// full is the one place where the prefix is put before a key.
func (b *Bucket) full(op, key string) (*string, error) {
	if err := bucket.CheckKey(op, key); err != nil {
		return nil, err
	}
	if n := len(b.c.Prefix) + len(key); n > bucket.MaxKey {
		return nil, &bucket.Error{Op: op, Key: key, Code: bucket.BadKey, Err: fmt.Errorf("prefix and key have %d bytes, at most %d are allowed", n, bucket.MaxKey)}
	}
	return aws.String(b.c.Prefix + key), nil
}
