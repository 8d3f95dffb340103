package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/deploylane"
	"github.com/headway-run/headway/deploylane/attest"
	"github.com/headway-run/headway/deploylane/spread"
	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/meter"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/counting"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
)

// canon is JSON as a lane writes it.
func canon(t *testing.T, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	var loose any
	if err := errors.Join(e.Encode(v), json.Unmarshal(b.Bytes(), &loose)); err != nil {
		t.Fatal(err)
	}
	b.Reset()
	if err := e.Encode(loose); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// releases puts records into a lane's store, each naming the one before it, with a signature that is none.
func releases(t *testing.T, b bucket.Bucket, model, version, object string, records ...deploylane.Record) (last string) {
	t.Helper()
	for i, r := range records {
		r.Lane, r.Model, r.Version, r.Object, r.Before = 1, model, version, object, last
		name := "target-pointer"
		if r.Stage = "target"; r.Answer == nil {
			r.Stage = deploylane.Stages()[i]
			name = r.Stage
		}
		body := canon(t, map[string]any{"record": json.RawMessage(canon(t, r)), "signature": "bm9uZQ=="})
		put(t, b, "lane/"+model+"/"+version+"/"+name+".json", body)
		last = record.Hash(body)
		if r.Release != nil {
			put(t, b, "lane/"+model+"/current", canon(t, deploylane.Current{N: 1, Version: version, Release: attest.Link{SHA256: last}}))
		}
	}
	return last
}

func put(t *testing.T, b bucket.Bucket, key string, body []byte) {
	t.Helper()
	if _, err := b.Put(t.Context(), key, bytes.NewReader(body), bucket.IfAbsent()); err != nil {
		t.Fatal(err)
	}
}

// laneStore has a release that is live, one that was refused and one that is under way; texts are as given.
func laneStore(t *testing.T, text string) *mem.Bucket {
	t.Helper()
	b := mem.New()
	run := func(n int) deploylane.Run {
		return deploylane.Run{Name: "digits" + text, Work: strings.Repeat(fmt.Sprint(n), 64), Attempt: 1, Fingerprint: map[string]string{"arch": "amd64" + text},
			Metrics: map[string]float64{"val_accuracy": 0.95}, Manifest: attest.Link{Key: "work/x" + text, SHA256: strings.Repeat("ab", 32)}}
	}
	order := deploylane.Order{Tag: "release/digits/v1.0.0" + text, Object: "0b1ec7" + text, Commit: "c0ffee" + text, Signer: "ann@example.com" + text, Key: "SHA256:ann", Plan: attest.File{Path: "plans/digits.yaml" + text, SHA256: "00"}}
	first := deploylane.Record{Passed: true, Reason: "all is there" + text, Candidate: &deploylane.Chosen{Order: order, Parent: run(1), Backtest: run(2), Seeds: []deploylane.Run{run(3)}, LeftOut: []string{"digits-4: it has not finished" + text}}}
	second := run(5)
	retrain := deploylane.Record{Passed: true, Reason: "trained" + text, Run: &second}
	releases(t, b, "digits", "v1.0.0", "0b1ec7", first, retrain,
		deploylane.Record{Passed: true, Reason: "within" + text, Spread: &spread.Report{Verdict: spread.Within, Metrics: []spread.Judged{{Metric: spread.Metric{Name: "val_accuracy" + text}, Verdict: spread.Within, N: 5, Lo: 0.9, Hi: 1, Value: 0.95}}}},
		deploylane.Record{Passed: true, Reason: "scored" + text, Run: &second, Score: &attest.Score{Name: "accuracy" + text, Direction: spread.Higher, Value: 0.94, Bound: 0.9}},
		deploylane.Record{Passed: true, Reason: "approved" + text, Approval: []attest.Tag{{Name: "stage/digits/prod/1" + text, Object: "5ec0d", Signer: "bob@example.com" + text, Key: "SHA256:bob"}}},
		deploylane.Record{Passed: true, Reason: "released" + text, Release: &deploylane.Released{Artifact: second.Manifest, Attestation: attest.Link{Key: "lane/a" + text, SHA256: "cd"}}},
		deploylane.Record{Passed: true, Reason: "took it" + text, Answer: &deploylane.TargetAnswer{Target: "pointer" + text, Kind: "pointer", Text: "is at v1.0.0" + text}})
	releases(t, b, "digits", "v1.1.0", "0b1ec8", deploylane.Record{Code: "TooFewSeeds" + text, Reason: "2 seeds, 3 are needed" + text, Candidate: &deploylane.Chosen{Order: order}})
	releases(t, b, "digits", "v1.2.0", "0b1ec9", first, retrain)
	return b
}

// shownLanes is a source whose plan names these stores. One without a bucket is not there.
func shownLanes(stores map[string]bucket.Bucket) (*watcher, http.Handler) {
	w := &watcher{meter: meter.New("d", "dev"), health: newHealth(0), lanes: &lanes{open: func(_ context.Context, url string) (bucket.Bucket, error) {
		if b := stores[url]; b != nil {
			return b, nil
		}
		return nil, fmt.Errorf("store %s: %w", url, fs.ErrNotExist)
	}}}
	p := &plan.Plan{Jobs: []plan.Job{{Name: "digits-big", Work: plan.Digest(strings.Repeat("1", 64))}}}
	for url := range stores {
		p.Config.Lanes = append(p.Config.Lanes, url)
	}
	w.lanes.follow(p)
	return w, page([]*watcher{w}, nil)
}

// TestLanesJSON: the whole document, of a store with releases in each state and of one that is not there.
func TestLanesJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, h := shownLanes(map[string]bucket.Bucket{"dir:///lane": laneStore(t, ""), "dir:///nowhere": nil})
		code, body := askPage(h, "GET", "/lanes.json")
		var doc bytes.Buffer
		if err := json.Indent(&doc, []byte(body), "", " "); err != nil || code != 200 {
			t.Fatalf("%d %s: %v", code, body, err)
		}
		names := map[string]string{}
		got := regexp.MustCompile(`"[0-9a-f]{64}"`).ReplaceAllStringFunc(doc.String(), func(d string) string {
			if names[d] == "" {
				names[d] = fmt.Sprintf(`"digest %d, whole"`, len(names)+1)
			}
			return names[d]
		})
		const golden = "testdata/lanes.json"
		if os.Getenv("UPDATE") != "" {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("UPDATE=1 writes %s (-want +got):\n%s", golden, diff)
		}
	})
}

// ours is the markup that the page may consist of.
var ours = regexp.MustCompile(`<(!doctype html|html lang="en"|meta charset="utf-8"|meta name="viewport" content="width=device-width"|td colspan="6"|p class="wrong"|code title="[0-9a-f]{64}"|/?(head|title|style|body|section|h[123]|p|table|tr|t[dh]|details|summary|ul|li|b|code)|/html)>`)

// TestLanesPage: what stands in a store is text on the page, never markup, link or attribute; both faces of a record are there.
func TestLanesPage(t *testing.T) {
	for name, text := range map[string]string{"plain": "", "hostile": "<script>alert(1)</script>\"'&amp;<a href=https://x>%s\x1b[2J\u202e\x00\n<!--" + strings.Repeat("<i>", 5000)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, h := shownLanes(map[string]bucket.Bucket{"dir:///lane": laneStore(t, text)})
				code, body := askPage(h, "GET", "/lanes")
				rest := ours.ReplaceAllString(body, "")
				if code != 200 || strings.ContainsAny(rest, "<>\"") || len(body) > 1<<20 {
					t.Errorf("%d, %d bytes: what is no markup of ours:\n%.3000s", code, len(body), rest)
				}
				if i := strings.IndexFunc(body, func(r rune) bool { return r < ' ' && r != '\n' || r == '\u202e' }); i >= 0 {
					t.Errorf("what cannot be seen got through at %d", i)
				}
				for _, want := range []string{"v1.0.0", "live", "refused: TooFewSeeds", "under way", "not verified here", "generation 1: work 111111111111 attempt 1", "on the board: job digits-big",
					"seed: work 333333333333", "generation 2: work 555555555555 attempt 1, parent 111111111111", "is 0.94, at least 0.9", "signed by bob@example.com", "artifact abababababab", "is at v1.0.0"} {
					if !strings.Contains(rest, want) {
						t.Errorf("%q is not on the page:\n%.3000s", want, rest)
					}
				}
			})
		})
	}
	policy := lanesPolicy()
	if !strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-") || strings.Contains(policy, "unsafe") {
		t.Error(policy)
	}
}

// TestALaneThatCannotBeRead: it is said once, and nothing else suffers: neither another lane, nor the health, nor what was read before.
func TestALaneThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		stores := map[string]bucket.Bucket{"dir:///lane": laneStore(t, ""), "dir:///nowhere": nil, "dir:///slow": stuck{laneStore(t, ""), gate}}
		w, h := shownLanes(stores)
		began := time.Now()
		_, body := askPage(h, "GET", "/lanes")
		if took := time.Since(began); took != lanesWait {
			t.Errorf("a store that does not answer held the page for %v", took)
		}
		if strings.Count(body, "file does not exist") != 1 || strings.Count(body, "read for the first time") != 1 || strings.Count(body, "lineage of v1.0.0") != 1 {
			t.Error(body)
		}
		if code, _ := askPage(h, "GET", "/healthz"); code != 200 {
			t.Errorf("/healthz: %d", code)
		}
		close(gate)
		synctest.Wait()
		if _, body = askPage(h, "GET", "/lanes"); strings.Count(body, "lineage of v1.0.0") != 2 {
			t.Error(body)
		}
		time.Sleep(lanesKeep)
		w.lanes.list[0].viewer.Store = failing{}
		if _, body = askPage(h, "GET", "/lanes"); !strings.Contains(body, "the disk is gone") || !strings.Contains(body, "Read 35s ago") || strings.Count(body, "lineage of v1.0.0") != 2 {
			t.Error(body)
		}
	})
}

// failing is a store that is away.
type failing struct{ bucket.Bucket }

func (failing) List(context.Context, string, string, int) (*bucket.Page, error) {
	return nil, errors.New("the disk is gone")
}

// TestAPageCostsNoStorm: however many people look, a store is listed twice a minute at most, and its records are read once.
func TestAPageCostsNoStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := counting.New(laneStore(t, ""))
		_, h := shownLanes(map[string]bucket.Bucket{"dir:///lane": store})
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { askPage(h, "GET", "/lanes") })
		}
		all.Wait()
		if c := store.Counts(); c.List != 1 || c.Get != 11 || c.Put+c.Delete != 0 {
			t.Errorf("fifty at once: %v", c)
		}
		for range 60 {
			askPage(h, "GET", "/lanes.json")
			time.Sleep(time.Second)
		}
		if c := store.Counts(); c.List != 2 || c.Get != 11 {
			t.Errorf("a minute later: %v", c)
		}
	})
}

// TestNoLanes: a dispatcher without a plan does not know, and one whose plan names none has no such page.
func TestNoLanes(t *testing.T) {
	l := &lanes{}
	h := page([]*watcher{{meter: meter.New("d", "dev"), health: newHealth(0), lanes: l}, {meter: meter.New("e", "dev"), health: newHealth(0)}}, nil)
	ask := func(want map[string]int) {
		t.Helper()
		for path, code := range want {
			if got, body := askPage(h, "GET", path); got != code {
				t.Errorf("%s: %d %s, want %d", path, got, body, code)
			}
		}
	}
	ask(map[string]int{"/lanes/1": 503, "/lanes/1.json": 503, "/lanes/2": 404, "/lanes": 404})
	l.follow(&plan.Plan{})
	ask(map[string]int{"/lanes/1": 404, "/lanes/1.json": 404})
	if code, _ := askPage(h, "POST", "/lanes/1"); code != 405 {
		t.Errorf("POST: %d", code)
	}
	p := &plan.Plan{}
	for i := range lanesMost + 3 {
		p.Config.Lanes = append(p.Config.Lanes, fmt.Sprintf("dir:///%d", i), "dir:///0")
	}
	if l.follow(p); len(l.list) != lanesMost || l.more != 3 {
		t.Errorf("%d stores and %d more", len(l.list), l.more)
	}
}
