// Package open turns a store's URL into a store: dir:///the/whole/path, or
// s3://bucket/prefix?endpoint=https://host&region=name&path_style=true. It links no credential chain, because the
// worker on a rented machine imports it: keys come from the caller, or from the AWS_* variables the caller lends.
package open

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/dir"
)

// Options of URL. The zero value opens a present directory store.
type Options struct {
	Create bool // dir: make the folder when it is missing
	NoSync bool // dir: no fsync, for tests

	Credentials aws.CredentialsProvider // s3: nil means AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN of Getenv
	Getenv      func(string) string     // s3: the AWS_* variables that the caller lends; nil: none
}

// URL opens the store that a URL names. The error says what was found and what was expected.
func URL(ctx context.Context, raw string, o Options) (bucket.Bucket, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, bad(raw, "it is no URL", "write dir:///the/whole/path or s3://bucket/prefix")
	}
	switch u.Scheme {
	case "dir":
		return openDir(u, o)
	case "s3":
		return openS3(ctx, u, o)
	}
	return nil, bad(raw, fmt.Sprintf("found scheme %q, expected dir or s3", u.Scheme), "write dir:///the/whole/path or s3://bucket/prefix")
}

func openDir(u *url.URL, o Options) (bucket.Bucket, error) {
	switch {
	case u.Host != "" || !strings.HasPrefix(u.Path, "/"):
		return nil, bad(u.String(), "the folder's path is not absolute", "write dir:///the/whole/path, with three slashes")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, bad(u.String(), "a dir: URL has no ? or # part", "write a ? or # in a folder's name as %3F or %23")
	}
	b, err := dir.Open(u.Path, dir.Options{Create: o.Create, NoSync: o.NoSync})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// bad is the refusal of a URL.
func bad(raw, what, hint string) error {
	return &bucket.Error{Op: "open", Key: fmt.Sprintf("%q", raw), Code: bucket.NoBucket, Err: errors.New(what), Hint: hint}
}
