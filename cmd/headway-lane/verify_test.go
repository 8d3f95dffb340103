package main

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// verify runs the verb in a copy of the golden release's folder, after spoil.
func verify(t *testing.T, spoil func(dir string) error, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../deploylane/attest/testdata")); err != nil {
		t.Fatal(err)
	}
	if spoil != nil {
		if err := spoil(dir); err != nil {
			t.Fatal(err)
		}
	}
	var out, trouble bytes.Buffer
	code = run(t.Context(), env{args: append([]string{"verify"}, args...), stdin: strings.NewReader(""), stdout: &out, stderr: &trouble, getenv: func(string) string { return "" }, dir: dir})
	return code, out.String(), trouble.String()
}

const golden = "release-v1.dsse.json"

func TestVerify(t *testing.T) {
	edit := func(file, old, new string) func(string) error {
		return func(dir string) error {
			path := filepath.Join(dir, file)
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(path, bytes.Replace(b, []byte(old), []byte(new), 1), 0o644)
		}
	}
	whole := []string{golden, "--keys", "lane.pub", "--files", "model"}
	for name, c := range map[string]struct {
		spoil func(string) error
		args  []string
		code  int
		says  string
	}{
		"good":              {nil, whole, exitOK, "digits v1.2.0: good, signed by SHA256:"},
		"without its files": {nil, whole[:3], exitOK, "  model.safetensors\n"},
		"with a twin":       {nil, []string{golden, "--keys", "lane.pub", "--twin", "twin-v1.dsse.json"}, exitOK, "digits v1.2.0 and digits v1.2.1: bit-identical on the same device class, build and software versions\n"},
		"a forged twin":     {edit("twin-v1.dsse.json", `"payload":"eyJ`, `"payload":"eyK`), []string{golden, "--keys", "lane.pub", "--twin", "twin-v1.dsse.json"}, exitRefused, "does not fit the payload"},
		"with its records":  {nil, append(whole[:3:3], "--records", "records"), exitOK, "/records: 1 that it names"},
		"with a store": {func(dir string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "store"), 0o755), os.Rename(filepath.Join(dir, "records"), filepath.Join(dir, "store", "objects")))
		}, append(whole[:3:3], "--records", "store"), exitOK, "/store/objects: 1 that it names"},
		"an edited record": {edit("records/lane/digits/v1.2.0/candidate.json", "record", "Record"), append(whole[:3:3], "--records", "records"), exitRefused,
			`1 changed, 0 missing (changed: "lane/digits/v1.2.0/candidate.json")`},
		"an edited release": {edit("records/lane/digits/v1.2.0/release.json", `"reason":"`, `"reason":"x`), append(whole[:3:3], "--records", "records"), exitRefused,
			"v1.2.0/release.json does not carry a signature of the lane"},
		"swapped artifact": {edit("model/model.safetensors", "model", "Model"), whole, exitRefused, `1 changed ("model.safetensors")`},
		"hand-edited":      {edit(golden, `"payload":"eyJ`, `"payload":"eyK`), whole, exitRefused, "does not fit the payload"},
		"another lane's":   {edit("lane.pub", "K8Go", "K8Gp"), whole, exitRefused, "none of the keys given is that one"},
		"no attestation":   {nil, []string{"lane.pub", "--keys", "lane.pub"}, exitRefused, "this is no attestation"},
		"no key":           {nil, whole[:1], exitError, "--keys"},
		"a private key":    {edit("lane.pub", "ssh-ed25519", "-----BEGIN OPENSSH PRIVATE KEY-----"), whole, exitError, "found a private key"},
		"no file":          {nil, []string{"none.json", "--keys", "lane.pub"}, exitError, "no such file"},
		"http elsewhere":   {nil, []string{"http://example.com/x", "--keys", "lane.pub"}, exitError, "http://example.com is not read"},
		"another scheme":   {nil, []string{"ftp://example.com/x", "--keys", "lane.pub"}, exitError, "ftp://example.com is not read"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := verify(t, c.spoil, c.args...)
			said := stdout
			if c.code != exitOK {
				said = stderr
				if stdout != "" {
					t.Errorf("refused, and yet it says %q", stdout)
				}
			}
			if code != c.code || !strings.Contains(said, c.says) {
				t.Errorf("%d, want %d; stdout %q, stderr %q", code, c.code, stdout, stderr)
			}
		})
	}
}

// What a server sends is bounded, and where it points is held to the same rule.
func TestVerifyFromAServer(t *testing.T) {
	good, err := os.ReadFile("../../deploylane/attest/testdata/" + golden)
	if err != nil {
		t.Fatal(err)
	}
	answers := http.NewServeMux()
	answers.HandleFunc("/good", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(good) })
	answers.Handle("/moved", http.RedirectHandler("/good", http.StatusFound))
	answers.Handle("/away", http.RedirectHandler("http://192.0.2.1/good", http.StatusFound))
	answers.Handle("/round", http.RedirectHandler("/round", http.StatusFound))
	answers.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(bytes.Repeat([]byte(" "), 1<<16)); err != nil {
				return
			}
		}
	})
	s := httptest.NewServer(answers)
	defer s.Close()
	for path, want := range map[string]string{"/good": "", "/moved": "", "/away": "http://192.0.2.1 is not read", "/round": "again and again", "/none": "404", "/endless": "at most 8388608 are read"} {
		code, stdout, stderr := verify(t, nil, s.URL+path, "--keys", "lane.pub")
		if (want == "") != (code == exitOK && strings.Contains(stdout, "good, signed by")) || !strings.Contains(stderr, want) || strings.Contains(stderr, s.URL) {
			t.Errorf("%s: %d %q %q", path, code, stdout, stderr)
		}
	}
}
