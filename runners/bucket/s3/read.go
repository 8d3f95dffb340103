package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/headway-run/headway/runners/bucket"
)

// Get implements bucket.Bucket. A body that gives nothing for Config.Timeout is cut off.
func (b *Bucket) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	k, err := b.full("get", key)
	if err != nil {
		return nil, err
	}
	in := &awss3.GetObjectInput{Bucket: &b.c.Bucket, Key: k}
	if r != (bucket.Range{}) {
		if r.Offset < 0 || r.Length < 0 {
			return nil, &bucket.Error{Op: "get", Key: key, Code: bucket.BadKey, Err: errors.New("negative range")}
		}
		spec := fmt.Sprintf("bytes=%d-", r.Offset)
		if r.Length > 0 {
			spec += strconv.FormatInt(r.Offset+r.Length-1, 10)
		}
		in.Range = &spec
	}
	ctx, cancel := context.WithCancelCause(ctx)
	quiet := time.AfterFunc(b.c.Timeout, func() { cancel(errSilent) })
	out, err := b.client.GetObject(ctx, in)
	if err != nil {
		quiet.Stop()
		defer cancel(nil)
		return nil, b.classify(ctx, "get", key, bucket.Always(), err)
	}
	size := aws.ToInt64(out.ContentLength)
	if _, total, ok := strings.Cut(aws.ToString(out.ContentRange), "/"); ok {
		if n, err := strconv.ParseInt(total, 10, 64); err == nil {
			size = n
		}
	}
	return &bucket.Object{
		Info: bucket.Info{Key: key, Size: size, Version: bucket.Version(aws.ToString(out.ETag)), Modified: aws.ToTime(out.LastModified)},
		Body: &timedBody{body: out.Body, quiet: quiet, limit: b.c.Timeout, cancel: cancel, key: key},
		Date: date(out.ResultMetadata),
	}, nil
}

var errSilent = errors.New("the store sent nothing for too long")

// timedBody ends a read that has stalled, however long the whole may take.
type timedBody struct {
	body   io.ReadCloser
	quiet  *time.Timer
	limit  time.Duration
	cancel context.CancelCauseFunc
	key    string
}

func (t *timedBody) Read(p []byte) (int, error) {
	t.quiet.Reset(t.limit)
	n, err := t.body.Read(p)
	if err != nil && err != io.EOF {
		err = &bucket.Error{Op: "get", Key: t.key, Code: bucket.Unknown, Err: err, Hint: "the download was cut short; read again"}
	}
	return n, err
}

func (t *timedBody) Close() error {
	t.quiet.Stop()
	err := t.body.Close()
	t.cancel(nil)
	return err
}

// List implements bucket.Bucket: one request, and more only past pages that hold nothing of ours.
func (b *Bucket) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	if err := bucket.CheckPrefix(prefix); err != nil {
		return nil, err
	}
	in := &awss3.ListObjectsV2Input{Bucket: &b.c.Bucket, MaxKeys: aws.Int32(int32(bucket.PageLimit(limit)))}
	if p := b.c.Prefix + prefix; p != "" {
		in.Prefix = &p
	}
	if after != "" {
		in.StartAfter = aws.String(b.c.Prefix + after)
	}
	for {
		page, last, err := b.list(ctx, prefix, after, in)
		if err != nil || len(page.Items) > 0 || !page.More || last == "" {
			return page, err
		}
		in.StartAfter = &last
	}
}

// list sends one request; last is the last key that the store showed, ours or not.
func (b *Bucket) list(ctx context.Context, prefix, after string, in *awss3.ListObjectsV2Input) (page *bucket.Page, last string, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.c.Timeout)
	defer cancel()
	out, err := b.client.ListObjectsV2(ctx, in)
	if err != nil {
		return nil, "", b.classify(ctx, "list", prefix, bucket.Always(), err)
	}
	page = &bucket.Page{More: aws.ToBool(out.IsTruncated), Date: date(out.ResultMetadata)}
	for _, o := range out.Contents {
		last = aws.ToString(o.Key)
		key, ok := strings.CutPrefix(last, b.c.Prefix)
		if !ok || key <= after || strings.HasSuffix(key, "/") { // a folder mark made by a console is no object of ours
			continue
		}
		page.Items = append(page.Items, bucket.Info{Key: key, Size: aws.ToInt64(o.Size), Version: bucket.Version(aws.ToString(o.ETag)), Modified: aws.ToTime(o.LastModified)})
	}
	return page, last, nil
}

// Delete implements bucket.Bucket.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	k, err := b.full("delete", key)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, b.c.Timeout)
	defer cancel()
	if _, err := b.client.DeleteObject(ctx, &awss3.DeleteObjectInput{Bucket: &b.c.Bucket, Key: k}); err != nil {
		err := b.classify(ctx, "delete", key, bucket.Always(), err)
		if bucket.Is(err, bucket.NotFound) {
			return nil
		}
		return err
	}
	return nil
}

// maxPresign is the longest life of a signature of this kind.
const maxPresign = 7 * 24 * time.Hour

// Presign implements bucket.Bucket. The URL carries no condition; who holds it may send one, unsigned. It dies with the
// credentials that signed it, if they are temporary. What is put through it is not protected against truncation by a
// signature: the holder adds a checksum header or compares afterwards.
func (b *Bucket) Presign(ctx context.Context, m bucket.Method, key string, ttl time.Duration) (string, error) {
	k, err := b.full("presign", key)
	if err != nil {
		return "", err
	}
	if ttl < time.Second || ttl > maxPresign {
		return "", &bucket.Error{Op: "presign", Key: key, Code: bucket.Unsupported, Err: fmt.Errorf("a presigned URL lives from a second to 7 days, not %s", ttl)}
	}
	var out *v4.PresignedHTTPRequest
	switch expires := awss3.WithPresignExpires(ttl); m {
	case bucket.MethodGet:
		out, err = b.presign.PresignGetObject(ctx, &awss3.GetObjectInput{Bucket: &b.c.Bucket, Key: k}, expires)
	case bucket.MethodPut:
		out, err = b.presign.PresignPutObject(ctx, &awss3.PutObjectInput{Bucket: &b.c.Bucket, Key: k}, expires)
	default:
		err = fmt.Errorf("method %q", m)
		return "", &bucket.Error{Op: "presign", Key: key, Code: bucket.Unsupported, Err: err}
	}
	if err != nil {
		return "", b.classify(ctx, "presign", key, bucket.Always(), err)
	}
	return out.URL, nil
}

// date is the store's clock in the Date header of an answer.
func date(m middleware.Metadata) time.Time {
	if resp, ok := awsmiddleware.GetRawResponse(m).(*smithyhttp.Response); ok {
		return headerDate(resp.Header)
	}
	return time.Time{}
}

func headerDate(h http.Header) time.Time {
	t, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	return t
}
