package deploylane

import (
	"bytes"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/deploylane/attest"
	"github.com/headway-run/headway/runners/record"
)

// approvedByTwo is a rig whose release bob and then carol approved, before the lane came to it.
func approvedByTwo(t *testing.T) *rig {
	g := newRig(t, 5)
	g.policy.Rules[0].Signers = 3
	g.tagged("v1.0.0", 1)
	g.staged("v1.0.0", "bob", 1)
	g.staged("v1.0.0", "carol", 2)
	return g
}

// TestTheAttestationNamesAllApprovals: everybody who signed is in it, not just the first.
func TestTheAttestationNamesAllApprovals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := approvedByTwo(t)
		if s := g.settle(g.lane, "v1.0.0"); !s.Done || s.Refused {
			t.Fatalf("%+v", s)
		}
		v, err := attest.Verify([]byte(g.records()[attestationKey("digits", "v1.0.0")]), []attest.Key{g.lane.Attester.Key()})
		if err != nil {
			t.Fatal(err)
		}
		var who []string
		for _, a := range v.Predicate.AllApprovals() {
			who = append(who, a.Signer+" "+a.Name)
		}
		if d := cmp.Diff([]string{"bob stage/digits/live/1", "carol stage/digits/live/2"}, who); d != "" || v.PredicateType != attest.PredicateType {
			t.Errorf("%s: %s", v.PredicateType, d)
		}
	})
}

// TestAnOlderLanesAttestationIsGoneOnFrom: a lane of the version before died between the attestation and the record that names it.
// What it signed says the same as far as it could, so the release goes on with it; one that says something else does not.
func TestAnOlderLanesAttestationIsGoneOnFrom(t *testing.T) {
	for _, approval := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			g := approvedByTwo(t)
			g.upTo(Approve)
			l := g.fresh()
			r := &release{chain: must(l.Chain(t.Context(), "digits", "v1.0.0"))}
			r.c = r.chain[0].Record.Candidate
			res, err := l.still(t.Context(), r, Retrain, r.c.Retrain, r.c.Model.metrics())
			if err != nil {
				t.Fatal(err)
			}
			old := l.statement(r, res.manifest.Files)
			all := old.Predicate.Approvals
			old.PredicateType, old.Predicate.Approval, old.Predicate.Approvals = attest.PredicateV1, &all[approval], nil
			envelope, err := attest.Sign(old, l.Attester)
			if err == nil {
				err = put(t.Context(), g.own, attestationKey("digits", "v1.0.0"), bytes.NewReader(envelope))
			}
			if err != nil {
				t.Fatal(err)
			}
			s := g.settle(g.fresh(), "v1.0.0")
			if s.Refused != (approval == 1) || s.Refused && s.Code != "Attestation" {
				t.Fatalf("approval %d: %+v", approval, s)
			}
			if !s.Refused && s.Chain[5].Record.Release.Attestation.SHA256 != record.Hash(envelope) {
				t.Error("the release names another attestation")
			}
		})
	}
}
