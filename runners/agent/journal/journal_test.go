package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

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

// TestAMachineThatVanishesLeavesWholeLines: a program writes its lines in two pieces, and the machine is gone in between. What is in the
// store ends with a line; a line that takes long is in the store as far as it is all the same.
func TestAMachineThatVanishesLeavesWholeLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		ctx, vanish := context.WithCancel(t.Context())
		j := New(ctx, b, "log/")
		for _, piece := range []string{"step 1", "\n", "step 2", "\n", "step 3"} {
			_, _ = io.WriteString(j, piece)
		}
		time.Sleep(patience + time.Millisecond) // the bubble's clock
		if got, _ := whole(t, b, "log/"); got != "step 1\nstep 2\n" {
			t.Errorf("after %v: %q", patience, got)
		}
		time.Sleep(breath + patience)
		if got, _ := whole(t, b, "log/"); got != "step 1\nstep 2\nstep 3" {
			t.Errorf("a line that does not end: %q", got)
		}
		_, _ = io.WriteString(j, "\nstep 4\nstep")
		time.Sleep(patience + 2*breath)
		vanish()
		j.Close(t.Context())
		if got, _ := whole(t, b, "log/"); got != "step 1\nstep 2\nstep 3\nstep 4\n" {
			t.Errorf("after its machine vanished: %q", got)
		}
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

// marks finds what the stream says that it left out.
var marks = regexp.MustCompile(`\[headway: dropped (\d+) bytes, (\d+) lines here: too much output for the store\]\n`)

// gaps holds a stream against what was written: between its marks it is the text, byte for byte, and each mark says how many
// bytes and lines of the text are missing in its place. It returns how many marks there are.
func gaps(t interface{ Fatalf(string, ...any) }, wrote, got string) int {
	at, n := 0, 0
	for {
		m := marks.FindStringSubmatchIndex(got)
		kept := got
		if m != nil {
			kept = got[:m[0]]
		}
		if !strings.HasPrefix(wrote[at:], kept) { // a mark begins a line
			kept = strings.TrimSuffix(kept, "\n")
		}
		if !strings.HasPrefix(wrote[at:], kept) {
			t.Fatalf("after %d bytes and %d marks the stream has %.80q, the text has %.80q", at, n, kept, wrote[at:])
		}
		at += len(kept)
		if m == nil {
			break
		}
		bytes, _ := strconv.Atoi(got[m[2]:m[3]])
		lines, _ := strconv.Atoi(got[m[4]:m[5]])
		if at+bytes > len(wrote) || strings.Count(wrote[at:at+bytes], "\n") != lines {
			t.Fatalf("mark %d says %d bytes, %d lines of %d bytes: that is not what is missing there", n, bytes, lines, len(wrote)-at)
		}
		at, n, got = at+bytes, n+1, got[m[1]:]
	}
	if at != len(wrote) {
		t.Fatalf("%d of %d bytes are in the stream or said to be missing", at, len(wrote))
	}
	return n
}

// Whatever is written, when and in what pieces: every byte is in the stream or counted in its place, and what follows a mark
// begins with a line where the output has lines.
func TestWhatIsMissingIsCountedWhereItIsMissing(t *testing.T) {
	type part struct {
		text  string
		pause time.Duration
	}
	many := 0
	rapid.Check(t, func(rt *rapid.T) {
		var parts []part
		for range rapid.IntRange(1, 10).Draw(rt, "writes") {
			line := strings.Repeat("x", rapid.SampledFrom([]int{0, 1, 80, 5000, 300_000}).Draw(rt, "line")) + rapid.SampledFrom([]string{"\n", "\n", "\n", "\r", ""}).Draw(rt, "break")
			times := rapid.SampledFrom([]int{1, 100_000, 2_500_000, 2_500_000}).Draw(rt, "bytes") / max(len(line), 1)
			pause := rapid.SampledFrom([]time.Duration{0, 0, 0, 0, 100 * time.Millisecond, time.Second, 9 * time.Second}).Draw(rt, "pause")
			parts = append(parts, part{strings.Repeat(line, max(times, 1)), pause})
		}
		var wrote strings.Builder
		var got string
		synctest.Test(t, func(t *testing.T) {
			b := mem.New()
			j := New(t.Context(), b, "log/")
			for _, p := range parts {
				_, _ = io.WriteString(j, p.text)
				wrote.WriteString(p.text)
				time.Sleep(p.pause)
			}
			j.Close(t.Context())
			got, _ = whole(t, b, "log/")
		})
		many += gaps(rt, wrote.String(), got)
	})
	if many < 5 {
		t.Errorf("%d marks in all runs: nothing was tested", many)
	}
}

// Under a flood the log has pieces of a whole segment, not one line between any two marks, and each begins with a line.
func TestAFloodLeavesWholeSegments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, wrote := mem.New(), strings.Builder{}
		j := New(t.Context(), b, "log/")
		for i := range 900 { // 18 s of 3.2 MB/s, in pieces that end within lines
			text := fmt.Sprintf("%06d:%s", i, strings.Repeat("abcdefg\n", 8000))
			text = text[:len(text)-1-i%6]
			_, _ = io.WriteString(j, text)
			wrote.WriteString(text)
			time.Sleep(20 * time.Millisecond)
		}
		j.Close(t.Context())
		got, _ := whole(t, b, "log/")
		n := gaps(t, wrote.String(), got)
		if n < 9 || n > 21 {
			t.Errorf("%d marks in 18 s, want about one a second", n)
		}
		for _, m := range marks.FindAllStringIndex(got, -1) {
			if next := got[m[1]:]; next != "" && !strings.HasPrefix(next, "abcdefg\n") {
				t.Errorf("after a mark comes %.20q", next)
			}
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

// However output is cut, what comes out is what masking the whole at once gives, as long as no value may begin within
// another, and nothing but the end of a line that a value may begin in is held back.
func TestTheRedactorAgreesWithTheWhole(t *testing.T) {
	values := []string{"hunter2-hunter2", "swordfish", strings.Repeat("k", 90) + "!"}
	words := rapid.SampledFrom(append([]string{"hunter2", "-hunter2", "sword", "fish", "k", strings.Repeat("k", 89), "\n", "\n", "\r", "!", "[secret]", strings.Repeat("z", 500)}, values...))
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(words, 0, 40).Draw(t, "words"), "")
		want := text
		for _, v := range []string{values[2], values[0], values[1]} {
			want = strings.ReplaceAll(want, v, mask)
		}
		var out bytes.Buffer
		r := NewRedactor(&out, values)
		before := text
		for rest := []byte(text); len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
			if k, err := r.Write(rest[:n]); k != n || err != nil {
				t.Fatal(k, err)
			}
			rest = rest[n:]
			if len(r.held) > r.keep || bytes.Contains(r.held, []byte{'\n'}) {
				t.Fatalf("%q is held back", r.held)
			}
		}
		r.Flush()
		if got := out.String(); got != want || text != before {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}
