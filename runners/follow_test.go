package runners_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
	"pgregory.net/rapid"
)

// history makes attempts with the given logs, each cut into segments; the last one still holds.
func history(t *testing.T, s *store, logs [][]string) *witness.Holder {
	t.Helper()
	var h *witness.Holder
	for i, segments := range logs {
		n := int64(i + 1)
		put(t, s.Bucket, record.ClaimKey(work, n), order(n).Claim)
		if h != nil {
			h.Yield(t.Context(), "next")
		}
		h = capture(t, s, n)
		off := int64(0)
		for _, seg := range segments {
			put(t, s.Bucket, record.SegmentKey(record.LogPrefix(work, n), off), seg)
			off += int64(len(seg))
		}
	}
	return h
}

// readAll follows until nothing more is there, as a terminal does; it checks that lines continue one another.
func readAll(t testing.TB, d runners.Dispatcher, from runners.Cursor, text bool) (string, runners.Chunk) {
	t.Helper()
	var out strings.Builder
	for range 10_000 {
		c, err := d.Log(ctxOf(), work, from)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range c.Lines {
			if l.Missing > 0 {
				fmt.Fprintf(&out, "[%d missing]", l.Missing)
			}
			if i := bytes.IndexByte(l.Data, '\n'); i >= 0 && i != len(l.Data)-1 {
				t.Fatalf("a line with a newline inside: %q", l.Data)
			}
			out.Write(l.Data)
		}
		from = c.Next
		if text {
			if from, err = runners.ParseCursor(c.Next.String()); err != nil {
				t.Fatal(err)
			}
		}
		if !c.More {
			return out.String(), c
		}
	}
	t.Fatal("it never ends")
	return "", runners.Chunk{}
}

// However the bytes were cut into segments, wherever one starts and however the cursor is carried: what is read is
// what was written, from there on.
func TestFollowHasNoGap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		piece := rapid.StringMatching(`[a-z\n]{1,40}`)
		logs := rapid.SliceOfN(rapid.SliceOfN(piece, 0, 12), 1, 5).Draw(rt, "logs")
		s := newStore()
		history(t, s, logs)
		d := runners.Dispatcher{Bucket: s}
		whole := make([]string, len(logs))
		for i, l := range logs {
			whole[i] = strings.Join(l, "")
		}
		at := rapid.IntRange(0, len(logs)-1).Draw(rt, "attempt")
		off := rapid.IntRange(0, len(whole[at])).Draw(rt, "offset")
		got, c := readAll(t, d, runners.Cursor{Attempt: int64(at + 1), Offset: int64(off)}, rapid.Bool().Draw(rt, "text"))
		if want := whole[at][off:] + strings.Join(whole[at+1:], ""); got != want {
			rt.Fatalf("from %d:%d\n got %q\nwant %q", at+1, off, got, want)
		}
		if c.Over || c.Next.Attempt != int64(len(logs)) || c.Next.Offset != int64(len(whole[len(logs)-1])) {
			rt.Fatalf("end: %+v", c)
		}
		// At the tail one poll is one look at the witness and one list.
		s.lists, s.gets = 0, 0
		if tail, err := d.Log(ctxOf(), work, c.Next); err != nil || len(tail.Lines) > 0 || s.lists > 2 || s.gets != 1 {
			rt.Fatalf("tail: %+v, %v, %d lists, %d gets", tail, err, s.lists, s.gets)
		}
	})
}

func TestFollowAsItGrows(t *testing.T) {
	s := newStore()
	d := runners.Dispatcher{Bucket: s}
	if got, c := readAll(t, d, runners.Cursor{}, false); got != "" || c.Over || c.Next != (runners.Cursor{}) {
		t.Errorf("before anything: %q, %+v", got, c)
	}
	h := history(t, s, [][]string{{"one\ntw"}})
	got, c := readAll(t, d, runners.Cursor{}, false)
	if got != "one\ntw" {
		t.Errorf("first: %q", got)
	}
	put(t, s.Bucket, record.SegmentKey(record.LogPrefix(work, 1), 6), "o\nthree\n")
	got, c = readAll(t, d, c.Next, false)
	if got != "o\nthree\n" || c.Over {
		t.Errorf("second: %q, %+v", got, c)
	}
	finish(t, s, h)
	got, c = readAll(t, d, c.Next, false)
	if got != "" || !c.Over {
		t.Errorf("finished: %q, %+v", got, c)
	}
}

// A whole mebibyte comes in one chunk at most, also from one segment that is larger.
func TestChunksAreBounded(t *testing.T) {
	s := newStore()
	d := runners.Dispatcher{Bucket: s}
	long := strings.Repeat("x", 3<<20) + "\n"
	history(t, s, [][]string{{"a\n", long, "b\n"}})
	c, err := d.Log(t.Context(), work, runners.Cursor{})
	if err != nil || !c.More || c.Next.Offset > 1<<20 || c.Next.Offset < 1<<19 {
		t.Errorf("first chunk up to %v, more %v, %v", c.Next, c.More, err)
	}
	if got, _ := readAll(t, d, runners.Cursor{}, true); got != "a\n"+long+"b\n" {
		t.Errorf("%d bytes", len(got))
	}
}

// Segments that overlap, that leave a hole, and names that are no segments: nothing is read twice, the hole is told.
func TestHostileSegments(t *testing.T) {
	s := newStore()
	history(t, s, [][]string{{"0123456789"}})
	prefix := record.LogPrefix(work, 1)
	put(t, s.Bucket, record.SegmentKey(prefix, 4), "OVERLAP") // 4..11: its last byte is new
	put(t, s.Bucket, record.SegmentKey(prefix, 20), "after the hole\n")
	put(t, s.Bucket, prefix+"latest", "no segment")
	put(t, s.Bucket, prefix+"99", "not padded")
	got, _ := readAll(t, runners.Dispatcher{Bucket: s}, runners.Cursor{}, false)
	if want := "0123456789P[9 missing]after the hole\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A store that fails in the middle costs nothing that was read before it did.
func TestFollowThroughFaults(t *testing.T) {
	s := newStore()
	d := runners.Dispatcher{Bucket: s}
	history(t, s, [][]string{{"one\n", "two\n"}, {"three\n"}})
	fired := 0
	s.list = func(next func() (*bucket.Page, error)) (*bucket.Page, error) {
		if fired++; fired == 2 { // the second attempt's list
			return nil, answer(bucket.Unknown)
		}
		return next()
	}
	c, err := d.Log(t.Context(), work, runners.Cursor{})
	if err != nil || len(c.Lines) != 2 || !c.More {
		t.Fatalf("%+v, %v", c, err)
	}
	if got, _ := readAll(t, d, c.Next, false); got != "three\n" || fired < 3 {
		t.Errorf("then %q", got)
	}
}

func TestManyEmptyAttempts(t *testing.T) {
	s := newStore()
	logs := make([][]string, 120)
	logs[119] = []string{"at last\n"}
	history(t, s, logs)
	if got, _ := readAll(t, runners.Dispatcher{Bucket: s}, runners.Cursor{}, false); got != "at last\n" {
		t.Errorf("%q", got)
	}
}

func TestParseCursor(t *testing.T) {
	for text, want := range map[string]runners.Cursor{"": {}, "2": {Attempt: 2}, "2:12345": {Attempt: 2, Offset: 12345}, "0:0": {}} {
		got, err := runners.ParseCursor(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%q: %v\n%s", text, err, diff)
		}
	}
	for _, bad := range []string{"x", "1:", ":1", "1:2:3", "-1", "1:-1", "1: 2", "99999999999999999999"} {
		if c, err := runners.ParseCursor(bad); err == nil || !strings.Contains(err.Error(), "<attempt>:<offset>") {
			t.Errorf("%q was read as %+v, %v", bad, c, err)
		}
	}
}

func TestSanitize(t *testing.T) {
	for in, want := range map[string]string{
		"loss 0.31\n":              "loss 0.31",
		"tab\tübung 学習 🚂":          "tab\tübung 学習 🚂",
		"\x1b[31mred\x1b[0m":       `\x1b[31mred\x1b[0m`,
		"10%\r20%":                 `10%\r20%`,
		"a\x00b\x7f":               `a\x00b\x7f`,
		"\xff\xfe":                 `\xff\xfe`,
		"\u009b31m":                `\u009b31m`,
		"abc\u202etxt.exe\u2066":   `abc\u202etxt.exe\u2066`,
		"zero\u200bwidth\ufeff":    `zero\u200bwidth\ufeff`,
		"line\u2028sep":            `line\u2028sep`,
		`C:\path`:                  `C:\path`,
		strings.Repeat("é", 3000):  strings.Repeat("é", 2048) + "… (1904 bytes more)",
		strings.Repeat("x", 5000):  strings.Repeat("x", 4096) + "… (904 bytes more)",
		strings.Repeat("\x80", 9):  strings.Repeat(`\x80`, 9),
		"two\nlines":               `two\nlines`,
		"tag \U000e0041 character": `tag \U000e0041 character`,
	} {
		if got := runners.Sanitize([]byte(in)); got != want {
			t.Errorf("%.40q:\n got %q\nwant %q", in, got, want)
		}
	}
}

func FuzzSanitize(f *testing.F) {
	f.Add([]byte("\x1b]0;title\x07\xc3\x28\u202e"))
	f.Fuzz(func(t *testing.T, line []byte) {
		s := runners.Sanitize(line)
		if !utf8.ValidString(s) || len(s) > 11*4096 {
			t.Errorf("%d bytes, valid %v", len(s), utf8.ValidString(s))
		}
		for _, r := range s {
			if r != '\t' && !unicode.IsGraphic(r) {
				t.Errorf("%q has %U", s, r)
			}
		}
	})
}

func FuzzBound(f *testing.F) {
	f.Add("übung", 4)
	f.Fuzz(func(t *testing.T, s string, n int) {
		if got := runners.Bound(s, n%1000); n%1000 >= 0 && len(got) > max(n%1000, 0) && got != s {
			t.Errorf("%d bytes, at most %d", len(got), n%1000)
		}
	})
}
