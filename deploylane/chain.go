package deploylane

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/headway-run/headway/deploylane/attest"
	"github.com/headway-run/headway/deploylane/spread"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// Names of the stages, in their order.
const (
	Candidate = "candidate"
	Retrain   = "retrain"
	Spread    = "spread"
	Backtests = "backtest"
	Approve   = "approve"
	Release   = "release"
)

// Stages gives the names of all stages, in their order.
func Stages() []string { return []string{Candidate, Retrain, Spread, Backtests, Approve, Release} }

// maxRecord bounds a record, bytes.
const maxRecord = 4 << 20

// Record is lane/<model>/<version>/<stage>.json: what one stage found. It is created if absent, signed, and never changed.
// There is no clock in it: when it was written, the store says.
type Record struct {
	Lane    int    `json:"lane"` // 1, the version of this form
	Stage   string `json:"stage"`
	Model   string `json:"model"`
	Version string `json:"version"`
	Object  string `json:"object"`           // of the tag that the release runs under
	Before  string `json:"before,omitempty"` // sha256 of the record of the stage before
	Passed  bool   `json:"passed"`
	Code    string `json:"code,omitempty"` // stable word of a gate that did not open
	Reason  string `json:"reason"`

	Candidate *Chosen         `json:"candidate,omitempty"`
	Run       *Run            `json:"run,omitempty"`   // of retrain and backtest
	Again     *Repeated       `json:"again,omitempty"` // of retrain
	Spread    *spread.Report  `json:"spread,omitempty"`
	Score     *attest.Score   `json:"score,omitempty"`
	Approval  []attest.Tag    `json:"approval,omitempty"` // stage tags beside the release's own
	Release   *Released       `json:"release,omitempty"`
	Answer    *TargetAnswer   `json:"answer,omitempty"`
	Moved     *PointerHistory `json:"moved,omitempty"`
}

// Chosen is what the candidate's stage froze: from here on neither Git nor research is asked again, but for inputs by their hash.
type Chosen struct {
	Order    Order          `json:"order"`
	Model    Model          `json:"model"`
	Parent   Run            `json:"parent"`   // the tagged job's, generation 1
	Backtest Run            `json:"backtest"` // its backtest, generation 1
	Score    float64        `json:"score"`
	Hardware string         `json:"hardware"` // that the seeds share
	Seeds    []Run          `json:"seeds"`
	LeftOut  []string       `json:"left_out,omitempty"` // siblings that are no seeds, and why
	Retrain  Ordered        `json:"retrain"`
	Twin     *Ordered       `json:"twin,omitempty"`   // the retraining once more: its next replica
	Check    Ordered        `json:"check"`            // the backtest of generation 2, with the deploy flag
	Inputs   []record.Input `json:"inputs,omitempty"` // works of research that the two read
}

// Ordered is a work that the lane is going to make.
type Ordered struct {
	Job   string       `json:"job"`
	Code  string       `json:"code,omitempty"` // folder
	Spec  record.Spec  `json:"spec"`
	Terms record.Terms `json:"terms"`
	Cards int          `json:"cards"`
}

// spec is the spec as a worker reads it: the identity is made of its own fields, so a record can hold no other.
func (o Ordered) spec() record.Spec {
	s := o.Spec
	s.Identity = record.Identity(s)
	return s
}

// Run is one finished work.
type Run struct {
	Name        string             `json:"name"`
	Work        string             `json:"work"`
	Identity    string             `json:"identity"` // canonical JSON whose sha256 the work is
	Attempt     int64              `json:"attempt"`
	Fingerprint map[string]string  `json:"fingerprint,omitempty"`
	Metrics     map[string]float64 `json:"metrics,omitempty"`
	Manifest    attest.Link        `json:"manifest"`
}

func (r Run) attested() attest.Run {
	return attest.Run{Work: r.Work, Attempt: r.Attempt, Identity: r.Identity, Fingerprint: r.Fingerprint, Metrics: r.Metrics, Manifest: r.Manifest}
}

// Released is what a release names.
type Released struct {
	Attestation attest.Link `json:"attestation"`
	Artifact    attest.Link `json:"artifact"` // manifest of the retrained result
}

// Link names a record by its key and its content.
type Link struct {
	attest.Link
	Record Record
	At     time.Time // the store's stamp
}

// sealed is a record as it lies in the store.
type sealed struct {
	Record    json.RawMessage `json:"record"`
	Signature string          `json:"signature"`
}

// seal writes a record in the one way: keys sorted, no white space; and signs it.
func (l *Lane) seal(r Record) ([]byte, error) {
	body, err := canonical(r)
	if err != nil {
		return nil, err
	}
	return canonical(sealed{body, base64.StdEncoding.EncodeToString(ed25519.Sign(l.Key, signedBytes(body)))})
}

// signedBytes keeps a record's signature from being one of anything else.
func signedBytes(body []byte) []byte { return append([]byte("headway lane record 1\n"), body...) }

// canonical is JSON with its keys in byte order and no white space.
func canonical(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	d := json.NewDecoder(&b)
	d.UseNumber()
	var any any
	if err := d.Decode(&any); err != nil {
		return nil, err
	}
	b.Reset()
	if err := e.Encode(any); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(bytes.Clone(b.Bytes()), []byte("\n")), nil
}

// Broken is a record that nobody of the lane wrote, or that was changed since.
type Broken struct {
	Key  string
	Text string
}

func (b *Broken) Error() string {
	return fmt.Sprintf("%s %s: nothing follows from it; look who can write the lane's store", b.Key, b.Text)
}

// unseal checks a record's form and signature.
func (l *Lane) unseal(key string, b []byte) (r Record, err error) {
	s, err := unwrap(key, b)
	if err != nil {
		return r, err
	}
	sig, err := base64.StdEncoding.Strict().DecodeString(s.Signature)
	if err != nil || !slices.ContainsFunc(l.trusted(), func(k ed25519.PublicKey) bool { return ed25519.Verify(k, signedBytes(s.Record), sig) }) {
		return r, &Broken{key, "does not carry a signature of the lane over what it says: it was written or edited by somebody else, or by a lane whose key --trust does not name"}
	}
	return s.open(key)
}

// unwrap checks a record's form, and not its signature.
func unwrap(key string, b []byte) (s sealed, err error) {
	if err := json.Unmarshal(b, &s); err != nil {
		return s, &Broken{key, fmt.Sprintf("is no record: %v", err)}
	}
	if again, err := canonical(s); err != nil || !bytes.Equal(again, b) {
		return s, &Broken{key, "is not written as the lane writes it"}
	}
	return s, nil
}

// open reads what was sealed.
func (s sealed) open(key string) (r Record, err error) {
	if err := json.Unmarshal(s.Record, &r); err != nil {
		return Record{}, &Broken{key, fmt.Sprintf("is no record: %v", err)}
	}
	if r.Lane != 1 {
		return Record{}, &Broken{key, fmt.Sprintf("is of form %d, this version reads 1: use a newer one", r.Lane)}
	}
	return r, nil
}

func (l *Lane) trusted() []ed25519.PublicKey {
	if l.Key == nil {
		return l.Trusted
	}
	return append([]ed25519.PublicKey{l.Key.Public().(ed25519.PublicKey)}, l.Trusted...)
}

// read gets a record. found is false when there surely is none.
func (l *Lane) read(ctx context.Context, key string) (k Link, found bool, err error) {
	b, info, err := get(ctx, l.Store, key, maxRecord)
	if bucket.Is(err, bucket.NotFound) {
		return k, false, nil
	}
	if err != nil {
		return k, false, err
	}
	r, err := l.unseal(key, b)
	return Link{attest.Link{Key: key, SHA256: record.Hash(b)}, r, info.Modified}, err == nil, err
}

// create writes a record if there is none, and gives the one that is there: ours, or that of whoever was first.
func (l *Lane) create(ctx context.Context, key string, r Record) (Link, error) {
	r.Lane = 1
	b, err := l.seal(r)
	if err != nil {
		return Link{}, err
	}
	if len(b) > maxRecord {
		return Link{}, fmt.Errorf("%s has %d bytes, at most %d are written", key, len(b), maxRecord)
	}
	for try := 0; ; try++ {
		_, err = l.Store.Put(ctx, key, bytes.NewReader(b), bucket.IfAbsent())
		if err != nil && !bucket.Is(err, bucket.Condition) && !bucket.Is(err, bucket.Raced) && !bucket.Is(err, bucket.Unknown) {
			return Link{}, err
		}
		k, found, readErr := l.read(ctx, key)
		if readErr != nil || found {
			return k, readErr
		}
		if try == 5 {
			return Link{}, fmt.Errorf("%s: the store does not say whether it was written: %w", key, err)
		}
	}
}

// Chain reads the records of a release in their order, as far as there are any, and holds each against the one before.
func (l *Lane) Chain(ctx context.Context, model, version string) ([]Link, error) {
	var out []Link
	for _, name := range Stages() {
		k, found, err := l.read(ctx, key(model, version, name))
		if err != nil || !found {
			return out, err
		}
		before, object := "", k.Record.Object
		if n := len(out); n > 0 {
			before, object = out[n-1].SHA256, out[0].Record.Object
		}
		if why := k.Record.ident().follows(ident{name, model, version, before, object}); why != "" {
			return out, &Broken{k.Key, why}
		}
		out = append(out, k)
		if !k.Record.Passed {
			return out, nil
		}
	}
	return out, nil
}

// get reads a whole object of at most max bytes, and what the store says of it.
func get(ctx context.Context, b bucket.Bucket, key string, max int64) ([]byte, bucket.Info, error) {
	o, err := b.Get(ctx, key, bucket.Range{})
	if err != nil {
		return nil, bucket.Info{}, err
	}
	defer func() { _ = o.Body.Close() }()
	if o.Size > max {
		return nil, o.Info, &Broken{key, fmt.Sprintf("has %d bytes, at most %d are read", o.Size, max)}
	}
	body, err := io.ReadAll(io.LimitReader(o.Body, max+1))
	if err == nil && int64(len(body)) != o.Size {
		err = fmt.Errorf("%s: %d of %d bytes came", key, len(body), o.Size)
	}
	return body, o.Info, err
}
