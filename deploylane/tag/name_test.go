package tag

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestNames: the grammar of git.md's §4.1, and a reason for what is outside of it.
func TestNames(t *testing.T) {
	stages := []string{"prod"}
	for _, good := range []string{"release/digits/v1.2.0", "release/a/v0.0.0", "release/nlp-base.v2_x/v10.20.30-rc.1", "release/0/v1.0.0-0", "stage/digits/prod/1", "stage/digits/prod/999999999",
		"release/" + strings.Repeat("m", 63) + "/v1.0.0"} {
		n, r := Parse(refTags+good, stages)
		if r != nil || n.String() != good || n.Ref() != refTags+good || modelOf(refTags+good) != n.Model {
			t.Errorf("%s: %+v, %v", good, n, r)
		}
	}
	for bad, want := range map[string]string{
		"release/Digits/v1.0.0":                          "the model Digits must be",
		"release/-a/v1.0.0":                              "the model -a must be",
		"release/a..b/v1.0.0":                            "the model a..b must be",
		"release/a.lock/v1.0.0":                          "the model a.lock must be",
		"release/head/v1.0.0":                            "the model head must be",
		"release/_/v1.0.0":                               "the model _ must be",
		"release/" + strings.Repeat("m", 64) + "/v1.0.0": "must be",
		"release/a/1.0.0":                                "must look like v1.2.0",
		"release/a/v1.0":                                 "must look like v1.2.0",
		"release/a/v01.0.0":                              "must look like v1.2.0",
		"release/a/v1.0.0-":                              "must look like v1.2.0",
		"release/a/v1.0.0-01":                            "must look like v1.2.0",
		"release/a/v1.0.0-a..b":                          "must look like v1.2.0",
		"release/a/v1.0.1000000000":                      "must look like v1.2.0",
		"release/a/v1.0.0-x.lock":                        "must look like v1.2.0",
		"release/a/v1.0.0+linux":                         "has build metadata",
		"release/a/v1.0.0/x":                             "a release is called",
		"release/a":                                      "a release is called",
		"stage/digits/prod":                              "a stage tag is called",
		"stage/digits/prod/1/2":                          "a stage tag is called",
		"stage/digits/live/1":                            "the stage live is none of prod",
		"stage/digits/prod/0":                            "must be plain digits",
		"stage/digits/prod/01":                           "must be plain digits",
		"stage/digits/prod/+1":                           "must be plain digits",
		"stage/digits/prod/1000000000":                   "must be plain digits",
		"stage/Digits/prod/1":                            "the model Digits must be",
	} {
		if _, r := Parse(refTags+bad, stages); r == nil || r.Code != BadTagName || !strings.Contains(r.Text, want) {
			t.Errorf("%s: %v, want %q", bad, r, want)
		}
	}
}

// TestVersionsAreOrdered: as semver.org §11 gives them.
func TestVersionsAreOrdered(t *testing.T) {
	var in []Version
	want := []string{"v0.9.9", "v1.0.0-1", "v1.0.0-alpha", "v1.0.0-alpha.1", "v1.0.0-alpha.beta", "v1.0.0-beta", "v1.0.0-beta.2", "v1.0.0-beta.11", "v1.0.0-rc.1", "v1.0.0", "v1.0.1", "v1.2.0", "v1.10.0", "v2.0.0"}
	for _, s := range want {
		v, err := ParseVersion(s)
		if err != nil {
			t.Fatal(err)
		}
		in = append(in, v)
	}
	rapid.Check(t, func(rt *rapid.T) {
		got := rapid.Permutation(in).Draw(rt, "order")
		slices.SortFunc(got, Version.Compare)
		for i, v := range got {
			if v.String() != want[i] || v.Compare(v.next()) >= 0 {
				rt.Fatalf("%v, want %v", got, want)
			}
		}
	})
}

// FuzzName: a name is refused, or is read back as it was written.
func FuzzName(f *testing.F) {
	f.Add("refs/tags/release/digits/v1.2.0-rc.1")
	f.Add("refs/tags/stage/digits/prod/7")
	f.Fuzz(func(t *testing.T, ref string) {
		n, r := Parse(ref, []string{"prod"})
		if r == nil && (n.String() != strings.TrimPrefix(ref, refTags) || CheckModel(n.Model) != "") {
			t.Fatalf("%q is read as %q", ref, n)
		}
		if r != nil && (r.Code != BadTagName || strings.ContainsAny(r.Text, "\n\x1b")) {
			t.Fatalf("%q: %v", ref, r)
		}
	})
}
