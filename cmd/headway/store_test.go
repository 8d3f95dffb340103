package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// built compiles the binary once for a test.
func built(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "headway")
	if out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return bin
}

// storeProject is a committed project of one small job, on a store of its own.
type storeProject struct {
	t    *testing.T
	bin  string
	dir  string
	keys []string // AWS_* variables
}

func newStoreProject(t *testing.T, bin, store string, keys ...string) *storeProject {
	t.Helper()
	p := &storeProject{t: t, bin: bin, dir: t.TempDir(), keys: keys}
	p.on(store)
	p.write("plans/jobs.yaml", "jobs:\n  job: {kind: train, code: ../prog, run: sh job.sh}\n")
	p.write("prog/job.sh", "echo '{\"x\": 1}' >\"$HEADWAY_RESULT/metrics.json\"\n")
	if err := ignoreState(p.dir); err != nil {
		t.Fatal(err)
	}
	p.commit("a job")
	return p
}

func (p *storeProject) on(store string) {
	p.write("headway.yaml", "headway: v1\nstore: \""+store+"\"\nplans: [plans/*.yaml]\nplatforms:\n  here: {runner: local}\ndefaults: {on: [here]}\n")
}

func (p *storeProject) write(path, body string) {
	p.t.Helper()
	name := filepath.Join(p.dir, path)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(body), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func (p *storeProject) commit(message string) {
	p.t.Helper()
	if _, err := commitAll(p.dir, message); err != nil {
		p.t.Fatal(err)
	}
}

// run runs a verb to its end and holds its exit code and what it says against what is wanted.
func (p *storeProject) run(verb string, code int, want ...string) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.bin, append([]string{"-C", p.dir}, strings.Fields(verb)...)...)
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "AWS_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, "AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE="+os.DevNull, "AWS_SHARED_CREDENTIALS_FILE="+os.DevNull)
	cmd.Env = append(cmd.Env, p.keys...)
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != code {
		p.t.Errorf("headway %s ended with %d, want %d:\n%s", verb, got, code, out)
	}
	for _, w := range want {
		if !strings.Contains(string(out), w) {
			p.t.Errorf("headway %s does not say %q:\n%s", verb, w, out)
		}
	}
	for _, kv := range p.keys {
		if k, v, _ := strings.Cut(kv, "="); k == "AWS_SECRET_ACCESS_KEY" && strings.Contains(string(out), v) {
			p.t.Errorf("headway %s prints the secret key:\n%s", verb, out)
		}
	}
	return string(out)
}

// TestStoreIgnoresConditions: a store that overwrites in spite of If-None-Match or If-Match is refused before anything
// is launched, in one sentence.
func TestStoreIgnoresConditions(t *testing.T) {
	bin := built(t)
	for header, says := range map[string]string{"If-None-Match": "it silently ignores If-None-Match", "If-Match": "it silently ignores If-Match"} {
		t.Run(header, func(t *testing.T) {
			backend := s3mem.New()
			if err := backend.CreateBucket("team"); err != nil {
				t.Fatal(err)
			}
			inner := gofakes3.New(backend).Server()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header.Del(header)
				inner.ServeHTTP(w, r)
			}))
			defer server.Close()
			p := newStoreProject(t, bin, "s3://team/x?endpoint="+server.URL+"&region=us-east-1&path_style=true",
				"AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=not-for-your-eyes")
			p.run("apply", 1, "cannot hold leases", says, "hint: nothing was launched")
			p.run("doctor", 1, says, "no launch is made on a store that fails here")
			objects, err := backend.ListBucket("team", nil, gofakes3.ListBucketPage{})
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range objects.Contents {
				if strings.Contains(o.Key, "/work/") || strings.Contains(o.Key, "/witness/") || strings.Contains(o.Key, "/accepted/") {
					t.Errorf("the refused store holds %s", o.Key)
				}
			}
		})
	}
}

// TestStoreAway: a server that is not there is said in one sentence, with what to look at.
func TestStoreAway(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	url := server.URL
	server.Close()
	p := newStoreProject(t, built(t), "s3://team/x?endpoint="+url+"&region=us-east-1&path_style=true", "AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=not-for-your-eyes")
	p.run("status", 1, "error: ", "connection refused")
	p.run("apply", 1, "error: ", "connection refused")
}

// TestNoKeys: without any credentials the store is not asked, and nothing that a service of the machine answers is taken
// for the store's word. One that does not answer is waited for a few seconds.
func TestNoKeys(t *testing.T) {
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer refuses.Close()
	over := make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
	defer hangs.Close()
	defer close(over)
	p := newStoreProject(t, built(t), "s3://team/x?endpoint=http://127.0.0.1:9&region=us-east-1")
	for what, keys := range map[string][]string{
		"nothing":  nil,
		"metadata": {"AWS_EC2_METADATA_DISABLED=false", "AWS_EC2_METADATA_SERVICE_ENDPOINT=" + refuses.URL},
		"hangs":    {"AWS_CONTAINER_CREDENTIALS_FULL_URI=" + hangs.URL},
	} {
		t.Run(what, func(t *testing.T) {
			p.t, p.keys = t, keys
			start := time.Now()
			out := p.run("apply", 1, "error: store s3://team/x", ": no credentials were found (looked in AWS_ACCESS_KEY_ID, ", "hint: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or ")
			if took := time.Since(start); took > 6*keysWait || strings.Count(out, "\n") != 2 {
				t.Errorf("after %s, and more than an error and a hint:\n%s", took, out)
			}
		})
	}
}
