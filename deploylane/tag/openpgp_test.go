package tag

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// pgp makes an OpenPGP key and its public half in text.
func pgp(t *testing.T, name string, now time.Time) (*openpgp.Entity, string) {
	t.Helper()
	e, err := openpgp.NewEntity(name, "", strings.ToLower(name)+"@example.com", &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA, Time: func() time.Time { return now.AddDate(0, 0, -1) }})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w, err := armor.Encode(&b, openpgp.PublicKeyType, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(e.Serialize(w), w.Close()); err != nil {
		t.Fatal(err)
	}
	return e, b.String() + "\n"
}

// TestTagsSignedWithOpenPGP: a tag that carries an OpenPGP signature is judged like one with an SSH key: by the listed keys, over its
// very bytes, for whom the policy names; a revoked key counts no more.
func TestTagsSignedWithOpenPGP(t *testing.T) {
	y := newYard(t)
	ann, annKey := pgp(t, "Ann", y.now)
	carol, carolKey := pgp(t, "Carol", y.now)
	eve, _ := pgp(t, "Eve", y.now)
	old, oldKey := pgp(t, "Old", y.now)
	y.commit("root", SignersFile, y.signers()+annKey+carolKey+oldKey)
	y.commit("root", PolicyFile, strings.Replace(policyText, "release: [ann@example.com", `release: ["Ann <ann@example.com>", "Old <old@example.com>"`, 1)+
		fmt.Sprintf("revoked: [\"%X\"]\n", old.PrimaryKey.Fingerprint))
	commit := y.git("", "rev-parse", "main")
	want := map[string]Code{}
	for version, c := range map[string]struct {
		by    *openpgp.Entity
		spoil string
		code  Code
	}{
		"v1.0.0": {ann, "", Accepted},
		"v1.0.1": {ann, "Generation: 2", BadSignature},
		"v1.0.2": {eve, "", UnknownSigner},
		"v1.0.3": {carol, "", NotAllowed},
		"v1.0.4": {old, "", SignerRevoked},
	} {
		name := "release/digits/" + version
		payload := fmt.Sprintf("object %s\ntype commit\ntag %s\ntagger Ann <ann@example.com> 1780000000 +0000\n\n%s", commit, name, y.message(version))
		var b bytes.Buffer
		if err := openpgp.ArmoredDetachSign(&b, c.by, strings.NewReader(payload), &packet.Config{Time: func() time.Time { return y.now }}); err != nil {
			t.Fatal(err)
		}
		if c.spoil != "" {
			payload = strings.Replace(payload, c.spoil, "Generation: 3", 1)
		}
		y.raw(name, payload+b.String()+"\n")
		want[name] = c.code
	}
	for _, e := range y.look(y.watch()).Entries {
		name := strings.TrimPrefix(e.Ref, refTags)
		if e.Code != want[name] {
			t.Errorf("%s: %s: %s, want %s", name, e.Code, e.Text, want[name])
		}
		if e.Code == Accepted && (e.Signer != "Ann <ann@example.com>" || e.Key != fmt.Sprintf("%X", ann.PrimaryKey.Fingerprint)) {
			t.Errorf("%+v", e)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("not judged: %v", want)
	}
}
