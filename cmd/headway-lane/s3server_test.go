//go:build s3server

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	aws3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/headway-run/headway/deploylane/access"
	"github.com/headway-run/headway/examples"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/open"
	"github.com/headway-run/headway/runners/record"
)

// s3lane is a plan repository and a lane on a real server, where research, the lane and its worker have a user each.
type s3lane struct {
	*signedRepo
	bin    string
	server struct {
		Endpoint, Access, Secret, Region string
		Users                            map[string]string
	}
	admin  *aws3.Client
	bucket string
	apart  access.Policy

	mu    sync.Mutex
	asked []access.Policy // for workers' keys
}

func newS3Lane(t *testing.T) *s3lane {
	t.Helper()
	g := &s3lane{signedRepo: &signedRepo{t, t.TempDir(), t.TempDir()}, bin: t.TempDir(), bucket: fmt.Sprintf("release-%d", time.Now().UnixNano())}
	if err := json.Unmarshal([]byte(os.Getenv("HEADWAY_TEST_S3")), &g.server); err != nil {
		t.Fatalf("HEADWAY_TEST_S3 does not describe a server (%v): run .ci/s3server/run go test -tags s3server ./cmd/headway-lane -run S3Server", err)
	}
	if out, err := exec.Command("go", "build", "-o", g.bin, ".", "../headway").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	g.admin = aws3.New(aws3.Options{BaseEndpoint: &g.server.Endpoint, Region: g.server.Region, UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(g.server.Access, g.server.Secret, "")})
	if _, err := g.admin.CreateBucket(t.Context(), &aws3.CreateBucketInput{Bucket: &g.bucket}); err != nil {
		t.Fatal(err)
	}
	all, err := access.Separate("research", "lane", access.Place{Bucket: g.bucket, Prefix: "research/"}, access.Place{Bucket: g.bucket, Prefix: "lane/"})
	if err != nil {
		t.Fatal(err)
	}
	g.apart = all[g.bucket]
	if err := g.enforce(g.apart); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *s3lane) enforce(p access.Policy) error {
	b, err := json.Marshal(p)
	if err == nil {
		_, err = g.admin.PutBucketPolicy(g.t.Context(), &aws3.PutBucketPolicyInput{Bucket: &g.bucket, Policy: aws.String(string(b))})
	}
	return err
}

func (g *s3lane) url(prefix string) string {
	return fmt.Sprintf("s3://%s/%s?endpoint=%s&region=%s&path_style=true", g.bucket, prefix, g.server.Endpoint, g.server.Region)
}

// lend is the answer to whoever asks for a worker's keys: the server has one worker, whose rights become what was asked.
func (g *s3lane) lend(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var p access.Policy
	err := json.NewDecoder(r.Body).Decode(&p)
	if err == nil {
		now := g.apart
		now.Statement = append(slices.Clone(now.Statement), p.For("worker").Statement...)
		err = g.enforce(now)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	g.asked = append(g.asked, p)
	_ = json.NewEncoder(w).Encode(map[string]string{"AccessKeyId": "worker", "SecretAccessKey": g.server.Users["worker"]})
}

// lay writes the digits example, with seeds and a lane, into the repository. keysAt answers with workers' keys.
func (g *s3lane) lay(keysAt string) {
	g.t.Helper()
	for _, who := range []string{"root", "ann", "lane"} {
		g.run(g.keys, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", who, "-f", who)
	}
	for _, d := range []string{"digits", "plans", "seeds"} {
		for _, name := range must(examples.Digits.ReadDir("digits/" + d)) {
			g.write(d+"/"+name.Name(), string(must(examples.Digits.ReadFile("digits/"+d+"/"+name.Name()))))
		}
	}
	edit := func(file string, pairs ...string) {
		b := must(os.ReadFile(filepath.Join(g.dir, file)))
		g.write(file, strings.NewReplacer(pairs...).Replace(string(b)))
	}
	edit("plans/digits.yaml", "lr: 0.05, hidden: 32, steps: 2000", "lr: 0.3, hidden: 16, steps: 300", "at_least: 0.9", "at_least: 0.5")
	edit("seeds/digits.yaml", "1, 2, 3, 4, 5", "1, 2, 3")
	g.write("headway.yaml", "headway: v1\nstore: \""+g.url("research")+"\"\nplans: [plans/*.yaml, seeds/*.yaml]\nplatforms:\n  here: {runner: local, slots: 2}\ndefaults:\n  on: [here]\n")
	g.write(".gitignore", ".headway/\n.headway-lane/\n")
	g.write("lane/keys.py", "import sys, urllib.request\nsys.stdout.buffer.write(urllib.request.urlopen(sys.argv[1], sys.stdin.buffer.read(), 60).read())\n")
	g.write("lane/lane.yaml", `lane: v1
research: "`+g.url("research")+`"
store: "`+g.url("lane")+`"
worker_keys: [python3, lane/keys.py, "`+keysAt+`"]
platforms:
  pinned: {runner: local}
models:
  digits:
    plan: plans/digits.yaml
    job: digits
    seeds: 3
    backtest: {job: digits-backtest, metric: accuracy, at_least: 0.5}
    metrics: {val_accuracy: {direction: higher, range: share, margin: 0.1, examples: 270}}
    on: [pinned]
    targets: [{pointer: true}]
`)
	probe := ""
	for l := range strings.Lines(g.as("", 0, "headway-lane", "agent", "facts")) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(l), "probe: "); ok {
			probe = v
		}
	}
	g.write("lane/policy.yaml", "stages: [prod]\nmodels:\n  - {match: digits, release: [ann@example.com], stages: {prod: [ann@example.com]}, requires: {os: linux, probe: "+probe+"}}\n")
	g.write("lane/allowed_signers", g.line("ann"))
	g.git("", "init", "-q", "-b", "main", ".")
	g.git("", "add", "-A")
	g.git("root", "commit", "-q", "-S", "-m", "a lane")
}

func (g *s3lane) write(path, text string) {
	g.t.Helper()
	full := filepath.Join(g.dir, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(text), 0o644)); err != nil {
		g.t.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // the example is inside this binary, and the test's own folder is its own
	}
	return v
}

// as runs a binary with the keys of a user, and wants an exit code of it; its standard output.
func (g *s3lane) as(user string, code int, name string, args ...string) string {
	g.t.Helper()
	cmd := exec.Command(filepath.Join(g.bin, name), args...)
	cmd.Dir = g.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "AWS_ACCESS_KEY_ID="+user, "AWS_SECRET_ACCESS_KEY="+g.server.Users[user], "AWS_SESSION_TOKEN=")
	if user == "lane" {
		cmd.Env = append(cmd.Env, "HEADWAY_LANE_KEY="+filepath.Join(g.keys, "lane"))
	}
	var out, trouble bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &trouble
	if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		g.t.Fatalf("%s %s ended with %v, want %d\n%s%s", name, strings.Join(args, " "), err, code, &out, &trouble)
	}
	return out.String()
}

// store opens a prefix with the keys of a user.
func (g *s3lane) store(user, prefix string) bucket.Bucket {
	g.t.Helper()
	b, err := open.URL(g.t.Context(), g.url(prefix), open.Options{Getenv: func(name string) string {
		return map[string]string{"AWS_ACCESS_KEY_ID": user, "AWS_SECRET_ACCESS_KEY": g.server.Users[user]}[name]
	}})
	if err != nil {
		g.t.Fatal(err)
	}
	return b
}

// TestS3ServerAWholeRelease: on a real server research trains, and the lane takes the digits example from a signed tag to its
// release, with keys of its own and others for each launch. Nobody's keys write what is not theirs, and research reads it all.
func TestS3ServerAWholeRelease(t *testing.T) {
	g := newS3Lane(t)
	s := httptest.NewServer(http.HandlerFunc(g.lend))
	defer s.Close()
	g.lay(s.URL)
	g.as("research", 0, "headway", "apply", "--wait")
	root := strings.Fields(g.run(g.keys, "ssh-keygen", "-l", "-f", "root.pub"))[1]
	flags := []string{"--root", root, "--repo", "example.com/models"}
	message := g.as("lane", 0, "headway-lane", append([]string{"tag", "prepare", "release/digits/v1.0.0"}, flags...)...)
	g.write(".headway-lane/message", message)
	g.git("ann", "tag", "-s", "-F", filepath.Join(g.dir, ".headway-lane/message"), "release/digits/v1.0.0")
	if said := g.as("lane", 0, "headway-lane", append([]string{"run"}, flags...)...); !strings.Contains(said, "digits v1.0.0: released") {
		t.Error(said)
	}

	// Each of the two works had keys for its one attempt.
	g.mu.Lock()
	defer g.mu.Unlock()
	prefixes := map[string]bool{}
	for _, p := range g.asked {
		for _, st := range p.Statement {
			for _, r := range st.Resource {
				if strings.Contains(r, "/attempt/") && slices.Contains(st.Action, "s3:PutObject") {
					prefixes[r] = true
				}
			}
		}
	}
	if len(g.asked) != 2 || len(prefixes) != 2 {
		t.Errorf("%d asked for keys, with %v", len(g.asked), slices.Sorted(maps.Keys(prefixes)))
	}

	// With the keys that are left, the worker's being those of its last attempt.
	denied := func(user, prefix, key string) {
		t.Helper()
		if _, err := g.store(user, prefix).Put(t.Context(), key, strings.NewReader("theirs"), bucket.Always()); !bucket.Is(err, bucket.Denied) {
			t.Errorf("%s writes %s/%s: %v", user, prefix, key, err)
		}
	}
	first := ""
	page, err := g.store("lane", "lane").List(t.Context(), record.WitnessPrefix, "", 10)
	if err != nil || len(page.Items) != 2 {
		t.Fatalf("%d works, %v", len(page.Items), err)
	}
	for _, i := range page.Items {
		work := strings.TrimPrefix(i.Key, record.WitnessPrefix)
		denied("research", "lane", i.Key)
		denied("research", "lane", record.ResultManifestKey(work, 1))
		if !strings.Contains(fmt.Sprint(g.asked[1]), record.AttemptPrefix(work, 1)+"*") {
			first = work
		}
	}
	for _, user := range []string{"research", "worker"} {
		for _, key := range []string{"lane/digits/current", "lane/digits/v1.0.0/release.json", "lane/digits/v1.0.1/candidate.json", "lane/digits/ledger/00000002.json"} {
			denied(user, "lane", key)
		}
	}
	denied("worker", "lane", record.WitnessKey(first))
	denied("worker", "lane", record.ResultManifestKey(first, 1))
	denied("worker", "research", record.WitnessKey(first))
	denied("lane", "research", record.WitnessKey(first))

	// Whoever may read the lane's store fetches the model and checks it, without the lane's key.
	public := filepath.Join(g.keys, "lane.pub")
	g.as("research", 0, "headway-lane", append([]string{"fetch", "digits", "model", "--trust", public}, flags...)...)
	if said := g.as("", 0, "headway-lane", "verify", "model.attestation.dsse.json", "--keys", public, "--files", "model"); !strings.Contains(said, "digits v1.0.0: good") {
		t.Error(said)
	}
}
