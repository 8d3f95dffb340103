package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/headway-run/headway/runners/bucket"
)

// presigned looks at URLs as a worker without keys uses them. What is found here narrows which platforms can be used, and
// refuses nothing.
func (p *run) presigned(ctx context.Context) error {
	put, err := p.b.Presign(ctx, bucket.MethodPut, p.prefix+"presigned", 10*time.Minute)
	if bucket.Is(err, bucket.Unsupported) {
		p.note("the store has no presigned URLs: workers on other machines need keys")
		return nil
	}
	if err != nil {
		return err
	}
	get, err := p.b.Presign(ctx, bucket.MethodGet, p.prefix+"presigned", 10*time.Minute)
	if err != nil {
		return err
	}
	status, err := p.send(ctx, "PUT", put, "If-None-Match", strings.NewReader("first"), 5)
	if err != nil {
		p.note("presigned URLs could not be tried: %v", err)
		return nil
	}
	if status/100 != 2 {
		p.note("a presigned create answers %d", status)
		p.quirk(QuirkPresignRefuses)
		return nil
	}
	if status, err := p.send(ctx, "PUT", put, "If-None-Match", strings.NewReader("second"), 6); err == nil && status/100 == 2 {
		p.quirk(QuirkPresignIgnores)
	}
	if status, err := p.send(ctx, "GET", get, "", nil, 0); err != nil || status != http.StatusOK {
		p.note("a presigned read answers %d, %v", status, err)
	}
	if status, err := p.send(ctx, "GET", spoil(get), "", nil, 0); err == nil && status/100 == 2 {
		p.quirk(QuirkNoAuth)
	}
	return p.cut(ctx, put)
}

// spoil changes the signature of a URL.
func spoil(u string) string {
	i := strings.Index(u, "X-Amz-Signature=")
	if i < 0 {
		return u + "0"
	}
	i += len("X-Amz-Signature=")
	turned := "0"
	if strings.HasPrefix(u[i:], "0") {
		turned = "1"
	}
	return u[:i] + turned + u[i+1:]
}

func (p *run) send(ctx context.Context, method, u, condition string, body io.Reader, size int64) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, u, body)
	if err != nil {
		return 0, err
	}
	req.ContentLength = size
	if condition != "" {
		req.Header.Set(condition, "*")
	}
	resp, err := p.o.HTTP.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, nil
}

// cut breaks an upload off in the middle, by a URL that signs no checksum: the old object should stay.
func (p *run) cut(ctx context.Context, put string) error {
	if _, err := p.put(ctx, "presigned", "old", bucket.Always()); err != nil {
		return err
	}
	const size = 100_000
	_, _ = p.send(ctx, "PUT", put, "", io.MultiReader(strings.NewReader(strings.Repeat("x", size/2)), broken{}), size) // it fails here, by design
	for deadline := time.Now().Add(300 * time.Millisecond); time.Now().Before(deadline); {
		body, _, err := p.get(ctx, "presigned", bucket.Range{})
		if err != nil {
			return err
		}
		if body != "old" {
			p.quirk(QuirkSignChecksums)
			p.note("a presigned upload that was cut after %d of %d bytes is stored with %d", size/2, size, len(body))
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond): // the store may still be at it
		case <-ctx.Done():
			return fmt.Errorf("probe: %w", ctx.Err())
		}
	}
	return nil
}

// broken is the rest of a body that never comes.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("the line was cut, by design") }
