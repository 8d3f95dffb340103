package attest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
)

func publicLine(t testing.TB, letter byte) string {
	t.Helper()
	p, err := ssh.NewPublicKey(signer(t, letter).key.public)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(p)))
}

func TestParseKeys(t *testing.T) {
	a, b := publicLine(t, 'a'), publicLine(t, 'b')
	keys, err := ParseKeys([]byte("# the lane's\n\n" + a + " lane key\nlane@example.com,other@example.com " + b + "\r\n"))
	if err != nil || len(keys) != 2 || keys[0].ID != signer(t, 'a').Key().ID || keys[0].Name != "lane key" || keys[1].Name != "lane@example.com,other@example.com" {
		t.Fatalf("%v %+v", err, keys)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p256, err := ssh.NewPublicKey(other.Public())
	if err != nil {
		t.Fatal(err)
	}
	for want, file := range map[string]string{
		"has no key":              "# nothing\n",
		"line 2 of the key file":  a + "\nssh-ed25519 AAAA\n",
		"no options":              `lane namespaces="git" ` + a,
		"private key":             "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA",
		"expected ssh-ed25519":    string(ssh.MarshalAuthorizedKey(p256)),
		"at most 65536":           strings.Repeat("#", 70_000),
		"more than 256 keys":      strings.Repeat(a+"\n", 257),
		"with the principals bef": "lane",
	} {
		_, err := ParseKeys([]byte(file))
		if e, ok := errors.AsType[*BadKey](err); !ok || !strings.Contains(e.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestParseSigner(t *testing.T) {
	private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{'a'}, 32))
	locked, err := ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p256, err := ssh.MarshalPrivateKey(other, "")
	if err != nil {
		t.Fatal(err)
	}
	for want, file := range map[string][]byte{
		"has a passphrase":  pem.EncodeToMemory(locked),
		"of another kind":   pem.EncodeToMemory(p256),
		"no SSH private":    []byte("secret-bytes-of-somebody"),
		"at most 65536 are": bytes.Repeat([]byte("x"), 70_000),
	} {
		_, err := ParseSigner(file)
		if e, ok := errors.AsType[*BadKey](err); !ok || !strings.Contains(e.Text, want) || strings.Contains(e.Error(), "secret-bytes") {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// Keys as OpenSSH's own program writes them, where there is one; the id is what it prints.
func TestKeysOfOpenSSH(t *testing.T) {
	keygen, err := exec.LookPath("ssh-keygen")
	if err != nil {
		t.Log("no ssh-keygen here: the keys that x/crypto writes are tested above")
		return
	}
	path := filepath.Join(t.TempDir(), "lane")
	if out, err := exec.Command(keygen, "-q", "-t", "ed25519", "-N", "", "-C", "the lane", "-f", path).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	private, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	public, err := os.ReadFile(path + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	s, err := ParseSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := ParseKeys(public)
	if err != nil || keys[0].ID != s.Key().ID || keys[0].Name != "the lane" {
		t.Fatalf("%v %+v", err, keys)
	}
	print, err := exec.Command(keygen, "-l", "-f", path).Output()
	if err != nil || !strings.Contains(string(print), keys[0].ID) {
		t.Errorf("ssh-keygen says %s, we %s", print, keys[0].ID)
	}
	if _, err := Verify(signed(t, release(t), s), keys); err != nil {
		t.Error(err)
	}
}
