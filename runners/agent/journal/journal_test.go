package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
)

// whole reads a stream back and fails when offsets are not contiguous.
func whole(t *testing.T, b bucket.Bucket, prefix string) (string, int) {
	t.Helper()
	page, err := b.List(t.Context(), prefix, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, it := range page.Items {
		if off, ok := record.SegmentOffset(it.Key); !ok || off != int64(out.Len()) {
			t.Errorf("segment %s follows %d bytes", it.Key, out.Len())
		}
		o, err := b.Get(t.Context(), it.Key, bucket.Range{})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(&out, o.Body)
	}
	return out.String(), len(page.Items)
}

func TestSegmentsAreContiguous(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		j := New(t.Context(), b, "log/")
		var want strings.Builder
		for i := range 300 {
			line := fmt.Sprintf("line %d %s\n", i, strings.Repeat("x", i*20))
			want.WriteString(line)
			_, _ = io.WriteString(j, line)
			time.Sleep(100 * time.Millisecond) // the bubble's clock
		}
		began := time.Now()
		j.Close(t.Context())
		if d := time.Since(began); d > 0 {
			t.Errorf("closing took %s with a store that answers at once", d)
		}
		got, n := whole(t, b, "log/")
		if got != want.String() || n < 6 || n > 31 {
			t.Errorf("%d segments with %d bytes, want %d bytes", n, len(got), want.Len())
		}
		_, _ = io.WriteString(j, "late")
		j.Close(t.Context())
	})
}

func TestAFloodIsDroppedVisibly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		j := New(t.Context(), b, "log/")
		chunk := strings.Repeat("0123456789abcde\n", 4096)
		for range 1000 { // 64 MiB at once
			_, _ = io.WriteString(j, chunk)
		}
		time.Sleep(time.Minute)
		_, _ = io.WriteString(j, "the end\n")
		j.Close(t.Context())
		got, n := whole(t, b, "log/")
		if len(got) > longest+burst || n > 10 {
			t.Errorf("kept %d bytes in %d segments", len(got), n)
		}
		if !strings.Contains(got, "[headway: dropped ") || !strings.HasSuffix(got, "too much output for the store]\nthe end\n") {
			t.Errorf("no mark of what is missing: …%q", got[max(0, len(got)-200):])
		}
	})
}

// down fails puts until it is healed; the first one lands and loses its answer.
type down struct {
	*mem.Bucket
	fails int
}

func (d *down) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if d.fails > 0 {
		d.fails--
		if d.fails == 0 {
			_, _ = d.Bucket.Put(ctx, key, body, c)
		}
		return "", &bucket.Error{Op: "put", Key: key, Code: bucket.Unknown}
	}
	return d.Bucket.Put(ctx, key, body, c)
}

func TestLostAnswersAndOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &down{mem.New(), 5}
		j := New(t.Context(), d, "log/")
		_, _ = io.WriteString(j, "one\n")
		time.Sleep(time.Minute)
		_, _ = io.WriteString(j, "two\n")
		j.Close(t.Context())
		if got, n := whole(t, d, "log/"); got != "one\ntwo\n" || n != 2 || d.fails != 0 {
			t.Errorf("%q in %d segments, %d faults left", got, n, d.fails)
		}
		dead := &down{mem.New(), 1 << 30}
		j = New(t.Context(), dead, "log/")
		_, _ = io.WriteString(j, "one\n")
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		j.Close(ctx)
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("closing on a dead store took %s", d)
		}
	})
}

func TestEventsAreBounded(t *testing.T) {
	var out bytes.Buffer
	Events{&out, 3}.Say("error", 7, strings.Repeat("\xff€\n\x1b[31m", 1000))
	var e Event
	if err := json.Unmarshal(out.Bytes(), &e); err != nil {
		t.Fatal(err)
	}
	if bytes.Count(out.Bytes(), []byte("\n")) != 1 || len(e.Reason) > maxText || e.Attempt != 3 || e.Step != 7 {
		t.Errorf("%d lines, %d bytes of reason, %+v", bytes.Count(out.Bytes(), []byte("\n")), len(e.Reason), e.Time)
	}
}

func TestRedactor(t *testing.T) {
	const secret = "hunter2-hunter2"
	for cut := range len(secret) {
		var out bytes.Buffer
		r := NewRedactor(&out, []string{"abc", secret, secret + "-long"})
		for _, part := range []string{"key=" + secret[:cut], secret[cut:] + " end\nnext " + secret, "-long", " abc"} {
			_, _ = io.WriteString(r, part)
		}
		r.Flush()
		if got := out.String(); strings.Contains(got, "hunter2") || !strings.Contains(got, "key=[secret] end\nnext [secret]") || !strings.HasSuffix(got, " abc") {
			t.Errorf("cut at %d: %q", cut, got)
		}
	}
}
