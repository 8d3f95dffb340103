package witness

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/headway-run/headway/runners/record"
)

// vector is one case of testdata/vectors: the fields that all its files share and those of each.
type vector struct {
	Name   string
	Expect string // accept or refuse
	Why    string
	Record json.RawMessage // records.json: one of these three
	Text   *string
	Base64 *string
	Move   Move            // transitions.json
	Old    json.RawMessage // null: absent
	New    json.RawMessage
	From   string // socket.json
	Line   string
}

func vectors(t *testing.T, file string) (work string, cases []vector) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "vectors", file))
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Work  string
		Cases []vector
	}
	if err := json.Unmarshal(b, &f); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, c := range f.Cases {
		if c.Name == "" || c.Why == "" || seen[c.Name] || c.Expect != "accept" && c.Expect != "refuse" {
			t.Errorf("%s: case %q needs a name of its own, a reason and a verdict", file, c.Name)
		}
		seen[c.Name] = true
	}
	return f.Work, f.Cases
}

func (c *vector) bytes(t *testing.T) []byte {
	t.Helper()
	switch {
	case c.Text != nil:
		return []byte(*c.Text)
	case c.Base64 != nil:
		b, err := base64.StdEncoding.DecodeString(*c.Base64)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var b bytes.Buffer
	if err := json.Compact(&b, c.Record); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestVectorRecords(t *testing.T) {
	work, cases := vectors(t, "records.json")
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			r, err := Decode(work, c.bytes(t))
			if c.Expect == "refuse" {
				if !isUnreadable(err) {
					t.Fatalf("%s: got %v, want *Unreadable", c.Why, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", c.Why, err)
			}
			b, err := encode(r)
			if err != nil {
				t.Fatal(err)
			}
			again, err := Decode(work, b)
			if err != nil || !sameRecord(again, r) {
				t.Fatalf("does not survive a round trip: %v\n%s", err, b)
			}
		})
	}
}

func TestVectorTransitions(t *testing.T) {
	_, cases := vectors(t, "transitions.json")
	moves := map[Move]bool{}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			var old *Record
			if string(c.Old) != "null" {
				old = new(Record)
				if err := json.Unmarshal(c.Old, old); err != nil {
					t.Fatal(err)
				}
				if err := old.valid(old.Work); err != nil {
					t.Fatalf("the old record %v", err)
				}
			}
			var next Record
			if err := json.Unmarshal(c.New, &next); err != nil {
				t.Fatal(err)
			}
			got, err := CheckMove(old, next)
			if (err == nil) != (c.Expect == "accept") || got != c.Move {
				t.Fatalf("%s: got move %q, %v; want %s %q", c.Why, got, err, c.Expect, c.Move)
			}
			moves[got] = true
		})
	}
	for _, m := range []Move{MoveCreate, MoveBar, MoveCapture, MoveRenew, MoveAdvance, MoveYield, MoveRevoke, MoveStop, MoveFinish} {
		if !moves[m] {
			t.Errorf("no vector shows the move %s", m)
		}
	}
}

// TestVectorSocket checks the form alone: the agent and the clients read this file in their own tests.
func TestVectorSocket(t *testing.T) {
	_, cases := vectors(t, "socket.json")
	for _, c := range cases {
		if c.From != "client" && c.From != "agent" || len(c.Line) > 64<<10 || bytes.ContainsRune([]byte(c.Line), '\n') {
			t.Errorf("%s: a line of at most 64 KiB from client or agent", c.Name)
		}
		var m map[string]any
		if err := json.Unmarshal([]byte(c.Line), &m); c.Expect == "accept" && err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
}

func sameRecord(a, b Record) bool {
	x, errX := record.Encode(a)
	y, errY := record.Encode(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
