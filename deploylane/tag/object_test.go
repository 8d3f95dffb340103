package tag

import (
	"bytes"
	"strings"
	"testing"
)

const head = "object cccccccccccccccccccccccccccccccccccccccc\ntype commit\ntag release/digits/v1.0.0\ntagger Ann <ann@example.com> 1700000000 +0200\n\n"

const sshBlock = "-----BEGIN SSH SIGNATURE-----\nU1NIU0lH\n-----END SSH SIGNATURE-----\n"

// TestObjects: an object is split at its signature, and what git or a person could read in another way is none.
func TestObjects(t *testing.T) {
	for _, c := range []struct {
		name, raw, want string
		signatures      int
	}{
		{"signed", head + "m\n" + sshBlock, "", 1},
		{"by OpenPGP", head + "m\n-----BEGIN PGP SIGNATURE-----\n\nx\n-----END PGP SIGNATURE-----\n", "", 1},
		{"without a message", head + sshBlock, "", 1},
		{"unsigned", head + "m\n", "", 0},
		{"empty", head, "", 0},
		{"two signatures", head + "m\n" + sshBlock + sshBlock, "", 2},
		{"of two kinds", head + "m\n-----BEGIN PGP SIGNATURE-----\n" + sshBlock, "", 2},
		{"a mark in the message", head + "-----BEGIN PGP MESSAGE-----\nm\n" + sshBlock, "", 2},
		{"a mark inside a line", head + "x -----BEGIN SSH SIGNATURE-----\n" + sshBlock, "", 1},
		{"text after it", head + "m\n" + sshBlock + "and more\n", "something follows", 0},
		{"no end", head + "m\n-----BEGIN SSH SIGNATURE-----\nx\n", "something follows", 0},
		{"CRLF", strings.ReplaceAll(head+"m\n", "\n", "\r\n"), "U+000D", 0},
		{"CRLF in the message", head + "m\r\n" + sshBlock, "line 6 holds the character U+000D", 0},
		{"NUL", head + "m\x00\n", "U+0000", 0},
		{"right to left", head + "m\u202e\n", "U+202E", 0},
		{"no width", head + "m\u200b\n", "U+200B", 0},
		{"not UTF-8", head + "\xff\n", "not UTF-8", 0},
		{"huge", head + strings.Repeat("m", MaxObject), "at most 65536", 0},
		{"no object", strings.TrimPrefix(head, "object "), "line 1 is no object header", 0},
		{"twice", "object " + strings.Repeat("d", 40) + "\n" + head, "line 2 is no type header", 0},
		{"short id", strings.Replace(head, "cc\n", "\n", 1), "line 1 is no object header", 0},
		{"long id", strings.Replace(head, "cc\n", strings.Repeat("c", 26)+"\n", 1), "line 1 is no object header", 0},
		{"odd type", strings.Replace(head, "commit", "kommit", 1), "line 2 is no type header", 0},
		{"no tagger", strings.Replace(head, "tagger", "author", 1), "line 4 is no tagger header", 0},
		{"a header more", strings.Replace(head, "\n\n", "\ngpgsig x\n\n", 1), "more headers", 0},
		{"a name of two words", strings.Replace(head, "tag release", "tag x release", 1), "line 3 is no tag header", 0},
		{"cut", head[:20], "line 1 is no object header", 0},
	} {
		o, err := ParseObject([]byte(c.raw))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
			continue
		}
		if err == nil && (o.Signatures != c.signatures || o.Name != "release/digits/v1.0.0" || string(o.Payload)+string(o.Signature) != c.raw) {
			t.Errorf("%s: %+v", c.name, o)
		}
	}
}

// gitSplit is where git takes the signature to begin: at the last line that begins as one.
func gitSplit(raw []byte) int {
	match := len(raw)
	for at := 0; at < len(raw); {
		for _, m := range marks {
			if bytes.HasPrefix(raw[at:], []byte(m)) {
				match = at
			}
		}
		i := bytes.IndexByte(raw[at:], '\n')
		if i < 0 {
			break
		}
		at += i + 1
	}
	return match
}

// FuzzObject: an object that is taken with one signature is split where git splits it, and nothing crashes.
func FuzzObject(f *testing.F) {
	f.Add([]byte(head + "m\n" + sshBlock))
	f.Add([]byte(head + "m\n" + sshBlock + sshBlock))
	f.Add([]byte(head))
	f.Fuzz(func(t *testing.T, raw []byte) {
		o, err := ParseObject(raw)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Fatalf("%q", err)
			}
			return
		}
		if !bytes.Equal(append(bytes.Clone(o.Payload), o.Signature...), raw) {
			t.Fatal("the parts are not the whole")
		}
		if o.Signatures < 2 && len(o.Payload) != gitSplit(raw) {
			t.Fatalf("we split at %d, git at %d", len(o.Payload), gitSplit(raw))
		}
		if !hexID.MatchString(o.Target) || !bytes.HasPrefix(raw, []byte("object "+o.Target+"\ntype "+o.Kind+"\ntag "+o.Name+"\ntagger ")) {
			t.Fatalf("%+v", o)
		}
	})
}
