package main

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// TestKeysFromAProfile: keys that are in no variable reach the agent all the same, and the program never.
func TestKeysFromAProfile(t *testing.T) {
	backend := s3mem.New()
	if err := backend.CreateBucket("team"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gofakes3.New(backend).Server())
	defer server.Close()
	file := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(file, []byte("[default]\naws_access_key_id = key\naws_secret_access_key = CANARY-not-for-your-eyes\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := newStoreProject(t, built(t), "s3://team/x?endpoint="+server.URL+"&region=us-east-1&path_style=true", "AWS_SHARED_CREDENTIALS_FILE="+file)
	p.write("prog/job.sh", "env >\"$HEADWAY_RESULT/env\"\n")
	p.commit("show the environment")
	p.run("apply --wait", 0, "finished by attempt 1")
	out := t.TempDir()
	p.run("fetch job --to "+out, 0)
	b, err := os.ReadFile(filepath.Join(out, "env"))
	if err != nil || len(b) == 0 || strings.Contains(string(b), "CANARY") || strings.Contains(string(b), "AWS_") {
		t.Errorf("%v: the program saw\n%s", err, b)
	}
}

func TestLentKeysLast(t *testing.T) {
	now := time.Now()
	keys := aws.Credentials{AccessKeyID: "a", SecretAccessKey: "s", SessionToken: "t", CanExpire: true, Expires: now.Add(leastKeys)}
	env, err := lent(keys, "eu-1", now)
	if got := strings.Join(env, " "); err != nil || got != "AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=s AWS_SESSION_TOKEN=t AWS_REGION=eu-1" {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := lent(keys, "", now.Add(10*time.Minute)); err == nil || !strings.Contains(err.Error(), "run out in 5m0s, a run needs them for 15m0s") {
		t.Errorf("%v", err)
	}
	keys.CanExpire = false
	if _, err := lent(keys, "", now.Add(time.Hour)); err != nil {
		t.Error(err)
	}
}
