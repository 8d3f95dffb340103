package signers

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"golang.org/x/crypto/ssh"
)

const (
	pgpBegin = "-----BEGIN PGP PUBLIC KEY BLOCK-----"
	pgpEnd   = "-----END PGP PUBLIC KEY BLOCK-----"
)

// Parse reads a file of allowed signers: lines as ssh-keygen(1) describes them under ALLOWED SIGNERS, and armored OpenPGP
// public keys between them. A line that cannot be read, or means what is not understood here, is an error with its number,
// and so is a file that allows nobody: it is never read half.
func Parse(file []byte) (*Allowed, error) {
	if len(file) > MaxFile {
		return nil, fmt.Errorf("it has %d bytes, at most %d are read: split it by repository", len(file), MaxFile)
	}
	a := &Allowed{}
	var block []byte
	inside := 0
	for i, line := range bytes.Split(file, []byte("\n")) {
		text := strings.TrimSpace(string(line))
		switch {
		case inside > 0 || text == pgpBegin:
			if inside == 0 {
				inside, block = i+1, nil
			}
			block = append(append(block, text...), '\n')
			if text != pgpEnd {
				continue
			}
			keys, err := openpgp.ReadArmoredKeyRing(bytes.NewReader(block))
			if err != nil {
				return nil, fmt.Errorf("line %d: the OpenPGP key cannot be read (%s): export it anew with gpg --armor --export", inside, clip(err.Error()))
			}
			a.pgp, inside = append(a.pgp, keys...), 0
		case text == "" || text[0] == '#':
		case len(text) > maxLine:
			return nil, fmt.Errorf("line %d: it has %d bytes, at most %d are read", i+1, len(text), maxLine)
		default:
			k, err := parseLine(text)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			a.keys = append(a.keys, k)
		}
		if len(a.keys)+len(a.pgp) > maxKeys {
			return nil, fmt.Errorf("line %d: more than %d keys", i+1, maxKeys)
		}
	}
	if inside > 0 {
		return nil, fmt.Errorf("line %d: the OpenPGP key has no end: expected %s", inside, pgpEnd)
	}
	if len(a.keys)+len(a.pgp) == 0 {
		return nil, errors.New("it allows nobody: write one line for each signer, such as ann@example.com ssh-ed25519 AAAA…")
	}
	return a, nil
}

// parseLine reads principals, options where there are some, and a key.
func parseLine(text string) (key, error) {
	names, rest, err := principals(text)
	if err != nil {
		return key{}, err
	}
	public, _, options, tail, err := ssh.ParseAuthorizedKey([]byte(rest))
	if err != nil || len(bytes.TrimSpace(tail)) > 0 {
		return key{}, errors.New("found no public key after the principals, expected a line such as ann@example.com ssh-ed25519 AAAA…")
	}
	if _, cert := public.(*ssh.Certificate); cert {
		return key{}, errors.New("found a certificate, expected a plain key: certificates are not read")
	}
	k := key{names: clip(names), public: public}
	for _, o := range options {
		name, value, has := strings.Cut(o, "=")
		value = strings.Trim(value, `"`)
		switch low := strings.ToLower(name); {
		case low == "namespaces" && has && value != "":
			k.spaces = strings.Split(value, ",")
		case low == "valid-after" && has:
			k.from, err = moment(value)
		case low == "valid-before" && has:
			k.end, err = moment(value)
		case low == "cert-authority":
			err = errors.New("found cert-authority, expected a plain key: certificates are not read")
		default:
			err = fmt.Errorf("found the option %s, expected namespaces, valid-after or valid-before", clip(name))
		}
		if err != nil {
			return key{}, err
		}
	}
	return k, nil
}

// principals cuts the first word off, which may be quoted.
func principals(text string) (names, rest string, err error) {
	if text[0] == '"' {
		end := strings.IndexByte(text[1:], '"')
		if end <= 0 {
			return "", "", errors.New("found a quote without its end")
		}
		return text[1 : 1+end], strings.TrimSpace(text[2+end:]), nil
	}
	i := strings.IndexAny(text, " \t")
	if i < 0 {
		return "", "", errors.New("found one word, expected principals and a key, such as ann@example.com ssh-ed25519 AAAA…")
	}
	return text[:i], strings.TrimSpace(text[i:]), nil
}

// moment reads a time of OpenSSH: YYYYMMDD or YYYYMMDDHHMM[SS], with Z for UTC. Without Z, OpenSSH means the local time of
// whoever verifies, which would differ from machine to machine, so it is refused.
func moment(s string) (time.Time, error) {
	digits, utc := strings.CutSuffix(s, "Z")
	for _, layout := range []string{"20060102", "200601021504", "20060102150405"} {
		if len(digits) != len(layout) {
			continue
		}
		t, err := time.ParseInLocation(layout, digits, time.UTC)
		switch {
		case err != nil:
		case !utc:
			return time.Time{}, fmt.Errorf("found the time %s, which is another one on each machine: write %sZ", digits, digits)
		default:
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("found the time %s, expected YYYYMMDDZ or YYYYMMDDHHMM[SS]Z", clip(s))
}
