package attest

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Bounds on key files.
const (
	maxKeyFile = 64 << 10
	maxKeys    = 256
)

// Key is a public key that attestations are checked with.
type Key struct {
	ID     string // SHA256:…, as ssh-keygen -l prints it
	Name   string // principals or comment of its line, for people
	public ed25519.PublicKey
}

// Public is the key itself, for what else its owner signs.
func (k Key) Public() ed25519.PublicKey { return k.public }

// Signer is a private key that signs attestations.
type Signer struct {
	key     Key
	private ed25519.PrivateKey
}

// Key is the public half.
func (s *Signer) Key() Key { return s.key }

// BadKey is a key file that cannot be used.
type BadKey struct {
	Line int // 0: the file as a whole
	Text string
}

func (e *BadKey) Error() string {
	if e.Line == 0 {
		return "the key file cannot be used: " + e.Text
	}
	return fmt.Sprintf("line %d of the key file cannot be used: %s", e.Line, e.Text)
}

// ParseSigner reads an ed25519 SSH private key without a passphrase, as ssh-keygen -t ed25519 writes it. The error, a *BadKey,
// never has any of the file's bytes in it.
func ParseSigner(file []byte) (*Signer, error) {
	if len(file) > maxKeyFile {
		return nil, &BadKey{Text: fmt.Sprintf("it has %d bytes, at most %d are read", len(file), maxKeyFile)}
	}
	raw, err := ssh.ParseRawPrivateKey(file)
	if _, locked := errors.AsType[*ssh.PassphraseMissingError](err); locked {
		return nil, &BadKey{Text: "it has a passphrase, and nobody is there to type it: give the lane a key of its own, ssh-keygen -t ed25519 -N '' -f lane-key"}
	}
	if err != nil {
		return nil, &BadKey{Text: "it is no SSH private key: ssh-keygen -t ed25519 -N '' -f lane-key makes one"}
	}
	private, ok := raw.(*ed25519.PrivateKey)
	if !ok {
		return nil, &BadKey{Text: "it is a private key of another kind, expected ed25519: ssh-keygen -t ed25519 -N '' -f lane-key makes one"}
	}
	public, err := ssh.NewPublicKey(private.Public())
	if err != nil {
		return nil, &BadKey{Text: "it has no public half"}
	}
	k, err := keyOf(public, "")
	return &Signer{key: k, private: *private}, err
}

// ParseKeys reads public keys, one a line: OpenSSH's (ssh-ed25519 AAAA… comment) or allowed signers' (principals before that).
// Comments and empty lines are passed over. A line with options is refused, not read half: an attestation has no namespace
// and no time of its own that they could be held against. The error is a *BadKey.
func ParseKeys(file []byte) ([]Key, error) {
	if len(file) > maxKeyFile {
		return nil, &BadKey{Text: fmt.Sprintf("it has %d bytes, at most %d are read", len(file), maxKeyFile)}
	}
	var out []Key
	for i, line := range bytes.Split(file, []byte("\n")) {
		text := strings.TrimSpace(string(line))
		if text == "" || text[0] == '#' {
			continue
		}
		k, err := parseLine(text)
		if err != nil {
			return nil, &BadKey{Line: i + 1, Text: err.Error()}
		}
		if out = append(out, k); len(out) > maxKeys {
			return nil, &BadKey{Line: i + 1, Text: fmt.Sprintf("more than %d keys", maxKeys)}
		}
	}
	if len(out) == 0 {
		return nil, &BadKey{Text: "it has no key: expected a line such as ssh-ed25519 AAAA… lane"}
	}
	return out, nil
}

func parseLine(text string) (Key, error) {
	if strings.Contains(text, "PRIVATE KEY") {
		return Key{}, errors.New("found a private key, expected the public one: the file whose name ends in .pub")
	}
	fields := strings.Fields(text)
	at := 0
	if !isKind(fields[0]) {
		at = 1
	}
	if len(fields) < at+2 || !isKind(fields[at]) {
		return Key{}, errors.New("expected ssh-ed25519 AAAA…, with the principals before it and a comment behind it, and no options")
	}
	public, comment, options, rest, err := ssh.ParseAuthorizedKey([]byte(strings.Join(fields[at:], " ")))
	if err != nil || len(options) > 0 || len(rest) > 0 {
		return Key{}, errors.New("the key behind ssh-ed25519 cannot be read")
	}
	name := comment
	if at == 1 {
		name = fields[0]
	}
	return keyOf(public, name)
}

func isKind(word string) bool {
	for _, p := range []string{"ssh-", "ecdsa-", "sk-"} {
		if strings.HasPrefix(word, p) {
			return true
		}
	}
	return false
}

func keyOf(public ssh.PublicKey, name string) (Key, error) {
	c, ok := public.(ssh.CryptoPublicKey)
	if !ok || public.Type() != ssh.KeyAlgoED25519 {
		return Key{}, fmt.Errorf("found a key of kind %.40s, expected ssh-ed25519", public.Type())
	}
	raw, ok := c.CryptoPublicKey().(ed25519.PublicKey)
	if !ok || len(raw) != ed25519.PublicKeySize {
		return Key{}, errors.New("the key is no ed25519 point")
	}
	return Key{ID: ssh.FingerprintSHA256(public), Name: name, public: raw}, nil
}
