package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headway-run/headway/runners/agent/courier"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

var testWork = strings.Repeat("ab", 32)

// rig is a captured lease with everything between the socket and the store.
type rig struct {
	b    bucket.Bucket
	d    *desk
	k    *keeper
	srv  *server
	path string
	said chan string
}

func put(t testing.TB, b bucket.Bucket, key string, v any) {
	t.Helper()
	raw, err := record.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Put(t.Context(), key, strings.NewReader(string(raw)), bucket.Always()); err != nil {
		t.Fatal(err)
	}
}

// captured takes the lease of testWork on b, with its claim and its reservation.
func captured(t testing.TB, b bucket.Bucket, terms record.Terms) *witness.Holder {
	t.Helper()
	put(t, b, record.ClaimKey(testWork, 1), record.Claim{Protocol: 1, Work: testWork, Dispatch: 1})
	h, err := witness.Capture(t.Context(), b, witness.CaptureRequest{Work: testWork, Dispatch: 1, Lease: promise(terms, &pace{}, startPhase(terms))})
	if err != nil {
		t.Fatal(err)
	}
	if v := h.Open(t.Context(), record.Open{}); v.Outcome != witness.Won {
		t.Fatal(v)
	}
	return h
}

func newRig(t testing.TB, b bucket.Bucket, terms record.Terms) *rig {
	t.Helper()
	h := captured(t, b, terms)
	g := &rig{b: b, said: make(chan string, 1000)}
	g.d = newDesk(terms, func(e string, step int64, why string) {
		select {
		case g.said <- fmt.Sprintf("%s@%d: %s", e, step, why):
		default:
		}
	})
	g.k = newKeeper(g.d, h, time.Now())
	ctx, cancel := context.WithCancel(t.Context())
	go g.k.run(ctx)
	c := courier.New(ctx, courier.Config{Store: b, Work: testWork, Attempt: 1, Dir: t.TempDir(), Report: g.d.reported})
	cwd := t.TempDir()
	g.srv = &server{d: g.d, k: c, work: testWork, attempt: 1, resume: resumeAnswer{OK: true}, cwd: cwd}
	path, err := g.srv.listen(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	g.path = path
	g.srv.serve(ctx)
	t.Cleanup(func() { cancel(); g.srv.close(); c.Close(); <-g.k.done })
	return g
}

// client speaks lines.
type client struct {
	net.Conn
	in *bufio.Reader
}

func (g *rig) dial(t testing.TB) *client {
	t.Helper()
	c, err := net.Dial("unix", g.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	return &client{c, bufio.NewReaderSize(c, maxLine)}
}

// ask sends a line and reads one answer; nil when the connection ended.
func (c *client) ask(t testing.TB, line string) map[string]any {
	t.Helper()
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		return nil
	}
	raw, err := c.in.ReadBytes('\n')
	if err != nil {
		return nil
	}
	var a map[string]any
	if err := json.Unmarshal(raw, &a); err != nil {
		t.Fatalf("%s: answered with %q", line, raw)
	}
	return a
}

const hello = `{"op":"hello","protocol":1,"client":"test","pid":1}`

func terms() record.Terms {
	return record.Terms{LeaseK: 50, LeaseFloorS: 15, MilestoneSteps: 10, GraceS: 5}
}

// TestSocketVectors holds the server against the lines that Go and Python share.
func TestSocketVectors(t *testing.T) {
	raw, err := os.ReadFile("../witness/testdata/vectors/socket.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			Name, From, Answer, Line string
			Closes                   bool
		}
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, c := range file.Cases {
		if c.From != "client" {
			continue
		}
		n++
		t.Run(c.Name, func(t *testing.T) {
			g := newRig(t, mem.New(), terms())
			line := strings.ReplaceAll(c.Line, "/tmp/ck", filepath.Join(g.srv.cwd, "out/ck"))
			ck := filepath.Join(g.srv.cwd, "out", "ck")
			if err := os.MkdirAll(ck, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(ck, "w"), []byte("1"), 0o644); err != nil {
				t.Fatal(err)
			}
			l := g.dial(t)
			if !strings.Contains(c.Line, `"hello"`) {
				if a := l.ask(t, hello); a["ok"] != true {
					t.Fatalf("hello: %v", a)
				}
			}
			judgeLine(t, l, line, c.Answer, c.Closes)
		})
	}
	if n < 30 {
		t.Errorf("only %d vectors", n)
	}
}

func judgeLine(t *testing.T, l *client, line, want string, closes bool) {
	t.Helper()
	if want == "none" {
		line += "\n" + `{"op":"resume"}` // the next answer must be this one's
	}
	a := l.ask(t, line)
	switch {
	case want == "none":
		if _, is := a["path"]; !is {
			t.Errorf("a one-way line was answered with %v", a)
		}
	case want == "ok":
		if a["ok"] != true {
			t.Errorf("answered %v", a)
		}
	case a["ok"] != false || a["error"] != want || a["text"] == "":
		t.Errorf("answered %v, want %s", a, want)
	}
	next := l.ask(t, `{"op":"dance"}`)
	if closed := next == nil; closed != closes {
		t.Errorf("closed: %v, want %v", closed, closes)
	}
}

func TestSecondLoopIsRefusedAndMayNote(t *testing.T) {
	g := newRig(t, mem.New(), terms())
	first, second := g.dial(t), g.dial(t)
	if a := first.ask(t, hello); a["ok"] != true || a["attempt"] != 1.0 || a["quiet_s"] != 2.5 || a["every_steps"] != 10.0 || a["every_s"] != 0.0 {
		t.Fatalf("hello: %v", a)
	}
	if a := second.ask(t, hello); a["error"] != "not_loop" {
		t.Errorf("a second loop: %v", a)
	}
	if a := second.ask(t, `{"op":"step","n":9}`+"\n"+`{"op":"note","values":{"loss":1}}`+"\n"+`{"op":"step","n":9,"ask":true}`); a["error"] != "not_loop" {
		t.Errorf("a step of a second loop: %v", a)
	}
	if g.d.at() != 0 {
		t.Errorf("a connection that is not the loop moved the step to %d", g.d.at())
	}
	said := <-g.said
	if said != `note@0: {"loss":1}` {
		t.Errorf("the note became %q", said)
	}
	_ = first.Close()
	for end := time.Now().Add(10 * time.Second); second.ask(t, hello)["ok"] != true; { // until the first one's end is noticed
		if time.Now().After(end) {
			t.Fatal("the place of the loop is not free again")
		}
	}
}

func TestALineTooLongEndsTheConnection(t *testing.T) {
	g := newRig(t, mem.New(), terms())
	l := g.dial(t)
	a := l.ask(t, `{"op":"error","text":"`+strings.Repeat("x", maxLine)+`"}`)
	if a["error"] != "bad_request" {
		t.Errorf("answered %v", a)
	}
	if _, err := l.in.ReadByte(); err == nil {
		t.Error("the connection is still open")
	}
	l = g.dial(t)
	l.ask(t, hello)
	fits := `{"op":"note","values":{},"pad":"` + strings.Repeat("x", maxLine-100) + `"}`
	if a := l.ask(t, fits+"\n"+`{"op":"resume"}`); a["ok"] != true {
		t.Errorf("a line within the limit: %v", a)
	}
}

// FuzzSocketLine feeds foreign bytes to the parser and, as the loop, to the server's handler: it may refuse anything,
// it may not panic, go back, or take a line that breaks a bound.
func FuzzSocketLine(f *testing.F) {
	raw, err := os.ReadFile("../witness/testdata/vectors/socket.json")
	if err != nil {
		f.Fatal(err)
	}
	var file struct{ Cases []struct{ Line string } }
	if err := json.Unmarshal(raw, &file); err != nil {
		f.Fatal(err)
	}
	for _, c := range file.Cases {
		f.Add([]byte(c.Line))
	}
	f.Add([]byte(`{"op":"step","n":00}`))
	f.Add([]byte(`{"op":"note","values":{"a":{"b":[1]},"c":1e999}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := parseLine(line)
		if n, ok := plainStep(line); ok {
			var slow request
			if json.Unmarshal(line, &slow) != nil || slow.N == nil || *slow.N != n {
				t.Fatalf("%q: the fast path reads %d", line, n)
			}
		}
		if err != nil {
			if no := refusalOf(err); no.Code != "bad_request" && no.Code != "protocol" {
				t.Fatalf("%q: %v", line, err)
			}
			return
		}
		if r.Op == "step" && (*r.N < 0 || *r.N > maxStep) || !(r.ExpectS >= 0 && r.ExpectS <= maxExpect) && r.Op == "phase" {
			t.Fatalf("%q: accepted as %+v", line, r)
		}
		if text := noteText(r.Values, strings.ToUpper); len(text) > maxNotes*2048 {
			t.Fatalf("a note of %d bytes", len(text))
		}
	})
}
