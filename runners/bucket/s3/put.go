package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/headway-run/headway/runners/bucket"
)

// Put implements bucket.Bucket. A conditional Put is one request, sent once. An unconditional one is retried, and goes
// up in parallel parts when it is large; until the last request has been answered nothing of it can be seen.
func (b *Bucket) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	k, err := b.full("put", key)
	if err != nil {
		return "", err
	}
	if c == bucket.Always() && body.Size() > b.c.PartSize {
		return b.putParts(ctx, key, k, body)
	}
	if body.Size() > maxSingle {
		return "", &bucket.Error{Op: "put", Key: key, Code: bucket.BadKey, Err: fmt.Errorf("%d bytes under a condition, at most %d fit one request", body.Size(), int64(maxSingle))}
	}
	src := &source{Reader: io.NewSectionReader(body, 0, body.Size())}
	in := &awss3.PutObjectInput{Bucket: &b.c.Bucket, Key: k, Body: src, ContentLength: aws.Int64(body.Size())}
	opts := []func(*awss3.Options){signPayload}
	if is, ok := c.Is(); ok {
		in.IfMatch = aws.String(b.condition(is))
	}
	if c.Absent() {
		in.IfNoneMatch = aws.String("*")
	}
	if c != bucket.Always() {
		opts = append(opts, once)
	}
	ctx, cancel := context.WithTimeout(ctx, b.uploadTime(body.Size()))
	defer cancel()
	out, err := b.client.PutObject(ctx, in, opts...)
	if err != nil {
		if src.err != nil {
			return "", &bucket.Error{Op: "put", Key: key, Code: bucket.BadKey, Err: fmt.Errorf("the body ended early: %w", src.err)}
		}
		return "", b.classify(ctx, "put", key, c, err)
	}
	return bucket.Version(aws.ToString(out.ETag)), nil
}

// uploadTime bounds one request: the small call's time, and what a line of 256 KiB/s needs for the bytes.
func (b *Bucket) uploadTime(size int64) time.Duration {
	return b.c.Timeout + time.Duration(size>>18)*time.Second
}

// condition is a version as this store wants it in If-Match.
func (b *Bucket) condition(v bucket.Version) string {
	if b.c.Quirks.ETagUnquoted {
		return strings.Trim(string(v), `"`)
	}
	return string(v)
}

// once switches the SDK's retries off: a repeated conditional write would take its own success for a refusal.
func once(o *awss3.Options) { o.Retryer = aws.NopRetryer{} }

// signPayload makes the SDK sign the sha256 of the body over TLS too, where it would send UNSIGNED-PAYLOAD: the
// signature is the one checksum that every store must verify.
func signPayload(o *awss3.Options) {
	if o.RequestChecksumCalculation == aws.RequestChecksumCalculationWhenSupported {
		return // the trailer protects the body, and excludes a signed one
	}
	o.APIOptions = append(slices.Clip(o.APIOptions), func(s *middleware.Stack) error {
		_, err := s.Finalize.Swap((*v4.ComputePayloadSHA256)(nil).ID(), &v4.ComputePayloadSHA256{})
		return err
	})
}

// source is a body that remembers why it could not be read.
type source struct {
	Reader *io.SectionReader
	err    error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err == io.EOF {
		if at, _ := s.Reader.Seek(0, io.SeekCurrent); at < s.Reader.Size() {
			err = io.ErrUnexpectedEOF
		}
	}
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

func (s *source) Seek(off int64, whence int) (int64, error) { return s.Reader.Seek(off, whence) }

// upload is one multipart upload on its way.
type upload struct {
	b    *Bucket
	key  string
	in   awss3.UploadPartInput
	body bucket.Body
	size int64 // of a part

	mu    sync.Mutex
	next  int32
	count int32
	parts []types.CompletedPart
	err   error
}

// putParts uploads in parallel parts, each signed with its sha256 and retried by itself; a failure aborts the upload, so
// that no paid leftovers stay.
func (b *Bucket) putParts(ctx context.Context, key string, k *string, body bucket.Body) (bucket.Version, error) {
	size := b.c.PartSize
	if least := (body.Size() + maxParts - 1) / maxParts; size < least {
		size = (least + 1<<20 - 1) &^ (1<<20 - 1)
	}
	create, cancel := context.WithTimeout(ctx, b.c.Timeout)
	defer cancel()
	start := &awss3.CreateMultipartUploadInput{Bucket: &b.c.Bucket, Key: k}
	if b.c.Quirks.TrailerChecksums {
		start.ChecksumAlgorithm = types.ChecksumAlgorithmCrc32
	}
	made, err := b.client.CreateMultipartUpload(create, start)
	if err != nil {
		return "", b.classify(create, "put", key, bucket.Always(), err)
	}
	u := &upload{b: b, key: key, body: body, size: size, count: int32((body.Size() + size - 1) / size),
		in: awss3.UploadPartInput{Bucket: &b.c.Bucket, Key: k, UploadId: made.UploadId}}
	u.in.ChecksumAlgorithm = start.ChecksumAlgorithm
	u.parts = make([]types.CompletedPart, u.count)
	v, err := u.run(ctx)
	if err != nil {
		abort, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.c.Timeout)
		defer cancel()
		_, abortErr := b.client.AbortMultipartUpload(abort, &awss3.AbortMultipartUploadInput{Bucket: &b.c.Bucket, Key: k, UploadId: made.UploadId})
		if e, ok := errors.AsType[*bucket.Error](err); ok && abortErr != nil {
			e.Hint = strings.TrimPrefix(e.Hint+"; the parts sent so far could not be removed, a lifecycle rule should abort incomplete uploads", "; ")
		}
		return "", err
	}
	return v, nil
}

func (u *upload) run(ctx context.Context) (bucket.Version, error) {
	work, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	for range min(u.b.c.Parallel, int(u.count)) {
		wg.Go(func() {
			for n, ok := u.take(); ok; n, ok = u.take() {
				if err := u.part(work, n); err != nil {
					u.fail(err)
					stop()
				}
			}
		})
	}
	wg.Wait()
	if u.err != nil {
		return "", u.err
	}
	done, cancel := context.WithTimeout(ctx, 5*u.b.c.Timeout) // stores may copy all parts before they answer
	defer cancel()
	out, err := u.b.client.CompleteMultipartUpload(done, &awss3.CompleteMultipartUploadInput{
		Bucket: u.in.Bucket, Key: u.in.Key, UploadId: u.in.UploadId, MultipartUpload: &types.CompletedMultipartUpload{Parts: u.parts}})
	if err != nil {
		return "", u.b.classify(done, "put", u.key, bucket.Always(), err)
	}
	return bucket.Version(aws.ToString(out.ETag)), nil
}

// take returns the next part's index.
func (u *upload) take() (int32, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err != nil || u.next == u.count {
		return 0, false
	}
	u.next++
	return u.next - 1, true
}

// fail keeps the first error: the others are its consequences.
func (u *upload) fail(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err == nil {
		u.err = err
	}
}

func (u *upload) part(ctx context.Context, n int32) error {
	off := int64(n) * u.size
	src := &source{Reader: io.NewSectionReader(u.body, off, min(u.size, u.body.Size()-off))}
	in := u.in
	in.PartNumber, in.Body, in.ContentLength = aws.Int32(n+1), src, aws.Int64(src.Reader.Size())
	ctx, cancel := context.WithTimeout(ctx, u.b.uploadTime(u.size))
	defer cancel()
	out, err := u.b.client.UploadPart(ctx, &in, signPayload)
	if err != nil {
		if src.err != nil {
			return &bucket.Error{Op: "put", Key: u.key, Code: bucket.BadKey, Err: fmt.Errorf("the body ended early: %w", src.err)}
		}
		return u.b.classify(ctx, "put", u.key, bucket.Always(), err)
	}
	u.parts[n] = types.CompletedPart{PartNumber: in.PartNumber, ETag: out.ETag, ChecksumCRC32: out.ChecksumCRC32}
	return nil
}
