package s3_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/s3"
)

// TestNoKeys: a service of keys that answers "forbidden" has not spoken for the store.
func TestNoKeys(t *testing.T) {
	keys := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{}, errors.New("role service: 403\n")
	})
	b, err := s3.New(s3.Config{Bucket: "b", Region: "r", Endpoint: "http://127.0.0.1:9", Credentials: keys})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Get(t.Context(), "k", bucket.Range{})
	if !bucket.Is(err, bucket.Denied) || !strings.Contains(err.Error(), "no credentials could be had: ") || !strings.Contains(err.Error(), "nothing was sent") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

func TestClassification(t *testing.T) {
	const u = bucket.Unknown
	for _, c := range []struct {
		status                 int
		code                   string
		get, put, create, swap bucket.Code
	}{
		{404, "NoSuchKey", bucket.NotFound, u, u, bucket.Gone},
		{404, "", u, u, u, u}, // a proxy's 404 must not make a lease look free
		{404, "XAdminUserNotFound", bucket.Denied, bucket.Denied, bucket.Denied, bucket.Denied},
		{404, "NoSuchBucket", bucket.NoBucket, bucket.NoBucket, bucket.NoBucket, bucket.NoBucket},
		{412, "PreconditionFailed", bucket.Condition, bucket.Condition, bucket.Condition, bucket.Condition},
		{409, "ConditionalRequestConflict", bucket.Raced, bucket.Raced, bucket.Raced, bucket.Raced},
		{409, "OperationAborted", u, u, u, u},
		{409, "ExistingObjectIsDirectory", bucket.BadKey, bucket.BadKey, bucket.BadKey, bucket.BadKey},
		{403, "AccessDenied", bucket.Denied, bucket.Denied, bucket.Denied, bucket.Denied},
		{403, "", bucket.Denied, bucket.Denied, bucket.Denied, bucket.Denied},
		{401, "", bucket.Denied, bucket.Denied, bucket.Denied, bucket.Denied},
		{400, "ExpiredToken", bucket.Denied, bucket.Denied, bucket.Denied, bucket.Denied},
		{400, "AuthorizationHeaderMalformed", bucket.NoBucket, bucket.NoBucket, bucket.NoBucket, bucket.NoBucket},
		{301, "PermanentRedirect", bucket.NoBucket, bucket.NoBucket, bucket.NoBucket, bucket.NoBucket},
		{307, "", bucket.NoBucket, bucket.NoBucket, bucket.NoBucket, bucket.NoBucket},
		{400, "KeyTooLongError", bucket.BadKey, bucket.BadKey, bucket.BadKey, bucket.BadKey},
		{400, "RequestTimeout", u, u, u, u},
		{400, "BadDigest", u, u, u, u},
		{429, "", bucket.Throttled, bucket.Throttled, bucket.Throttled, bucket.Throttled},
		{503, "SlowDown", bucket.Throttled, bucket.Throttled, bucket.Throttled, bucket.Throttled},
		{503, "", bucket.Throttled, u, u, u}, // a gateway's 503 may come after the store has written
		{500, "InternalError", u, u, u, u},
		{502, "", u, u, u, u},
		{501, "NotImplemented", bucket.Unsupported, bucket.Unsupported, bucket.Unsupported, bucket.Unsupported},
		{507, "", bucket.Full, bucket.Full, bucket.Full, bucket.Full},
		{400, "QuotaExceeded", bucket.Full, bucket.Full, bucket.Full, bucket.Full},
		{416, "InvalidRange", bucket.BadKey, bucket.BadKey, bucket.BadKey, bucket.BadKey},
	} {
		t.Run(http.StatusText(c.status)+" "+c.code, func(t *testing.T) {
			t.Parallel() // the SDK's own waits between reads take a second or two
			_, b := record(t, false, s3.Config{}, failing(c.status, c.code))
			_, getErr := b.Get(t.Context(), "k", bucket.Range{})
			_, putErr := b.Put(t.Context(), "k", strings.NewReader("x"), bucket.Always())
			_, createErr := b.Put(t.Context(), "k", strings.NewReader("x"), bucket.IfAbsent())
			_, swapErr := b.Put(t.Context(), "k", strings.NewReader("x"), bucket.IfIs(`"v"`))
			for verb, got := range map[string]struct {
				err  error
				want bucket.Code
			}{"get": {getErr, c.get}, "put": {putErr, c.put}, "create": {createErr, c.create}, "swap": {swapErr, c.swap}} {
				if !bucket.Is(got.err, got.want) {
					t.Errorf("%s: got %v, want %s", verb, got.err, got.want)
				}
			}
		})
	}
}

func TestHints(t *testing.T) {
	skewed := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", time.Now().Add(40*time.Minute).UTC().Format(http.TimeFormat))
		failing(403, "RequestTimeTooSkewed")(w, r)
	}
	region := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Amz-Bucket-Region", "eu-west-1")
		failing(301, "PermanentRedirect")(w, r)
	}
	for hint, answer := range map[string]http.HandlerFunc{
		"clock is wrong by -40m0s": skewed, `is in region "eu-west-1"`: region, "make bucket": failing(404, "NoSuchBucket"),
		"fresh ones": failing(400, "ExpiredToken"), "cannot hold leases": failing(501, "NotImplemented"), "over its quota": failing(507, ""),
		"is the one for this endpoint": failing(403, "InvalidAccessKeyId"), "does not belong to the access key": failing(403, "SignatureDoesNotMatch"),
	} {
		_, b := record(t, false, s3.Config{}, answer)
		_, err := b.Put(t.Context(), "k", strings.NewReader("x"), bucket.IfAbsent())
		hint = strings.Replace(hint, "is the one for", "is it the one for", 1)
		if err == nil || !strings.Contains(err.Error(), hint) {
			t.Errorf("got %v, want the hint %q", err, hint)
		}
	}
}

func TestNoConnection(t *testing.T) {
	b := open(t, s3.Config{Endpoint: "http://127.0.0.1:1"})
	_, err := b.Put(t.Context(), "k", strings.NewReader("x"), bucket.IfAbsent())
	if !bucket.Is(err, bucket.Unknown) || !strings.Contains(err.Error(), "no connection to http://127.0.0.1:1") {
		t.Errorf("got %v", err)
	}
}

func TestSilentStore(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	_, b := record(t, false, s3.Config{Timeout: 50 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("half"))
			w.(http.Flusher).Flush()
		}
		<-release
	})
	if _, err := b.Put(t.Context(), "k", strings.NewReader("x"), bucket.IfAbsent()); !bucket.Is(err, bucket.Unknown) {
		t.Errorf("put: %v", err)
	}
	o, err := b.Get(t.Context(), "k", bucket.Range{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = o.Body.Close() }()
	buf := make([]byte, 100)
	for err == nil {
		_, err = o.Body.Read(buf)
	}
	if !bucket.Is(err, bucket.Unknown) {
		t.Errorf("a body that stalls ends with %v", err)
	}
}

func TestRefusedConfigs(t *testing.T) {
	for want, c := range map[string]s3.Config{
		"bucket name":      {Bucket: "a/b", Region: "r", Credentials: static("a", "b")},
		"region is missin": {Bucket: "b", Credentials: static("a", "b")},
		"no credentials":   {Bucket: "b", Region: "r"},
		"bad endpoint":     {Bucket: "b", Region: "r", Credentials: static("a", "b"), Endpoint: "host:9000"},
		"without a path":   {Bucket: "b", Region: "r", Credentials: static("a", "b"), Endpoint: "https://host/bucket"},
		"a part \"..\"":    {Bucket: "b", Region: "r", Credentials: static("a", "b"), Prefix: "a/../b"},
	} {
		if _, err := s3.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestOneLine: the server's words are anybody's, and stay one bounded, quoted line.
func TestOneLine(t *testing.T) {
	_, b := record(t, false, s3.Config{}, failing(403, "Bad\x1b[31m\nCode"+strings.Repeat("x", 5_000)))
	_, err := b.Put(t.Context(), "k", strings.NewReader("x"), bucket.IfAbsent())
	if err == nil || len(err.Error()) > 800 || strings.ContainsAny(err.Error(), "\x1b\n") {
		t.Errorf("%d bytes: %.900q", len(err.Error()), err)
	}
	_, b = record(t, false, s3.Config{}, failing(403, "AccessDenied"))
	_, err = b.Put(t.Context(), "k", strings.NewReader("x"), bucket.IfAbsent())
	const want = `store: put k: Denied: 403 Forbidden, "AccessDenied": "words" (these credentials must be allowed to get, put, list and delete below the prefix)`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
