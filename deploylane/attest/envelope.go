package attest

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
)

// BadEnvelope is no DSSE envelope that can be read: too large, no JSON, a key twice, no signature.
type BadEnvelope struct{ Text string }

func (e *BadEnvelope) Error() string {
	return "this is no attestation: " + e.Text
}

// WrongType is an envelope around something that is no in-toto statement.
type WrongType struct{ Found string }

func (e *WrongType) Error() string {
	return fmt.Sprintf("the envelope's payload type is %.120q, expected %q: it is the signature of something else", e.Found, PayloadType)
}

// UnknownKey is an envelope that none of the given keys signed.
type UnknownKey struct{ Signed, Known []string } // key ids; the first as the envelope says

func (e *UnknownKey) Error() string {
	return fmt.Sprintf("signed by %.300s, and none of the keys given is that one (%s): check the release with the public key of the lane that made it",
		quoted(e.Signed), quoted(e.Known))
}

func quoted(ids []string) string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = fmt.Sprintf("%.80q", id)
	}
	return strings.Join(out, ", ")
}

// Altered is an envelope whose signature does not fit its payload: one of the two was changed.
type Altered struct{ Key string }

func (e *Altered) Error() string {
	return fmt.Sprintf("the signature of key %s does not fit the payload: one of them was changed since; take the attestation from the store again, and look at who can write there", e.Key)
}

// Sign checks the statement and returns its envelope. The same statement and key give the same bytes, so a lane that died
// while it wrote them can do it again. The error is a *BadStatement.
func Sign(s Statement, by *Signer) ([]byte, error) {
	payload, err := encode(s)
	if err != nil {
		return nil, &BadStatement{"it cannot be written: " + err.Error()}
	}
	if _, err := decode(payload); err != nil {
		return nil, err
	}
	e := dsse.Envelope{PayloadType: PayloadType, Payload: base64.StdEncoding.EncodeToString(payload), Signatures: []dsse.Signature{{
		KeyID: by.key.ID, Sig: base64.StdEncoding.EncodeToString(ed25519.Sign(by.private, dsse.PAE(PayloadType, payload)))}}}
	out, err := encode(e)
	if err == nil && len(out) >= MaxEnvelope {
		return nil, &BadStatement{fmt.Sprintf("its envelope has %d bytes, at most %d are read: pack the result into fewer files", len(out), MaxEnvelope)}
	}
	return append(out, '\n'), err
}

// Verified is a statement whose signature was checked.
type Verified struct {
	Statement
	Key     Key    // that signed it
	Payload []byte // the bytes that were signed
}

// Verify checks an envelope against the keys that may have signed it, and reads its statement. One good signature of one of
// them is enough. The errors: *BadEnvelope, *WrongType, *UnknownKey, *Altered, *BadStatement, in this order.
func Verify(envelope []byte, keys []Key) (Verified, error) {
	e, payload, err := open(envelope)
	if err != nil {
		return Verified{}, err
	}
	if e.PayloadType != PayloadType {
		return Verified{}, &WrongType{e.PayloadType}
	}
	by, err := signedBy(e, payload, keys)
	if err != nil {
		return Verified{}, err
	}
	s, err := decode(payload)
	if err != nil {
		return Verified{}, err
	}
	return Verified{s, by, payload}, nil
}

// open reads an envelope and its payload. Fields that it does not know are ignored, as the format asks.
func open(envelope []byte) (e dsse.Envelope, payload []byte, err error) {
	if len(envelope) > MaxEnvelope {
		return e, nil, &BadEnvelope{fmt.Sprintf("it has %d bytes, at most %d are read", len(envelope), MaxEnvelope)}
	}
	if err := strict(envelope); err != nil {
		return e, nil, &BadEnvelope{err.Error()}
	}
	if err := json.Unmarshal(envelope, &e); err != nil {
		return e, nil, &BadEnvelope{"its fields cannot be read: " + err.Error()}
	}
	if n := len(e.Signatures); n == 0 || n > maxSignatures {
		return e, nil, &BadEnvelope{fmt.Sprintf("it has %d signatures, expected 1 to %d", n, maxSignatures)}
	}
	if payload, err = unbase64(e.Payload); err != nil {
		return e, nil, &BadEnvelope{"its payload is no base64"}
	}
	return e, payload, nil
}

// unbase64 takes both alphabets, as the format asks.
func unbase64(s string) ([]byte, error) {
	if strings.ContainsAny(s, "-_") {
		return base64.URLEncoding.Strict().DecodeString(s)
	}
	return base64.StdEncoding.Strict().DecodeString(s)
}

// signedBy finds a key whose signature fits. A signature without a key id, which is a hint alone, may be any key's.
func signedBy(e dsse.Envelope, payload []byte, keys []Key) (Key, error) {
	said := dsse.PAE(e.PayloadType, payload)
	var tried string
	unknown := &UnknownKey{}
	for _, k := range keys {
		unknown.Known = append(unknown.Known, k.ID)
	}
	for _, s := range e.Signatures {
		sig, err := unbase64(s.Sig)
		if err != nil {
			return Key{}, &BadEnvelope{"a signature is no base64"}
		}
		unknown.Signed = append(unknown.Signed, s.KeyID)
		for _, k := range keys {
			if s.KeyID != "" && s.KeyID != k.ID {
				continue
			}
			if len(sig) == ed25519.SignatureSize && ed25519.Verify(k.public, said, sig) {
				return k, nil
			}
			if s.KeyID != "" {
				tried = k.ID
			}
		}
	}
	if tried != "" {
		return Key{}, &Altered{tried}
	}
	return Key{}, unknown
}
