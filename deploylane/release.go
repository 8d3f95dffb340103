package deploylane

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/headway-run/headway/deploylane/attest"
	"github.com/headway-run/headway/runners/record"
)

// attestationKey is where the attestation of a release lies.
func attestationKey(model, version string) string {
	return "lane/" + model + "/" + version + "/attestation.dsse.json"
}

// release reads every byte of the model once more, signs the attestation and names it. There is one record of this name, so
// there is one release of a version, whoever made it.
func (l *Lane) release(ctx context.Context, r *release) (Record, error) {
	c := r.c
	res, err := l.still(ctx, r, Retrain, c.Retrain, c.Model.metrics())
	if err != nil {
		return Record{}, err
	}
	if err := whole(ctx, l.Store, res, c.Retrain.Job); err != nil {
		return Record{}, err
	}
	if _, err := l.still(ctx, r, Backtests, c.Check, []string{c.Model.Backtest.Metric}); err != nil {
		return Record{}, err
	}
	envelope, err := attest.Sign(l.statement(r, res.manifest.Files), l.Attester)
	if err != nil {
		return Record{}, stop("Attestation", "%v", err)
	}
	key := attestationKey(c.Model.Name, c.Order.Version)
	if err := put(ctx, l.Store, key, bytes.NewReader(envelope)); err != nil {
		return Record{}, err
	}
	there, _, err := get(ctx, l.Store, key, attest.MaxEnvelope)
	if err != nil {
		return Record{}, err
	}
	if !bytes.Equal(there, envelope) { // another lane's, of another key or version: it is good if it says the same
		if err := l.sameStatement(there, envelope); err != nil {
			return Record{}, err
		}
	}
	rel := &Released{Attestation: attest.Link{Key: key, SHA256: record.Hash(there)}, Artifact: r.of(Retrain).Run.Manifest}
	return Record{Release: rel, Reason: fmt.Sprintf("%s %s is released: %d files, attested by %s", c.Model.Name, c.Order.Version, len(res.manifest.Files), l.Attester.Key().ID)}, nil
}

func (l *Lane) sameStatement(there, ours []byte) error {
	a, err := attest.Verify(there, []attest.Key{l.Attester.Key()})
	if err != nil {
		return stop("Attestation", "the attestation that lies in the store: %v", err)
	}
	b, err := attest.Verify(ours, []attest.Key{l.Attester.Key()})
	if err != nil {
		return err
	}
	a.Predicate.Lane = b.Predicate.Lane
	if a.PredicateType == attest.PredicateV1 { // of an older lane that died before it named it: the first approval is all that it has
		b.PredicateType = attest.PredicateV1
		if all := b.Predicate.Approvals; len(all) > 0 {
			b.Predicate.Approval, b.Predicate.Approvals = &all[0], nil
		}
	}
	if !bytes.Equal(mustJSON(a.Statement), mustJSON(b.Statement)) {
		return stop("Attestation", "the attestation that lies in the store says something else than the records: look who wrote it")
	}
	return nil
}

func mustJSON(v any) []byte {
	b, err := canonical(v)
	if err != nil {
		return nil // a statement that was read from JSON can be written as JSON
	}
	return b
}

// statement is what the attestation says: everything that the release rests on.
func (l *Lane) statement(r *release, files []record.File) attest.Statement {
	c := r.c
	o := c.Order
	s := attest.Release{Lane: l.Version, Repository: l.Repo, Model: o.Model, Version: o.Version,
		Tag:  attest.Tag{Name: o.Tag, Object: o.Object, Commit: o.Commit, Signer: o.Signer, Key: o.Key},
		Plan: o.Plan, Candidate: c.Parent.attested(), Retrained: r.of(Retrain).Run.attested(), Backtest: r.of(Backtests).Run.attested(),
		Spread: *r.of(Spread).Spread, Score: *r.of(Backtests).Score, Approvals: r.of(Approve).Approval, Times: map[string]string{}}
	for _, seed := range c.Seeds {
		s.Seeds = append(s.Seeds, seed.Work)
	}
	for _, k := range r.chain {
		s.Records = append(s.Records, k.Link)
		s.Times[k.Record.Stage] = k.At.UTC().Format(time.RFC3339)
	}
	return attest.New(s, files)
}

// attestation reads a release's attestation and checks it.
func (l *Lane) attestation(ctx context.Context, rel *Released) ([]byte, error) {
	b, _, err := get(ctx, l.Store, rel.Attestation.Key, attest.MaxEnvelope)
	if err != nil {
		return nil, err
	}
	if record.Hash(b) != rel.Attestation.SHA256 {
		return nil, &Broken{rel.Attestation.Key, "is not the attestation that the release names"}
	}
	return b, nil
}
