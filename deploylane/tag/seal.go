package tag

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"slices"

	"github.com/headway-run/headway/runners/record"
)

// Seal signs the entries of a ledger, so that whoever may write the lane's store cannot write verdicts.
type Seal struct {
	Key     ed25519.PrivateKey  // of this lane; nil: it reads only
	Trusted []ed25519.PublicKey // of lanes whose entries count beside its own
}

// sealed are the bytes that are signed: they are those of no other thing.
func sealed(e Entry) ([]byte, error) {
	e.Signature = ""
	b, err := record.Encode(e)
	return append([]byte("headway lane ledger 1\n"), b...), err
}

func (s Seal) sign(e *Entry) error {
	if len(s.Key) != ed25519.PrivateKeySize {
		return errors.New("this lane has no key to sign its ledger with: give it one")
	}
	b, err := sealed(*e)
	e.Signature = base64.StdEncoding.EncodeToString(ed25519.Sign(s.Key, b))
	return err
}

func (s Seal) holds(e Entry) bool {
	keys := s.Trusted
	if len(s.Key) == ed25519.PrivateKeySize {
		keys = append(slices.Clone(keys), s.Key.Public().(ed25519.PublicKey))
	}
	sig, err := base64.StdEncoding.Strict().DecodeString(e.Signature)
	b, bad := sealed(e)
	return err == nil && bad == nil && slices.ContainsFunc(keys, func(k ed25519.PublicKey) bool {
		return len(k) == ed25519.PublicKeySize && ed25519.Verify(k, b, sig)
	})
}
