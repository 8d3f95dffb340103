package mem_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/buckettest"
	"github.com/headway-run/headway/runners/bucket/mem"
)

func TestConformance(t *testing.T) {
	buckettest.Run(t, func(*testing.T) bucket.Bucket { return mem.New() })
}

func TestAnswersLikeS3(t *testing.T) {
	b := mem.New()
	v, err := b.Put(t.Context(), "k", strings.NewReader("hello"), bucket.IfAbsent())
	if err != nil || v != `"5d41402abc4b2a76b9719d911017c592"` {
		t.Errorf("version %s, %v; want the quoted MD5", v, err)
	}
	if _, err := b.Put(t.Context(), "absent", strings.NewReader("x"), bucket.IfIs(v)); !bucket.Is(err, bucket.Gone) {
		t.Errorf("swap of an absent key: %v, want Gone", err)
	}
}

func TestClockIsTheBubbles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		if _, err := b.Put(t.Context(), "k", strings.NewReader("x"), bucket.Always()); err != nil {
			t.Fatal(err)
		}
		<-time.After(90*time.Second + 500*time.Millisecond)
		o, err := b.Get(t.Context(), "k", bucket.Range{})
		if err != nil {
			t.Fatal(err)
		}
		if age := o.Date.Sub(o.Modified); age != 90*time.Second {
			t.Errorf("age %s, want 90s", age)
		}
	})
}
