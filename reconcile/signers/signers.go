// Package signers says who signed a commit, and whether they may: a file of allowed signers in the form of OpenSSH, with
// OpenPGP public keys beside it, held against the signature of a commit. It is pure: it reads no clock and no file. A
// signature vouches for the bytes of the commit alone; which branch or repository they lie in, and when they were signed,
// it does not say.
package signers

import (
	"bytes"
	"crypto/rsa"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// Bounds of what is read.
const (
	MaxFile      = 1 << 20  // of allowed signers, in bytes
	MaxSignature = 64 << 10 // of one commit, in bytes
	maxKeys      = 10_000
	maxLine      = 16 << 10
	minRSA       = 3072 // bits of a key that may still vouch
)

// namespace is what Git signs under; a signature made for anything else is none.
const namespace = "git"

// Allowed are the keys of one file.
type Allowed struct {
	keys []key
	pgp  openpgp.EntityList
}

// key is one line.
type key struct {
	names     string // principals, as they are written
	public    ssh.PublicKey
	spaces    []string // namespaces that it may sign in; nil: all
	from, end time.Time
}

// Signer is who made a signature.
type Signer struct {
	Name        string // the principals of the line, or the first identity of the OpenPGP key
	Fingerprint string // SHA256:… of an SSH key, hex digits of an OpenPGP key
}

// Error says why a signature does not count. Fingerprint is that of the key that made it, where that is known.
type Error struct {
	Code        string // Unsigned, UnknownSigner, NotValidNow, WrongNamespace, WeakKey, BadSignature
	Text        string
	Fingerprint string
}

func (e *Error) Error() string { return e.Text }

func refuse(code, fingerprint, format string, args ...any) error {
	return &Error{Code: code, Fingerprint: fingerprint, Text: fmt.Sprintf(format, args...)}
}

// Check verifies the signature of a payload at a time: keys that are not valid yet, or no longer, do not count, whatever
// date the commit gives itself. An error is of type *Error; beside it the Signer says which key the signature
// claims, and its name where the bytes fit but the key does not count (any more): he vouches for nothing.
func (a *Allowed) Check(payload, signature []byte, now time.Time) (Signer, error) {
	text := bytes.TrimSpace(signature)
	switch {
	case len(text) == 0:
		return Signer{}, refuse("Unsigned", "", "it is not signed")
	case len(text) > MaxSignature:
		return Signer{}, refuse("BadSignature", "", "its signature has %d bytes, at most %d are read", len(text), MaxSignature)
	case bytes.HasPrefix(text, []byte("-----BEGIN SSH SIGNATURE-----")):
		return a.checkSSH(payload, text, now)
	case bytes.HasPrefix(text, []byte("-----BEGIN PGP SIGNATURE-----")):
		return a.checkPGP(payload, text, now)
	}
	return Signer{}, refuse("BadSignature", "", "its signature is neither one of SSH nor of OpenPGP")
}

func (a *Allowed) checkSSH(payload, text []byte, now time.Time) (Signer, error) {
	sig, err := sshsig.Unarmor(text)
	if err != nil || sig.PublicKey == nil || sig.Signature == nil {
		return Signer{}, refuse("BadSignature", "", "its SSH signature cannot be read")
	}
	print := ssh.FingerprintSHA256(sig.PublicKey)
	if sig.Namespace != namespace {
		return Signer{Fingerprint: print}, refuse("WrongNamespace", print, "key %s signed it for %q, not for Git", print, clip(sig.Namespace))
	}
	var out error
	who := Signer{Fingerprint: print}
	for _, k := range a.keys {
		if !bytes.Equal(k.public.Marshal(), sig.PublicKey.Marshal()) {
			continue
		}
		if err := sshsig.Verify(bytes.NewReader(payload), sig, k.public, sig.HashAlgorithm, namespace); err != nil {
			return who, refuse("BadSignature", print, "its signature by key %s does not fit what it says", print)
		}
		who.Name = k.names
		switch {
		case len(k.spaces) > 0 && !slices.ContainsFunc(k.spaces, func(p string) bool { ok, _ := path.Match(p, namespace); return ok }):
			out = refuse("WrongNamespace", print, "key %s of %s may not sign for Git", print, k.names)
			continue
		case !k.from.IsZero() && now.Before(k.from):
			out = refuse("NotValidNow", print, "key %s of %s is not valid before %s", print, k.names, k.from.UTC().Format(time.RFC3339))
			continue
		case !k.end.IsZero() && !now.Before(k.end):
			out = refuse("NotValidNow", print, "key %s of %s is no longer valid since %s", print, k.names, k.end.UTC().Format(time.RFC3339))
			continue
		}
		if why := weak(k.public); why != "" {
			return who, refuse("WeakKey", print, "key %s of %s %s", print, k.names, why)
		}
		return who, nil
	}
	if out != nil {
		return who, out
	}
	return who, refuse("UnknownSigner", print, "it is signed by key %s, which is not among the allowed ones", print)
}

// weak says why a key may not vouch for anything, or "".
func weak(k ssh.PublicKey) string {
	if k.Type() == "ssh-dss" {
		return "is of type DSA, which is too weak"
	}
	c, ok := k.(ssh.CryptoPublicKey)
	if !ok {
		return "" // one on a hardware token: ed25519 or ECDSA
	}
	if r, ok := c.CryptoPublicKey().(*rsa.PublicKey); ok && r.N.BitLen() < minRSA {
		return fmt.Sprintf("has %d bits of RSA, at least %d are needed", r.N.BitLen(), minRSA)
	}
	return ""
}

func (a *Allowed) checkPGP(payload, text []byte, now time.Time) (Signer, error) {
	block, err := armor.Decode(bytes.NewReader(text))
	if err != nil {
		return Signer{}, refuse("BadSignature", "", "its OpenPGP signature cannot be read")
	}
	at := &packet.Config{Time: func() time.Time { return now }, MinRSABits: minRSA}
	sig, entity, err := openpgp.VerifyDetachedSignature(a.pgp, bytes.NewReader(payload), block.Body, at)
	switch {
	case errors.Is(err, pgperrors.ErrUnknownIssuer):
		return Signer{}, refuse("UnknownSigner", "", "it is signed by an OpenPGP key that is not among the allowed ones")
	case err != nil || sig == nil || entity == nil:
		return Signer{}, refuse("BadSignature", "", "its OpenPGP signature does not count (%s)", clip(fmt.Sprint(err)))
	}
	print := fmt.Sprintf("%X", entity.PrimaryKey.Fingerprint)
	name := ""
	if id := entity.PrimaryIdentity(); id != nil {
		name = clip(id.Name)
	}
	return Signer{Name: name, Fingerprint: print}, nil
}

// clip makes foreign text fit into a sentence.
func clip(s string) string {
	if len(s) > 100 {
		s = s[:100] + "…"
	}
	s = fmt.Sprintf("%q", s)
	return strings.ReplaceAll(s[1:len(s)-1], `\"`, `"`)
}
