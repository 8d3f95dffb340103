package readonly_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/bucket/readonly"
)

func TestWritesAreRefused(t *testing.T) {
	inner := mem.New()
	if _, err := inner.Put(t.Context(), "k", strings.NewReader("x"), bucket.Always()); err != nil {
		t.Fatal(err)
	}
	b := readonly.New(inner)
	_, putErr := b.Put(t.Context(), "k", strings.NewReader("y"), bucket.Always())
	_, signErr := b.Presign(t.Context(), bucket.MethodPut, "k", time.Minute)
	for verb, err := range map[string]error{"put": putErr, "delete": b.Delete(t.Context(), "k"), "presign": signErr} {
		if !bucket.Is(err, bucket.Denied) {
			t.Errorf("%s: got %v, want Denied", verb, err)
		}
	}
	if n := b.Refused(); n != 3 {
		t.Errorf("%d writes refused, want 3", n)
	}
	o, err := b.Get(t.Context(), "k", bucket.Range{})
	if err != nil || o.Size != 1 {
		t.Errorf("get: %v", err)
	}
	p, err := b.List(t.Context(), "", "", 0)
	if err != nil || len(p.Items) != 1 {
		t.Errorf("list: %v", err)
	}
}
