package local

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/runners"
)

// The bound of a launch reaches its agent; no secret can set one.
func TestTheBoundReachesTheAgent(t *testing.T) {
	for within, want := range map[time.Duration]string{0: "HEADWAY_WITHIN=", 90 * time.Minute: "HEADWAY_WITHIN=1h30m0s"} {
		j := runners.Launch{Work: strings.Repeat("a", 64), Dispatch: 1, Store: "dir:///x", Within: within, Env: map[string]string{"HEADWAY_WITHIN": "1s"}}
		last := ""
		for _, kv := range environment(nil, nil, "here", "/d", j) {
			if strings.HasPrefix(kv, "HEADWAY_WITHIN=") {
				last = kv
			}
		}
		if last != want {
			t.Errorf("%v: %q, want %q", within, last, want)
		}
	}
}

// TestLentKeys: an agent on S3 gets the keys that the dispatcher really uses, and none of another origin beside them;
// one on a folder gets none. Keys that cannot be had are a refused launch that says so.
func TestLentKeys(t *testing.T) {
	dispatcher := []string{"PATH=/bin", "AWS_ACCESS_KEY_ID=old", "AWS_SECRET_ACCESS_KEY=old", "AWS_SESSION_TOKEN=stale", "AWS_CA_BUNDLE=/ca.pem", "AWS_PROFILE=p"}
	asked := 0
	r := &Runner{storeEnv: func(context.Context) ([]string, error) {
		asked++
		return []string{"AWS_ACCESS_KEY_ID=new", "AWS_SECRET_ACCESS_KEY=new", "AWS_REGION=eu-1"}, nil
	}}
	for store, want := range map[string][]string{
		"s3://b/p": {"AWS_CA_BUNDLE=/ca.pem", "AWS_PROFILE=p", "AWS_ACCESS_KEY_ID=new", "AWS_SECRET_ACCESS_KEY=new", "AWS_REGION=eu-1"},
		"dir:///x": nil,
	} {
		jobs := []runners.Launch{{Work: strings.Repeat("a", 64), Dispatch: 1, Store: store}}
		lent, err := r.lend(t.Context(), jobs)
		if err != nil {
			t.Fatal(err)
		}
		env := environment(dispatcher, lent, "here", "/d", jobs[0])
		got := slices.DeleteFunc(env, func(kv string) bool { return !strings.HasPrefix(kv, "AWS_") })
		if d := cmp.Diff(want, got, cmp.Transformer("nil", func(s []string) string { return strings.Join(s, " ") })); d != "" {
			t.Errorf("%s: %s", store, d)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	r, err := New(Config{Platform: "here", Scratch: t.TempDir(), Agent: []string{"/bin/true"}, StoreEnv: func(context.Context) ([]string, error) {
		return nil, errors.New("the keys run out in 3m")
	}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Launch(t.Context(), []runners.Launch{{Work: strings.Repeat("a", 64), Dispatch: 1, Store: "s3://b/p"}})
	if runners.ClassOf(err) != runners.Rejected || !strings.Contains(err.Error(), "run out in 3m") || !strings.Contains(err.Error(), "renew the store's keys") {
		t.Errorf("%v", err)
	}
}
