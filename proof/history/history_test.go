package history

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

var work = strings.Repeat("ab12cd34ef56", 5) + "0000" // table of values: the work of the tests

func sameEntries() cmp.Options {
	return cmp.Options{cmpopts.EquateEmpty(), cmp.AllowUnexported(bucket.Cond{})}
}

func drawEntry(t *rapid.T) Entry {
	e := Entry{At: time.Duration(rapid.Int64().Draw(t, "at")), Actor: rapid.String().Draw(t, "actor"), Text: rapid.String().Draw(t, "text"),
		Op: rapid.SampledFrom([]Op{Put, Delete, Note}).Draw(t, "op")}
	if e.Op == Note {
		return e
	}
	e.Key = "k" + rapid.String().Draw(t, "key")
	if rapid.Bool().Draw(t, "refused") {
		e.Refused, e.Code = true, bucket.Code(rapid.IntRange(0, int(bucket.Unsupported)).Draw(t, "code"))
	}
	if e.Op == Put {
		e.Body = rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		v := bucket.Version(rapid.String().Draw(t, "version"))
		e.Cond = rapid.SampledFrom([]bucket.Cond{bucket.Always(), bucket.IfAbsent(), bucket.IfIs(v)}).Draw(t, "cond")
		if !e.Refused {
			e.Version = v
		}
	}
	return e
}

// TestSavedComesBack: a history is the same after it was saved and read.
func TestSavedComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOf(rapid.Custom(drawEntry)).Draw(t, "entries")
		var b bytes.Buffer
		if err := Write(&b, want); err != nil {
			t.Fatal(err)
		}
		got, err := Read(&b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, sameEntries()); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func TestReadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"{":                                                 "line 1: no entry",
		`{"op":"put","key":"a"}` + "\n\n" + `3`:             "line 3: no entry",
		`{"op":"get","key":"a"}`:                            `op "get"; expected put, delete or note`,
		`{"op":"put"}`:                                      "a put without a key",
		`{"op":"put","key":"a","colour":1}`:                 "unknown field",
		`{"op":"put","key":"a"} x`:                          "something behind",
		`{"op":"put","key":"a","cond":"maybe"}`:             `cond "maybe"; expected`,
		`{"op":"put","key":"a","refused":"I"}`:              `refused "I"; expected`,
		`{"op":"put","key":"a","base64":"!"}`:               "base64 that is none",
		`{"op":"put","key":"a","body":"x","base64":"eA=="}`: "both body and base64",
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// FuzzRead: no bytes make the reader or the printer fall over, and what is read comes back when it is saved.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"at":1500000000,"actor":"w1","op":"put","key":"witness/ab","cond":"is \"x\"","body":"{}","version":"y"}`))
	f.Add([]byte(`{"op":"put","key":"work/ab/attempt/00000001/milestone/00000001/manifest.json","base64":"gA==","refused":"Condition"}`))
	f.Add([]byte(`{"op":"note","text":"\u001b[31m"}`))
	f.Add([]byte(`{"op":"delete","key":"work/a/dispatch/1.json"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := Read(bytes.NewReader(b))
		var out bytes.Buffer
		Print(&out, got)
		if strings.ContainsAny(out.String(), "\x1b\r\x00") || strings.Count(out.String(), "\n") != len(got) {
			t.Fatalf("not one plain line for each entry: %q", out.String())
		}
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := Write(&again, got); err != nil {
			t.Fatal(err)
		}
		back, err := Read(&again)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, back, sameEntries()); diff != "" {
			t.Fatal(diff)
		}
	})
}

// TestPrint: a short life of a work, told.
func TestPrint(t *testing.T) {
	ctx := t.Context()
	var log Log
	now := time.Now()
	rec := Record(mem.New(), &log, now)
	put := func(actor, key string, v any) {
		t.Helper()
		b, err := record.Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rec.As(actor).Put(ctx, key, bytes.NewReader(b), bucket.IfAbsent()); err != nil {
			t.Fatal(err)
		}
	}
	lease := witness.LeaseFor(1, time.Second, time.Minute)
	rec.Note("", "the world begins\x1b[31m")
	put("d1", record.ClaimKey(work, 1), record.Claim{Protocol: 1, Work: work, Dispatch: 1, Platform: "spot", Reason: "new"})
	put("d1", record.ReceiptKey(work, 1), record.Receipt{Work: work, Dispatch: 1, Class: "NoSlots", Text: "full"})
	h, err := witness.Capture(ctx, rec.As("w1"), witness.CaptureRequest{Work: work, Dispatch: 1, Lease: lease})
	if err != nil {
		t.Fatal(err)
	}
	h.Open(ctx, record.Open{})
	h.Renew(ctx, witness.Progress{Step: 7}, lease)
	m := record.Manifest{Protocol: 1, Work: work, Attempt: 1, Milestone: 2, Step: 10}
	b, _ := record.Encode(m)
	put("w1", record.MilestoneManifestKey(work, 1, 2), m)
	h.Advance(ctx, record.Pointer{Attempt: 1, Milestone: 2, Step: 10, Manifest: record.MilestoneManifestKey(work, 1, 2), SHA256: record.Hash(b)}, witness.Progress{Step: 10}, lease)
	if _, _, err := witness.Stop(ctx, rec.As("operator"), work, 2, "enough"); err != nil {
		t.Fatal(err)
	}
	h.Yield(ctx, "notice")
	put("w1", record.EndKey(work, 1), record.End{Class: "deposed", Text: "somebody stopped it"})
	if err := rec.As("").Delete(ctx, record.WitnessKey(work)); err != nil {
		t.Fatal(err)
	}
	for i := range log {
		log[i].At = time.Duration(i) * 65 * time.Minute
	}
	var got strings.Builder
	Print(&got, log)
	want := `0:00:00.000  nobody    · the world begins\x1b[31m
1:05:00.000  d1        claims dispatch 1 on spot: new
2:10:00.000  d1        notes that dispatch 1 was not taken: NoSlots full
3:15:00.000  w1        captures attempt 1 for dispatch 1 from nothing, rev 1
4:20:00.000  w1        reserves the prefix of attempt 1, starting from nothing
5:25:00.000  w1        renews attempt 1 at step 7, rev 2
6:30:00.000  w1        completes attempt 1 milestone 2 at step 10, grown from nothing
7:35:00.000  w1        moves the pointer to attempt 1 milestone 2 step 10, rev 3
8:40:00.000  operator  stops the work: no dispatch below 2 may capture, rev 4: enough
9:45:00.000  w1        ✗ is refused (412): yields attempt 1, rev 4: notice
10:50:00.000  w1        says that attempt 1 ended: deposed, somebody stopped it
11:55:00.000  nobody    DELETES the witness
`
	var lines []string
	for l := range strings.Lines(got.String()) {
		lines = append(lines, strings.TrimSpace(l))
	}
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(want), "\n"), lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// lossy is a store that never answers a put; applies says whether it takes it.
type lossy struct {
	bucket.Bucket
	applies bool
}

func (l *lossy) Put(ctx context.Context, key string, b bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if l.applies {
		_, _ = l.Bucket.Put(ctx, key, b, c)
	}
	return "", &bucket.Error{Op: "put", Key: key, Code: bucket.Unknown}
}

// TestRecorderWithoutAnswer: what lies there decides whether an unanswered put was applied.
func TestRecorderWithoutAnswer(t *testing.T) {
	for _, applies := range []bool{true, false} {
		var log Log
		s := Record(&lossy{mem.New(), applies}, &log, time.Now()).As("a")
		if _, err := s.Put(t.Context(), "k", strings.NewReader("x"), bucket.IfAbsent()); !bucket.Is(err, bucket.Unknown) {
			t.Fatal(err)
		}
		if len(log) != 1 || log[0].Applied() != applies {
			t.Errorf("applies %v: %+v", applies, log)
		}
	}
}

// TestRecorder: the order and the fate of requests, and what is made of an answer that never came.
func TestRecorder(t *testing.T) {
	ctx := t.Context()
	var log Log
	rec := Record(mem.New(), &log, time.Now())
	a, b := rec.As("a"), rec.As("b")
	put := func(s bucket.Bucket, text string, c bucket.Cond) (bucket.Version, error) {
		return s.Put(ctx, "k", strings.NewReader(text), c)
	}
	v, err := put(a, "one", bucket.IfAbsent())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := put(b, "two", bucket.IfAbsent()); !bucket.Is(err, bucket.Condition) {
		t.Fatal(err)
	}
	if _, err := put(b, "two", bucket.IfIs(v)); err != nil {
		t.Fatal(err)
	}
	if err := b.Delete(ctx, "k"); err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range log {
		e := &log[i]
		got = append(got, strings.Join([]string{e.Actor, string(e.Op), string(e.Body), number(e.Code), map[bool]string{true: "applied"}[e.Applied()]}, " "))
	}
	want := []string{"a put one Unknown applied", "b put two 412 ", "b put two Unknown applied", "b delete  Unknown applied"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
