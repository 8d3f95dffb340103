package signers

import (
	"bytes"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// Bare verifies an SSH signature by the key that it carries itself, whoever that is: the answer is that key's fingerprint,
// SHA256:…, and means nothing until it is held against known ones. An OpenPGP signature does not carry its key and is
// refused. An error is of type *Error.
func Bare(payload, signature []byte) (string, error) {
	text := bytes.TrimSpace(signature)
	switch {
	case len(text) == 0:
		return "", refuse("Unsigned", "", "it is not signed")
	case len(text) > MaxSignature:
		return "", refuse("BadSignature", "", "its signature has %d bytes, at most %d are read", len(text), MaxSignature)
	case !bytes.HasPrefix(text, []byte("-----BEGIN SSH SIGNATURE-----")):
		return "", refuse("BadSignature", "", "its signature is not one of SSH")
	}
	sig, err := sshsig.Unarmor(text)
	if err != nil || sig.PublicKey == nil || sig.Signature == nil {
		return "", refuse("BadSignature", "", "its SSH signature cannot be read")
	}
	print := ssh.FingerprintSHA256(sig.PublicKey)
	if _, cert := sig.PublicKey.(*ssh.Certificate); cert {
		return "", refuse("BadSignature", print, "it is signed by a certificate, and certificates are not read")
	}
	if sig.Namespace != namespace {
		return "", refuse("WrongNamespace", print, "key %s signed it for %q, not for Git", print, clip(sig.Namespace))
	}
	if why := weak(sig.PublicKey); why != "" {
		return "", refuse("WeakKey", print, "key %s %s", print, why)
	}
	if err := sshsig.Verify(bytes.NewReader(payload), sig, sig.PublicKey, sig.HashAlgorithm, namespace); err != nil {
		return "", refuse("BadSignature", print, "its signature by key %s does not fit what it says", print)
	}
	return print, nil
}
