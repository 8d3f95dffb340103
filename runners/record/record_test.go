package record

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var work = strings.Repeat("ab", 32) // table of values: the work that the tests use

// TestKeys pins the layout: a bucket outlives the programs that read it.
func TestKeys(t *testing.T) {
	w := "work/" + work + "/"
	for want, got := range map[string]string{
		"witness/" + work:                                       WitnessKey(work),
		w + "spec.json":                                         SpecKey(work),
		w + "dispatch/00000007.json":                            ClaimKey(work, 7),
		w + "dispatch/00000007.receipt.json":                    ReceiptKey(work, 7),
		w + "dispatch/00000007.release.00000002.json":           ReleaseKey(work, 7, 2),
		w + "attempt/00000003/open.json":                        OpenKey(work, 3),
		w + "attempt/00000003/end.json":                         EndKey(work, 3),
		w + "attempt/00000003/milestone/00000012/manifest.json": MilestoneManifestKey(work, 3, 12),
		w + "attempt/00000003/result/manifest.json":             ResultManifestKey(work, 3),
		w + "attempt/00000003/log/0000000000004096":             SegmentKey(LogPrefix(work, 3), 4096),
		w + "attempt/00000003/events/0000000000000000":          SegmentKey(EventPrefix(work, 3), 0),
		"code/0123.tar.zst":                                     CodeKey("0123"),
		"platform/local":                                        PlatformKey("local"),
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestOrder: the order of keys is the order of numbers, so that a listing can start after one.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SliceOfN(rapid.Int64Range(1, 99_999_999), 2, 20).Draw(t, "numbers")
		slices.Sort(n)
		for _, key := range []func(int64) string{
			func(n int64) string { return ClaimKey(work, n) },
			func(n int64) string { return AttemptPrefix(work, n) },
			func(n int64) string { return MilestonePrefix(work, 1, n) },
			func(n int64) string { return ReleaseKey(work, 1, n) },
			func(n int64) string { return SegmentKey(LogPrefix(work, 1), n) },
		} {
			var keys []string
			for _, i := range n {
				keys = append(keys, key(i))
			}
			if !slices.IsSorted(keys) {
				t.Fatalf("out of order: %v", keys)
			}
		}
	})
}

// TestParseReadsBack: each key that is made is read back as what it was made of.
func TestParseReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(1, 99_999_999).Draw(t, "n")
		k := rapid.Int64Range(1, 99_999_999).Draw(t, "k")
		for key, want := range map[string]ParsedKey{
			SpecKey(work):                    {Work: work, Rest: "spec.json"},
			ClaimKey(work, n):                {Work: work, Dispatch: n, Rest: "json"},
			ReceiptKey(work, n):              {Work: work, Dispatch: n, Rest: "receipt.json"},
			OpenKey(work, n):                 {Work: work, Attempt: n, Rest: "open.json"},
			ResultManifestKey(work, n):       {Work: work, Attempt: n, Rest: "result/manifest.json"},
			MilestoneManifestKey(work, n, 5): {Work: work, Attempt: n, Rest: "milestone/00000005/manifest.json"},
		} {
			got, ok := Parse(key)
			if !ok || got != want {
				t.Fatalf("%s: %+v %v, want %+v", key, got, ok, want)
			}
		}
		p, ok := Parse(ReleaseKey(work, n, k))
		if got, is := ReleaseNumber(p.Rest); !ok || !is || got != k || p.Dispatch != n {
			t.Fatalf("release: %+v, %d", p, got)
		}
		if got, is := SegmentOffset(SegmentKey(EventPrefix(work, n), k)); !is || got != k {
			t.Fatalf("offset %d of %d", got, k)
		}
	})
}

func TestParseRefuses(t *testing.T) {
	for _, key := range []string{
		"", "work", "work/", "work//", "work/" + work, "work/" + work + "/", "witness/" + work, "work//spec.json",
		"work/" + work + "/dispatch/", "work/" + work + "/dispatch/x.json", "work/" + work + "/dispatch/0.json",
		"work/" + work + "/dispatch/-1.json", "work/" + work + "/dispatch/00000001", "work/" + work + "/attempt/",
		"work/" + work + "/attempt/00000001", "work/" + work + "/attempt/0/open.json",
		"work/" + work + "/attempt/99999999999999999999/open.json",
	} {
		if p, ok := Parse(key); ok {
			t.Errorf("%q was read as %+v", key, p)
		}
	}
	for _, rest := range []string{"", "json", "receipt.json", "release.json", "release.x.json", "release.0.json", "release.1"} {
		if n, ok := ReleaseNumber(rest); ok {
			t.Errorf("%q was read as release %d", rest, n)
		}
	}
	for _, key := range []string{"", "log/", "log/x", "log/-1"} {
		if n, ok := SegmentOffset(key); ok {
			t.Errorf("%q was read as offset %d", key, n)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, b := range map[string]string{
		"empty": "", "half": `{"work":"a`, "two": `{}{}`, "behind": `{} x`, "type": `{"dispatch":"1"}`, "fraction": `{"dispatch":1.5}`,
		"big": `{"reason":"` + strings.Repeat("x", 1000) + `"}`, "deep": strings.Repeat("[", 500),
	} {
		var c Claim
		if err := Decode([]byte(b), 512, &c); err == nil {
			t.Errorf("%s: accepted as %+v", name, c)
		}
	}
	var c Claim
	if err := Decode([]byte(" {\"dispatch\": 3, \"colour\": {\"a\": 1}}\n"), 512, &c); err != nil || c.Dispatch != 3 {
		t.Error("unknown fields and white space:", err)
	}
}

// TestRoundTrip: every record survives its own encoding, within its bound, and ends in a newline for people.
func TestRoundTrip(t *testing.T) {
	p := &Pointer{Attempt: 1, Milestone: 2, Step: 30, Manifest: MilestoneManifestKey(work, 1, 2), SHA256: work}
	round(t, Spec{Protocol: 1, Work: work, Argv: []string{"python", "a<b>&c"}, Params: map[string]string{"lr": "0.1"}, Identity: json.RawMessage(`{"a":1}`)})
	round(t, Claim{Protocol: 1, Work: work, Dispatch: 3, Nonce: Nonce(), CaptureS: 120.5, Terms: Terms{LeaseK: 50, LeaseFloorS: 15}, Secrets: []string{"TOKEN"}})
	round(t, Receipt{Protocol: 1, Work: work, Dispatch: 3, OK: true, Handle: json.RawMessage(`{"pid":1}`)})
	round(t, Release{Protocol: 1, Work: work, Dispatch: 3, Settlement: "closed"})
	round(t, Open{Protocol: 1, Work: work, Attempt: 2, Holder: Nonce(), Fingerprint: map[string]string{"gpu": "none"}, Resume: p})
	round(t, End{Protocol: 1, Work: work, Attempt: 2, Class: "user_code", ExitCode: -1, Error: "ValueError: \u2028 \x00"})
	round(t, Manifest{Protocol: 1, Work: work, Attempt: 2, Milestone: 1, Parent: p, Files: []File{{Path: "a/b", Size: 3, SHA256: work, Exec: true}}})
}

func round[T any](t *testing.T, v T) {
	t.Helper()
	b, err := Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasSuffix(b, []byte("}\n")) || !json.Valid(b) {
		t.Errorf("not a line of JSON for people: %s", b)
	}
	var got T
	if err := Decode(b, MaxRecord, &got); err != nil {
		t.Fatal(err)
	}
	// Raw JSON inside a record is indented with it; what it says is the same.
	if diff := cmp.Diff(v, got, cmp.Transformer("compact", func(r json.RawMessage) string {
		var c bytes.Buffer
		_ = json.Compact(&c, r)
		return c.String()
	})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestIdentitySurvives: compacting a spec's identity gives back the bytes that its work is the hash of, whatever
// characters are in it.
func TestIdentitySurvives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fields := rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "fields")
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(fields); err != nil {
			t.Fatal(err)
		}
		identity := bytes.TrimSpace(b.Bytes())
		raw, err := Encode(Spec{Protocol: 1, Work: Hash(identity), Identity: identity})
		if err != nil {
			t.Fatal(err)
		}
		var s Spec
		if err := Decode(raw, MaxRecord, &s); err != nil {
			t.Fatal(err)
		}
		var again bytes.Buffer
		if err := json.Compact(&again, s.Identity); err != nil || Hash(again.Bytes()) != s.Work {
			t.Fatalf("hashed %s, found %s: %v", identity, again.Bytes(), err)
		}
	})
}

func TestNonces(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		n := Nonce()
		if len(n) != 32 || seen[n] {
			t.Fatal(n)
		}
		seen[n] = true
	}
	if got := Hash([]byte("abc")); got != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" {
		t.Error(got)
	}
}

// FuzzParse: no key makes it fall over, and what it reads of a key of ours it reads the same again.
func FuzzParse(f *testing.F) {
	f.Add(ClaimKey(work, 1))
	f.Add(MilestoneManifestKey(work, 3, 12))
	f.Add("work/a/attempt/+1/x")
	f.Fuzz(func(t *testing.T, key string) {
		p, ok := Parse(key)
		if ok && (p.Work == "" || p.Dispatch < 0 || p.Attempt < 0 || p.Dispatch > 0 && p.Attempt > 0) {
			t.Fatalf("%q: %+v", key, p)
		}
		if _, ok := ReleaseNumber(p.Rest); ok && p.Rest == "" {
			t.Fatal("a release without a number")
		}
	})
}

// FuzzDecode: no bytes make a decoder fall over, and what is accepted can be written again.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"protocol":1,"files":[{"path":"a","size":1}]}`))
	f.Add([]byte(`{"parent":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var m Manifest
		if Decode(b, MaxRecord, &m) != nil {
			return
		}
		if len(b) > MaxRecord {
			t.Fatal("accepted beyond its bound")
		}
		if _, err := Encode(m); err != nil {
			t.Fatal(err)
		}
	})
}
