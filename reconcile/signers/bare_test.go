package signers

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// TestBare: a signature tells who made it and nothing else; one that does not fit tells nothing.
func TestBare(t *testing.T) {
	ann, weakling := signer(t, 0), signer(t, 2048)
	good := sign(t, ann, "p", "git")
	if print, err := Bare([]byte("p"), good); err != nil || print != ssh.FingerprintSHA256(ann.PublicKey()) {
		t.Errorf("%q, %v", print, err)
	}
	for name, c := range map[string]struct {
		payload   string
		signature []byte
		code      string
	}{
		"another payload":   {"q", good, "BadSignature"},
		"another namespace": {"p", sign(t, ann, "p", "file"), "WrongNamespace"},
		"weak":              {"p", sign(t, weakling, "p", "git"), "WeakKey"},
		"none":              {"p", nil, "Unsigned"},
		"cut":               {"p", good[:len(good)/2], "BadSignature"},
		"OpenPGP":           {"p", []byte("-----BEGIN PGP SIGNATURE-----\n"), "BadSignature"},
		"long":              {"p", []byte(strings.Repeat("x", MaxSignature+1)), "BadSignature"},
	} {
		if print, err := Bare([]byte(c.payload), c.signature); code(err) != c.code || print != "" {
			t.Errorf("%s: %q, %v, want %s", name, print, err, c.code)
		}
	}
}

// TestErrorNamesWhoIsKnown: who a key belongs to is said also where it does not count.
func TestErrorNamesWhoIsKnown(t *testing.T) {
	ann := signer(t, 0)
	a, err := Parse([]byte(`ann@example.com valid-before="20260101Z" ` + line(ann)))
	if err != nil {
		t.Fatal(err)
	}
	who, err := a.Check([]byte("p"), sign(t, ann, "p", "git"), time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC))
	if code(err) != "NotValidNow" || who.Name != "ann@example.com" || who.Fingerprint != ssh.FingerprintSHA256(ann.PublicKey()) {
		t.Errorf("%+v, %v", who, err)
	}
	if who, err := a.Check([]byte("p"), sign(t, signer(t, 0), "p", "git"), time.Time{}); code(err) != "UnknownSigner" || who.Name != "" || who.Fingerprint == "" {
		t.Errorf("a stranger: %+v, %v", who, err)
	}
}
