package signers

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// signer makes an SSH key; bits > 0: of RSA.
func signer(t *testing.T, bits int) ssh.Signer {
	t.Helper()
	var private any
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	private = ed
	if bits > 0 {
		private, err = rsa.GenerateKey(rand.Reader, bits)
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func sign(t *testing.T, s ssh.Signer, payload, space string) []byte {
	t.Helper()
	sig, err := sshsig.Sign(strings.NewReader(payload), s, sshsig.HashSHA512, space)
	if err != nil {
		t.Fatal(err)
	}
	return sshsig.Armor(sig)
}

func line(s ssh.Signer) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(s.PublicKey())))
}

func code(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return err.Error()
}

// keygen asks OpenSSH whether a signature is by one of the allowed signers.
func keygen(t *testing.T, allowed, payload string, signature []byte, now time.Time) bool {
	t.Helper()
	dir := t.TempDir()
	for name, b := range map[string][]byte{"allowed": []byte(allowed + "\n"), "sig": signature} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := "-Overify-time=" + now.UTC().Format("20060102150405") + "Z"
	out, err := exec.Command("ssh-keygen", "-Y", "find-principals", "-f", filepath.Join(dir, "allowed"), "-s", filepath.Join(dir, "sig"), at).Output()
	if err != nil {
		return false
	}
	who, _, _ := strings.Cut(string(out), "\n")
	cmd := exec.Command("ssh-keygen", "-Y", "verify", "-f", filepath.Join(dir, "allowed"), "-I", who, "-n", "git", "-s", filepath.Join(dir, "sig"), at)
	cmd.Stdin = strings.NewReader(payload)
	return cmd.Run() == nil
}

// TestAgainstOpenSSH: every verdict is that of ssh-keygen -Y verify, but where we say why we are stricter.
func TestAgainstOpenSSH(t *testing.T) {
	ann, bob, weakling := signer(t, 0), signer(t, 3072), signer(t, 2048)
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	const payload = "tree x\n\nmessage\n"
	for _, c := range []struct {
		name, allowed string
		by            ssh.Signer
		space, code   string
		stricter      bool
	}{
		{"listed", "ann@example.com " + line(ann), ann, "git", "", false},
		{"RSA", "bob@example.com " + line(bob), bob, "git", "", false},
		{"a comment, another line, a quoted name", "# people\n\n\"ann@example.com\" " + line(ann) + " of Ann\nbob@example.com " + line(bob), bob, "git", "", false},
		{"not listed", "ann@example.com " + line(ann), bob, "git", "UnknownSigner", false},
		{"for Git", `ann@example.com namespaces="file,git" ` + line(ann), ann, "git", "", false},
		{"for files alone", `ann@example.com namespaces="file" ` + line(ann), ann, "git", "WrongNamespace", false},
		{"signed as a file", "ann@example.com " + line(ann), ann, "file", "WrongNamespace", false},
		{"valid", `ann@example.com valid-after="20260101Z",valid-before="202607010000Z" ` + line(ann), ann, "git", "", false},
		{"not yet", `ann@example.com valid-after="20260701Z" ` + line(ann), ann, "git", "NotValidNow", false},
		{"no longer", `ann@example.com valid-before="20260501120000Z" ` + line(ann), ann, "git", "NotValidNow", false},
		{"renewed in a second line", "ann@example.com valid-before=\"20260501Z\" " + line(ann) + "\nann@example.com " + line(ann), ann, "git", "", false},
		{"weak", "w@example.com " + line(weakling), weakling, "git", "WeakKey", true},
	} {
		a, err := Parse([]byte(c.allowed))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		sig := sign(t, c.by, payload, c.space)
		who, err := a.Check([]byte(payload), sig, now)
		if code(err) != c.code {
			t.Errorf("%s: %v, want %q", c.name, err, c.code)
		}
		if err == nil && (who.Fingerprint != ssh.FingerprintSHA256(c.by.PublicKey()) || !strings.Contains(who.Name, "@example.com")) {
			t.Errorf("%s: signed by %+v", c.name, who)
		}
		if theirs := keygen(t, c.allowed, payload, sig, now); !c.stricter && theirs != (err == nil) {
			t.Errorf("%s: we say %v, OpenSSH says %v", c.name, err, theirs)
		}
		if _, err := a.Check([]byte(payload+"x"), sig, now); err == nil {
			t.Errorf("%s: the signature of another payload counts", c.name)
		}
	}
}

// TestOpenPGP: a signature by a listed key in its time counts, and nothing else does.
func TestOpenPGP(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	entity := func(c *packet.Config) (*openpgp.Entity, string) {
		c.Time = func() time.Time { return now.Add(-time.Hour) }
		e, err := openpgp.NewEntity("Ann", "", "ann@example.com", c)
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
		return e, b.String()
	}
	ann, annKey := entity(&packet.Config{Algorithm: packet.PubKeyAlgoEdDSA})
	short, shortKey := entity(&packet.Config{Algorithm: packet.PubKeyAlgoEdDSA, KeyLifetimeSecs: 7200})
	eve, _ := entity(&packet.Config{Algorithm: packet.PubKeyAlgoEdDSA})
	signed := func(e *openpgp.Entity, payload string) []byte {
		var b bytes.Buffer
		if err := openpgp.ArmoredDetachSign(&b, e, strings.NewReader(payload), &packet.Config{Time: func() time.Time { return now }}); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	ssher := signer(t, 0)
	a, err := Parse([]byte("# all of us\n" + annKey + "\nbob@example.com " + line(ssher) + "\n" + shortKey + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	who, err := a.Check([]byte("p"), signed(ann, "p"), now)
	if err != nil || who.Fingerprint != fmt.Sprintf("%X", ann.PrimaryKey.Fingerprint) || who.Name != "Ann <ann@example.com>" {
		t.Errorf("%+v, %v", who, err)
	}
	if _, err := a.Check([]byte("p"), sign(t, ssher, "p", "git"), now); err != nil {
		t.Errorf("SSH beside OpenPGP: %v", err)
	}
	if _, err := a.Check([]byte("q"), signed(ann, "p"), now); code(err) != "BadSignature" {
		t.Errorf("another payload: %v", err)
	}
	if _, err := a.Check([]byte("p"), signed(eve, "p"), now); code(err) != "UnknownSigner" {
		t.Errorf("a stranger: %v", err)
	}
	if _, err := a.Check([]byte("p"), signed(short, "p"), now); err != nil {
		t.Errorf("a key in its time: %v", err)
	}
	if _, err := a.Check([]byte("p"), signed(short, "p"), now.Add(24*time.Hour)); code(err) != "BadSignature" {
		t.Errorf("a key after its time: %v", err)
	}
}

func TestOtherSignatures(t *testing.T) {
	a, err := Parse([]byte("ann@example.com " + line(signer(t, 0))))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"": "Unsigned", " \n": "Unsigned", "-----BEGIN SIGNED MESSAGE-----": "BadSignature", "-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----": "BadSignature",
		"-----BEGIN PGP SIGNATURE-----\n\nAAAA\n-----END PGP SIGNATURE-----": "BadSignature", "-----BEGIN PGP SIGNATURE-----" + strings.Repeat("x", MaxSignature): "BadSignature"} {
		if _, err := a.Check([]byte("p"), []byte(text), time.Time{}); code(err) != want {
			t.Errorf("%.40q: %v, want %s", text, err, want)
		}
	}
}

// TestParseRefusals: a file is read whole or not at all, and the line is named.
func TestParseRefusals(t *testing.T) {
	good := "ann@example.com " + line(signer(t, 0))
	for text, want := range map[string]string{
		"":                            "it allows nobody",
		"# nobody\n":                  "it allows nobody",
		good + "\nnonsense":           "line 2: found one word",
		"ann@example.com ssh-ed25519": "line 1: found no public key",
		"\"ann " + line(signer(t, 0)): "line 1: found a quote without its end",
		"*@x cert-authority " + line(signer(t, 0)):                       "line 1: found cert-authority",
		"a@x no-touch-required " + line(signer(t, 0)):                    "line 1: found the option no-touch-required",
		"a@x valid-before=\"20260101\" " + line(signer(t, 0)):            "line 1: found the time 20260101, which is another one on each machine",
		"a@x valid-before=\"soon\" " + line(signer(t, 0)):                "line 1: found the time soon",
		good + "\n" + pgpBegin + "\n\nAAAA\n":                            "line 2: the OpenPGP key has no end",
		good + "\n" + pgpBegin + "\n\nAAAA\n" + pgpEnd:                   "line 2: the OpenPGP key cannot be read",
		strings.Repeat("#\n", MaxFile):                                   "at most 1048576 are read",
		"a@x " + string(pem.EncodeToMemory(&pem.Block{Type: "X"})) + "x": "line 1",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}

// FuzzParse: whatever a file holds, it is read or refused.
func FuzzParse(f *testing.F) {
	f.Add([]byte("ann@example.com namespaces=\"git\",valid-after=\"20260101Z\" ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0000000000000000000000000000000000000000000\n"))
	f.Add([]byte("\"a b\" ssh-ed25519\n" + pgpBegin + "\n\nAAAA\n" + pgpEnd))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := Parse(b)
		if (a == nil) == (err == nil) {
			t.Fatalf("neither or both: %v", err)
		}
	})
}

// FuzzCheck: no signature, however malformed, counts or crashes.
func FuzzCheck(f *testing.F) {
	f.Add([]byte("-----BEGIN SSH SIGNATURE-----\nU1NIU0lHAAAAAQ==\n-----END SSH SIGNATURE-----\n"))
	f.Add([]byte("-----BEGIN PGP SIGNATURE-----\n\nAAAA\n-----END PGP SIGNATURE-----\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := (&Allowed{}).Check([]byte("p"), b, time.Time{}); err == nil {
			t.Fatalf("%q counts, and nobody is allowed", b)
		}
	})
}
