package attest

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
)

// Foreign bytes as an envelope: an error or a statement, never a panic; what is verified is what the library reads too.
func FuzzVerify(f *testing.F) {
	by := signer(f, 'a')
	good := signed(f, release(f), by)
	f.Add(good)
	f.Add([]byte(`{"payloadType":"a","payload":"","signatures":[{"sig":""}]}`))
	f.Add([]byte(`{"payload":null,"signatures":[]}`))
	keys := []Key{by.Key()}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := Verify(b, keys)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without words")
			}
			return
		}
		var e dsse.Envelope
		if err := json.Unmarshal(b, &e); err != nil {
			t.Fatal(err)
		}
		if p, err := e.DecodeB64Payload(); err != nil || !bytes.Equal(p, v.Payload) {
			t.Error("the library reads another payload")
		}
	})
}

// Foreign bytes as a payload: what is accepted says one thing only, so it is written again as the same bytes.
func FuzzStatement(f *testing.F) {
	good, err := encode(release(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"_type":"https://in-toto.io/Statement/v1"}`))
	f.Add([]byte(`{"a":1,"A":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decode(b)
		if err != nil {
			return
		}
		again, err := encode(s)
		if err != nil || !bytes.Equal(again, b) {
			t.Errorf("%v\n%s\n%s", err, b, again)
		}
	})
}

func FuzzParseKeys(f *testing.F) {
	f.Add([]byte(publicLine(f, 'a') + " lane\n"))
	f.Add([]byte("lane " + publicLine(f, 'a')))
	f.Fuzz(func(t *testing.T, b []byte) {
		keys, err := ParseKeys(b)
		if (err == nil) != (len(keys) > 0) {
			t.Errorf("%d keys and %v", len(keys), err)
		}
		for _, k := range keys {
			if len(k.public) != 32 || k.ID == "" {
				t.Errorf("half a key: %+v", k)
			}
		}
	})
}
