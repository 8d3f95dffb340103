package agent

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/runners/agent/courier"
	"github.com/headway-run/headway/runners/agent/guard"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// stuck is a store that takes no file of the given kind, and answers for none, until the caller gives up.
type stuck struct {
	bucket.Bucket
	kind string // a part of the key
}

func (s *stuck) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if strings.Contains(key, s.kind) {
		<-ctx.Done()
		return "", &bucket.Error{Op: "put", Key: key, Code: bucket.Unknown, Err: ctx.Err()}
	}
	return s.Bucket.Put(ctx, key, body, c)
}

func eventsOf(t *testing.T, b bucket.Bucket) string {
	t.Helper()
	page, err := b.List(t.Context(), record.EventPrefix(testWork, 1), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, it := range page.Items {
		o, err := b.Get(t.Context(), it.Key, bucket.Range{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(&out, o.Body); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

// TestWhatIsLeftOnItsWayIsNamed: an attempt ends while one milestone goes up and another waits for it. Its account names both,
// as do its events, before the lease is given back; the copies are there until then, and gone after.
func TestWhatIsLeftOnItsWayIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &stuck{Bucket: mem.New(), kind: "/milestone/"}
		r := heldRun(t, b)
		r.milestone(t, 10)
		synctest.Wait() // its upload has begun
		r.milestone(t, 20)
		synctest.Wait()
		copies, err := filepath.Glob(filepath.Join(r.scratch.at("milestones"), "*"))
		if err != nil || len(copies) != 2 || filepath.Base(copies[1]) != courier.Copy(2, 20) {
			t.Errorf("on its way: %q, %v", copies, err)
		}
		r.giveUp(t.Context(), Exit{CodeYielded, "yielded", "asked to leave"}, guard.Ended{}, "")
		e := endOf(t, b)
		if want := "asked to leave (lost on its way: milestone 1 at step 10, milestone 2 at step 20)"; e.Text != want {
			t.Errorf("end.json says %q", e.Text)
		}
		if got := eventsOf(t, b); strings.Count(got, "milestone failed") != 2 || !strings.Contains(got, courier.ErrLost.Error()) {
			t.Errorf("events:\n%s", got)
		}
		if copies, _ := filepath.Glob(filepath.Join(r.scratch.at("milestones"), "*")); len(copies) != 0 {
			t.Errorf("left behind: %q", copies)
		}
		seen, err := witness.Read(t.Context(), b, testWork)
		if err != nil || seen.Record.State != witness.Yielded || seen.Record.Resume != nil {
			t.Errorf("witness %+v, %v", seen.Record, err)
		}
	})
}

// TestAResultThatDoesNotArriveIsNamed: the lease is taken away while the result goes up.
func TestAResultThatDoesNotArriveIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &stuck{Bucket: mem.New(), kind: "/result/"}
		r := heldRun(t, b)
		r.milestone(t, 10)
		r.arrive(t.Context(), time.Minute)
		l := r.result(t)
		found, why := result(l.result, nil)
		if why != "" {
			t.Fatal(why)
		}
		ended := make(chan Exit, 1)
		go func() { ended <- r.finish(t.Context(), l, found, guard.Ended{}) }()
		synctest.Wait()
		if _, err := os.Stat(filepath.Join(r.scratch.at("milestones"), courier.ResultMark)); err != nil {
			t.Error("nothing marks the result as being on its way:", err)
		}
		if got, _, err := witness.Stop(t.Context(), b, testWork, 2, "no longer wanted"); got != witness.Ended {
			t.Fatal(got, err)
		}
		r.look(t.Context(), r.d.record())
		if exit := <-ended; exit.Code != CodeRevoked {
			t.Errorf("%+v", exit)
		}
		if e := endOf(t, b); !strings.Contains(e.Text, "lost on its way: the result, 1 bytes") {
			t.Errorf("end.json says %q", e.Text)
		}
		if left, _ := filepath.Glob(filepath.Join(r.scratch.at("milestones"), "*")); len(left) != 0 {
			t.Errorf("left behind: %q", left)
		}
	})
}
