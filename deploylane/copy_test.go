package deploylane

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headway-run/headway/deploylane/attest"
	"github.com/headway-run/headway/runners/record"
)

// copied is a folder with everything that the lane wrote.
func (g *rig) copied(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for k, body := range g.records() {
		file := filepath.Join(dir, k)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(body), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestCheckCopy: whatever of a release's records somebody edits, takes away or exchanges in a copy of the store is found without the
// store: also the release's own record, which no attestation can name, what targets answered, and the pointer's places.
func TestCheckCopy(t *testing.T) {
	const of = "lane/digits/v1.0.0/"
	edit := func(name string) func(string) error {
		return func(dir string) error {
			b, err := os.ReadFile(filepath.Join(dir, name))
			return errors.Join(err, os.WriteFile(filepath.Join(dir, name), bytes.Replace(b, []byte(`"reason":"`), []byte(`"reason":"x`), 1), 0o644))
		}
	}
	swap := func(from, to string) func(string) error {
		return func(dir string) error { return os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)) }
	}
	gone := func(name string) func(string) error {
		return func(dir string) error { return os.Remove(filepath.Join(dir, name)) }
	}
	synctest.Test(t, func(t *testing.T) {
		g := twoReleased(t)
		envelope := []byte(g.records()[attestationKey("digits", "v1.0.0")])
		by := []attest.Key{g.lane.Attester.Key()}
		v, err := attest.Verify(envelope, by)
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			do   func(dir string) error
			says string
		}{
			"as it was":                {func(string) error { return nil }, ""},
			"without what comes after": {func(dir string) error { return os.RemoveAll(filepath.Join(dir, "lane/digits/history")) }, ""},
			"an edited candidate":      {edit(of + "candidate.json"), `1 changed, 0 missing (changed: "lane/digits/v1.0.0/candidate.json")`},
			"an edited release":        {edit(of + "release.json"), "v1.0.0/release.json does not carry a signature of the lane"},
			"no release":               {gone(of + "release.json"), `0 changed, 1 missing (missing: "lane/digits/v1.0.0/release.json")`},
			"another version's":        {swap("lane/digits/v1.1.0/release.json", of+"release.json"), "is the record of digits v1.1.0 release"},
			"an edited answer":         {edit(of + "target-tell.json"), "target-tell.json does not carry a signature of the lane"},
			"another version's answer": {swap("lane/digits/v1.1.0/target-tell.json", of+"target-tell.json"), "is the record of digits v1.1.0 target"},
			"an edited place":          {edit("lane/digits/history/00000001.json"), "history/00000001.json does not carry a signature of the lane"},
			"a place of another":       {swap("lane/digits/history/00000002.json", "lane/digits/history/00000001.json"), "does not follow the place before it"},
			"a gap":                    {gone("lane/digits/history/00000001.json"), `0 changed, 1 missing (missing: "lane/digits/history/00000001.json")`},
			"no last place":            {gone("lane/digits/history/00000002.json"), `0 changed, 1 missing (missing: "lane/digits/history/00000002.json")`},
			"a link": {func(dir string) error {
				return errors.Join(swap(of+"release.json", of+"was.json")(dir), os.Symlink("was.json", filepath.Join(dir, of+"release.json")))
			}, "is no regular file"},
		} {
			dir := g.copied(t)
			if err := c.do(dir); err != nil {
				t.Fatal(err)
			}
			err := CheckCopy(t.Context(), v, envelope, by, dir)
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%s: %v", name, err)
			}
		}
		// The lane's own key signed another attestation of the same records, which the release does not name.
		other := v.Statement
		other.Predicate.Lane = "another"
		again, err := attest.Sign(other, g.lane.Attester)
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckCopy(t.Context(), must(attest.Verify(again, by)), again, by, g.copied(t)); err == nil || !strings.Contains(err.Error(), "names the attestation "+short(record.Hash(envelope))) {
			t.Errorf("another attestation: %v", err)
		}
		if err := CheckCopy(t.Context(), v, envelope, nil, g.copied(t)); err == nil || !strings.Contains(err.Error(), "does not carry a signature") {
			t.Errorf("of another lane: %v", err)
		}
	})
}

// TestTheGoldenCopy: the copy that lies beside the golden attestation is whole; headway-lane verify --records is tried on it.
func TestTheGoldenCopy(t *testing.T) {
	const dir, file = "attest/testdata/records", "attest/testdata/records/lane/digits/v1.2.0/release.json"
	envelope, err := os.ReadFile("attest/testdata/release-v1.dsse.json")
	if err != nil {
		t.Fatal(err)
	}
	public, err := os.ReadFile("attest/testdata/lane.pub")
	if err != nil {
		t.Fatal(err)
	}
	by := must(attest.ParseKeys(public))
	v := must(attest.Verify(envelope, by))
	if *update {
		l := &Lane{Key: ed25519.NewKeyFromSeed(bytes.Repeat([]byte{'a'}, ed25519.SeedSize))}
		p := v.Predicate
		b, err := l.seal(Record{Lane: 1, Stage: Release, Model: p.Model, Version: p.Version, Object: p.Tag.Object, Before: p.Records[len(p.Records)-1].SHA256, Passed: true, Reason: "digits v1.2.0 is released",
			Release: &Released{Attestation: attest.Link{Key: attestationKey(p.Model, p.Version), SHA256: record.Hash(envelope)}, Artifact: p.Retrained.Manifest}})
		if err == nil {
			err = os.WriteFile(file, b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := CheckCopy(t.Context(), v, envelope, by, dir); err != nil {
		t.Error(err)
	}
}
