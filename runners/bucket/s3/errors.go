package s3

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	smithy "github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/headway-run/headway/runners/bucket"
)

// answer is what a classifier needs to know of a failed call.
type answer struct {
	status int    // 0: none came
	code   string // of the error document; "" when there was none
	text   string // of the error document: the server's own words
	id     string // of the request, for the provider's support
	header http.Header
}

// cause is the SDK's error in one line. Unwrap leads to the whole.
type cause struct {
	line string
	err  error
}

func (c *cause) Error() string { return c.line }
func (c *cause) Unwrap() error { return c.err }

// brief says what a failed call met: the server's status, code and words (bounded, quoted: they may be anybody's), or how
// the connection failed.
func (a answer) brief(err error) *cause {
	if a.status == 0 {
		line := err.Error()
		if u, ok := errors.AsType[*url.Error](err); ok {
			line = u.Err.Error()
		}
		return &cause{line, err}
	}
	line := fmt.Sprintf("%d %s", a.status, http.StatusText(a.status))
	if a.code != "" {
		line += fmt.Sprintf(", %.60q", a.code)
	}
	if a.text != "" {
		line += fmt.Sprintf(": %.300q", a.text)
	}
	if a.id != "" {
		line += fmt.Sprintf(", request %.60q", a.id)
	}
	return &cause{line, err}
}

// noKeys is a request that was never sent, since there were no keys to sign it with.
type noKeys struct{ err error }

func (e *noKeys) Error() string { return "no credentials could be had: " + e.err.Error() }
func (e *noKeys) Unwrap() error { return e.err }

// classify turns an error of the SDK into one of the port: by status first, by code second. What it does not know is
// Unknown, which for a write means: read before you believe anything.
func (b *Bucket) classify(ctx context.Context, op, key string, c bucket.Cond, err error) error {
	if e, ok := errors.AsType[*noKeys](err); ok && ctx.Err() == nil {
		return &bucket.Error{Op: op, Key: key, Code: bucket.Denied, Err: &cause{fmt.Sprintf("no credentials could be had: %.300q", e.err.Error()), err},
			Hint: "nothing was sent to the store; look after the place that its credentials come from"}
	}
	var a answer
	if r, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		a.status = r.HTTPStatusCode()
		if resp := r.HTTPResponse(); resp != nil {
			a.header = resp.Header
		}
	}
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		a.code, a.text = e.ErrorCode(), e.ErrorMessage()
	}
	if r, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		a.id = r.ServiceRequestID()
	}
	e := &bucket.Error{Op: op, Key: key, Code: codeOf(op, c, a), Err: a.brief(err)}
	if ended := context.Cause(ctx); ended != nil && a.status == 0 {
		e.Err = fmt.Errorf("%w: %w", ended, e.Err)
	}
	e.Hint = b.hint(e.Code, a, err)
	return e
}

// codeOf is the table. A success status can only arrive with an error document inside, or a broken body: Unknown.
func codeOf(op string, c bucket.Cond, a answer) bucket.Code {
	_, swap := c.Is()
	switch a.code {
	case "NoSuchBucket", "PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "InvalidBucketName":
		return bucket.NoBucket
	case "SlowDown", "TooManyRequests", "Throttling", "ThrottlingException", "RequestLimitExceeded", "RequestThrottled":
		return bucket.Throttled
	case "RequestTimeout", "BadDigest", "XAmzContentSHA256Mismatch", "IncompleteBody": // 400s that speak of the line, not of the request
		return bucket.Unknown
	case "ExpiredToken", "InvalidToken", "TokenRefreshRequired", "InvalidAccessKeyId", "XAdminUserNotFound":
		return bucket.Denied // whatever the status: versitygw says 404 to an unknown access key
	case "InsufficientStorage", "QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "NoSpaceLeftOnDevice":
		return bucket.Full
	}
	switch a.status {
	case http.StatusMovedPermanently, http.StatusTemporaryRedirect:
		return bucket.NoBucket
	case http.StatusBadRequest, http.StatusRequestedRangeNotSatisfiable, http.StatusRequestEntityTooLarge, http.StatusRequestURITooLong:
		return bucket.BadKey
	case http.StatusUnauthorized, http.StatusForbidden:
		return bucket.Denied
	case http.StatusNotFound:
		return absence(op, swap, a.code)
	case http.StatusConflict:
		switch a.code {
		case "ConditionalRequestConflict":
			return bucket.Raced
		case "ObjectParentIsFile", "ExistingObjectIsDirectory":
			return bucket.BadKey
		}
	case http.StatusPreconditionFailed:
		return bucket.Condition
	case http.StatusTooManyRequests:
		return bucket.Throttled
	case http.StatusServiceUnavailable:
		if op != "put" && op != "delete" {
			return bucket.Throttled
		}
	case http.StatusNotImplemented:
		return bucket.Unsupported
	case http.StatusInsufficientStorage:
		return bucket.Full
	}
	return bucket.Unknown
}

// absence reads a 404. Only the store's own word for an absent key is believed: a gateway, a proxy or a wrong endpoint
// says 404 too, and must not make a lease look free.
func absence(op string, swap bool, code string) bucket.Code {
	if code != "NoSuchKey" { // the SDK says NotFound for a 404 without a document
		return bucket.Unknown
	}
	switch {
	case swap:
		return bucket.Gone
	case op == "put":
		return bucket.Unknown
	}
	return bucket.NotFound
}

// hint says what to do next.
func (b *Bucket) hint(code bucket.Code, a answer, err error) string {
	where := b.c.Endpoint
	if where == "" {
		where = "AWS"
	}
	switch code {
	case bucket.NoBucket:
		if r := a.header.Get("X-Amz-Bucket-Region"); r != "" && r != b.c.Region {
			return fmt.Sprintf("the bucket is in region %q, not %q: set region=%s", r, b.c.Region, r)
		}
		if a.code != "NoSuchBucket" {
			return fmt.Sprintf("bucket %q may be in another region than %q, or behind another endpoint than %s", b.c.Bucket, b.c.Region, where)
		}
		return fmt.Sprintf("make bucket %q at %s, or correct its name in the store's URL", b.c.Bucket, where)
	case bucket.Denied:
		return deniedHint(a)
	case bucket.Unsupported:
		return "this store refuses conditional writes or this operation; it cannot hold leases"
	case bucket.Full:
		return "the store is full or over its quota"
	case bucket.Unknown:
		if _, ok := errors.AsType[*net.DNSError](err); ok {
			return "the endpoint's name does not resolve; is " + where + " right?"
		}
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
			return "no connection to " + where
		}
		if strings.Contains(err.Error(), "x509:") {
			return "the endpoint's certificate is not trusted; AWS_CA_BUNDLE can name its authority"
		}
		if a.status == http.StatusNotFound {
			return "this 404 does not say that the key is absent; is " + where + " the endpoint of an S3 service?"
		}
	}
	return ""
}

func deniedHint(a answer) string {
	switch a.code {
	case "RequestTimeTooSkewed":
		s := "this machine's clock is wrong"
		if d := headerDate(a.header); !d.IsZero() {
			s += fmt.Sprintf(" by %s", time.Since(d).Round(time.Minute))
		}
		return s + "; signatures allow 15 minutes"
	case "InvalidAccessKeyId", "XAdminUserNotFound":
		return "the store does not know this access key; is it the one for this endpoint?"
	case "SignatureDoesNotMatch":
		return "the secret key does not belong to the access key, or a proxy changes requests"
	case "ExpiredToken", "InvalidToken", "TokenRefreshRequired":
		return "the temporary credentials have expired; get fresh ones"
	}
	return "these credentials must be allowed to get, put, list and delete below the prefix"
}
