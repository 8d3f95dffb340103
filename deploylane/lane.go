// Package deploylane takes a model from a signed tag to its release: candidate, retrain, spread, backtest, approve, release.
// Each stage is one signed record in the lane's own store, created once and never changed, that names the record before it;
// what a stage did is found again there, so a lane that dies between any two calls goes on where it stood. The package reads
// research's store and never writes it, and knows Git only as the ports that the command fills.
package deploylane

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headway-run/headway/deploylane/access"
	"github.com/headway-run/headway/deploylane/attest"
	"github.com/headway-run/headway/deploylane/tag"
	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/witness"
)

// Repository is what the lane reads of Git. An error is no answer: the stage waits and asks again.
type Repository interface {
	// Lane is lane.yaml at a commit. One that is not there or has an error is a *Stop.
	Lane(ctx context.Context, commit string) (Config, error)
	// Jobs are the jobs of the plan at a commit. A plan that cannot be read is a *Stop.
	Jobs(ctx context.Context, commit string) ([]plan.Job, error)
	// Bundle packs a code folder of a commit, for work of the Git tree that it names.
	Bundle(ctx context.Context, commit, folder string) (tree string, body bucket.Body, err error)
	// File is a file below lane/ at a commit. One that is not there, or whose last change no root key signed, is a *Stop.
	File(ctx context.Context, commit, path string) ([]byte, error)
}

// Lane is one deploy lane. Not safe for several goroutines; any number of processes may work on one store.
type Lane struct {
	Research  bucket.Bucket // never written
	Store     bucket.Bucket // the lane's own
	StoreURL  string        // as its workers open it
	Git       Repository
	Runners   map[string]runners.Runner
	Platforms map[string]Platform
	Key       ed25519.PrivateKey // signs records
	Trusted   []ed25519.PublicKey
	Attester  *attest.Signer
	Repo      string // canonical id of the repository
	Version   string // of this program, for attestations
	ID        string // of this process, for people
	Log       *slog.Logger
	Floor     time.Duration // least length of a lease; 0: witness.DefaultFloor
	Poll      time.Duration // usual time between two looks; 0: 5 s

	// Keys answers, at each launch, with what a worker opens the store by: rights for one attempt, as its policy says. nil: the
	// store is a folder.
	Keys func(ctx context.Context, p access.Policy) (map[string]string, error)

	// Hook sends an attestation to the URL that a secret names, with an idempotency key, and gives the answer in one line.
	Hook func(ctx context.Context, secret, key string, body []byte) (string, error)
	// Exec runs a target's program with the attestation on its standard input.
	Exec func(ctx context.Context, argv []string, key string, body []byte) (string, error)
	// Engines are clients of serving rings, by the name that a ring plan's engine.adapter has.
	Engines map[string]OpenEngine
	State   string // folder on a disk that survives a crash: what a ring's loader writes down before it sends anything

	eyes  witness.Observer
	brake witness.Brake
	over  map[string]Standing // releases that are over, by model and version: they are not read again
	moved map[string]bool     // stage tags that are done with, by their object
	held  map[string]pointed  // pointers that say what their history says, by model
	shaky bool                // the store answered an error since the last look

	inspected map[string]*inspection // releases that pointers name, by model
}

// Order is a release tag that every check has let pass, as the ledger has it.
type Order struct {
	Tag      string            `json:"tag"`
	Object   string            `json:"object"`
	Commit   string            `json:"commit"`
	Signer   string            `json:"signer"`
	Key      string            `json:"key"`
	Entry    string            `json:"entry"` // sha256 of the ledger's entry
	Model    string            `json:"model"`
	Version  string            `json:"version"`
	Plan     attest.File       `json:"plan"`
	Work     string            `json:"work"`     // of the candidate
	Attempt  int64             `json:"attempt"`  // of it whose result it is
	Artifact string            `json:"artifact"` // sha256 of that result's manifest
	Requires map[string]string `json:"requires"` // environment that the policy pinned
}

// OrderOf is what an accepted release tag asks for; ok is false for any other entry.
func OrderOf(e tag.Entry) (o Order, ok bool) {
	n := e.Name()
	if e.Code != tag.Accepted || n.Stage != "" || e.Message == nil || n.Model == "" {
		return o, false
	}
	m := e.Message
	return Order{Tag: n.String(), Object: e.Object, Commit: e.Commit, Signer: e.Signer, Key: e.Key, Entry: e.Hash, Model: n.Model, Version: n.Version.String(),
		Plan: attest.File{Path: m.Plan, SHA256: m.PlanSHA256}, Work: m.Candidate, Attempt: m.Attempt, Artifact: m.Artifact, Requires: e.Requires}, true
}

// Stop is a gate that did not open: the release ends here, and the record says why. It is never retried by itself.
type Stop struct {
	Code string // stable word
	Text string // one sentence: what was found, what to do
}

func (s *Stop) Error() string { return s.Text }

func stop(code, format string, args ...any) *Stop { return &Stop{code, fmt.Sprintf(format, args...)} }

// Wait says that a stage has begun and is not done: ask again after a while. Nothing is wrong.
type Wait struct {
	Text  string
	After time.Duration
}

func (w *Wait) Error() string { return w.Text }

// Standing is where a release stands.
type Standing struct {
	Model, Version string
	Stage          string        // that it stands at: the last one that has a record, or the one that waits
	Done           bool          // nothing more is to be done: released with all targets, or refused
	Refused        bool          // ended by a gate
	Code, Text     string        // why, or what it waits for
	After          time.Duration // when to ask again; 0: nothing will change by itself
	Chain          []Link
}

// key is where a record of a release lies.
func key(model, version, name string) string {
	return "lane/" + model + "/" + version + "/" + name + ".json"
}

// Versions lists the versions of a model that have a candidate's record, lowest first.
func (l *Lane) Versions(ctx context.Context, model string) ([]string, error) {
	root, after := "lane/"+model+"/v", ""
	var out []tag.Version
	for {
		page, err := l.Store.List(ctx, root, after, 1)
		if err != nil {
			return nil, err
		}
		if len(page.Items) == 0 {
			break
		}
		rest := strings.TrimPrefix(page.Items[0].Key, "lane/"+model+"/")
		version, _, _ := strings.Cut(rest, "/")
		after = "lane/" + model + "/" + version + "0" // just behind it
		if v, err := tag.ParseVersion(version); err == nil && v.String() == version {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, tag.Version.Compare)
	names := make([]string, len(out))
	for i, v := range out {
		names[i] = v.String()
	}
	return names, nil
}

func (l *Lane) log() *slog.Logger {
	if l.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l.Log
}

func (l *Lane) poll() time.Duration {
	if l.Poll > 0 {
		return l.Poll
	}
	return 5 * time.Second
}

// short is the form of a digest that people see.
func short(s string) string { return s[:min(len(s), 12)] }

// shown makes foreign text fit into a sentence.
func shown(s string, n int) string { return runners.Sanitize([]byte(runners.Bound(s, n))) }

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
