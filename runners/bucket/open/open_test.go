package open_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/open"
)

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestDir(t *testing.T) {
	root := filepath.Join(t.TempDir(), "a store")
	url := "dir://" + strings.ReplaceAll(root, " ", "%20")
	if _, err := open.URL(t.Context(), url, open.Options{}); !bucket.Is(err, bucket.NoBucket) {
		t.Errorf("a missing folder: %v, want NoBucket", err)
	}
	b, err := open.URL(t.Context(), url, open.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Put(t.Context(), "k", strings.NewReader("x"), bucket.IfAbsent()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(root, "objects", "k")); err != nil {
		t.Error(err)
	}
}

func TestRefusals(t *testing.T) {
	keys := env("AWS_ACCESS_KEY_ID", "a", "AWS_SECRET_ACCESS_KEY", "s")
	noPEM := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(noPEM, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]struct {
		getenv func(string) string
		text   string
	}{
		"":                             {nil, `found scheme "", expected dir or s3`},
		"embedded":                     {nil, `found scheme "", expected dir or s3`},
		"gs://bucket":                  {nil, `found scheme "gs", expected dir or s3`},
		"%zz":                          {nil, "it is no URL"},
		"dir://relative/path":          {nil, "with three slashes"},
		"dir:relative":                 {nil, "with three slashes"},
		"dir:///a?b":                   {nil, "has no ? or # part"},
		"s3://b?region=r":              {nil, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"},
		"s3://key:secret@b?region=r":   {keys, "credentials in a URL are not accepted"},
		"s3://b":                       {keys, "the region is missing"},
		"s3:///prefix?region=r":        {keys, "bad bucket name"},
		"s3://b?region=r&x=1":          {keys, `unknown parameter "x"`},
		"s3://b?region=r&region=q":     {keys, `parameter "region" is given 2 times`},
		"s3://b?region=r&path_style=1": {keys, `found path_style="1"`},
		"s3://b?region=r&quirks=odd":   {keys, `unknown quirk "odd"`},
		"s3://b?endpoint=host:9000":    {keys, "bad endpoint"},
		"s3://b/a/../c?region=r":       {keys, `a part ".."`},
		"s3://b?region=r&endpoint=":    {env("AWS_ACCESS_KEY_ID", "a", "AWS_SECRET_ACCESS_KEY", "s", "AWS_CA_BUNDLE", noPEM), "no certificate in"},
	} {
		_, err := open.URL(t.Context(), url, open.Options{Getenv: want.getenv})
		if err == nil || !strings.Contains(err.Error(), want.text) || strings.Contains(err.Error(), "secret@") {
			t.Errorf("%q: got %v, want %q", url, err, want.text)
		}
	}
}

func TestPresignedAddressShowsWhatWasOpened(t *testing.T) {
	keys := []string{"AWS_ACCESS_KEY_ID", "a", "AWS_SECRET_ACCESS_KEY", "s"}
	got := map[string]string{}
	for url, getenv := range map[string]func(string) string{
		"s3://buck/team/a?endpoint=https://host:9000": env(keys...),
		"s3://buck?region=eu-west-1":                  env(keys...),
		"s3://buck/p":                                 env(append(keys, "AWS_ENDPOINT_URL_S3", "https://r2", "AWS_REGION", "auto")...),
		"s3://buck?endpoint=https://host&path_style=false&region=x&quirks=etag_unquoted": env(keys...),
	} {
		b, err := open.URL(t.Context(), url, open.Options{Getenv: getenv})
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		u, err := b.Presign(t.Context(), bucket.MethodGet, "k", 60e9)
		if err != nil {
			t.Errorf("%s: %v", url, err)
		}
		got[url], _, _ = strings.Cut(u, "?")
	}
	want := map[string]string{
		"s3://buck/team/a?endpoint=https://host:9000": "https://host:9000/buck/team/a/k",
		"s3://buck?region=eu-west-1":                  "https://buck.s3.eu-west-1.amazonaws.com/k",
		"s3://buck/p":                                 "https://r2/buck/p/k",
		"s3://buck?endpoint=https://host&path_style=false&region=x&quirks=etag_unquoted": "https://buck.host/k",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}

// TestAnyText: any text is opened or refused in one sentence. Nothing is sent, and no folder is made.
func TestAnyText(t *testing.T) {
	getenv := env("AWS_ACCESS_KEY_ID", "a", "AWS_SECRET_ACCESS_KEY", "s")
	part := rapid.OneOf(rapid.SampledFrom([]string{"s3://", "dir:", "//", "b", "/p", "?", "&", "endpoint=", "https://h", "region=", "path_style=", "true", "quirks=", "etag_unquoted", "u:p@", "#", "%", ":"}), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		u := strings.Join(rapid.SliceOfN(part, 0, 12).Draw(t, "parts"), "")
		if strings.HasPrefix(u, "dir:///") {
			return // it would look at that folder
		}
		b, err := open.URL(context.Background(), u, open.Options{Getenv: getenv})
		if (b == nil) == (err == nil) || err != nil && (strings.ContainsAny(err.Error(), "\n\x1b\x00") || len(err.Error()) > 2_000) {
			t.Fatalf("%q: %v, %v", u, b, err)
		}
	})
}
