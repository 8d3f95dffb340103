package ringsim_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/headway-run/headway/deploylane/ring"
	"github.com/headway-run/headway/deploylane/ringsim"
)

// hostile listens as an agent does, and answers every connection as a test says: the first frame's own id is given.
func hostile(t *testing.T, answer func(c net.Conn, id string)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				var head [4]byte
				if _, err := io.ReadFull(c, head[:]); err != nil {
					return
				}
				b := make([]byte, binary.LittleEndian.Uint32(head[:]))
				var f struct {
					ID string `json:"id"`
				}
				if _, err := io.ReadFull(c, b); err != nil || json.Unmarshal(b, &f) != nil {
					return
				}
				answer(c, f.ID)
			}()
		}
	}()
	return "tcp://" + l.Addr().String()
}

// say writes a frame; false: nobody listens any more.
func say(c net.Conn, id, kind string, body any) bool {
	b, err := json.Marshal(body)
	if err == nil {
		b, err = json.Marshal(map[string]any{"id": id, "kind": kind, "body": b})
	}
	if err == nil {
		_, err = c.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...))
	}
	return err == nil
}

// TestHostileAgents: whatever comes over a connection, each call ends by its deadline at the latest, none of them in success,
// and its error says who answered what.
func TestHostileAgents(t *testing.T) {
	t.Parallel() // it waits more than it computes
	for what, answer := range map[string]func(c net.Conn, id string){
		"nothing":         func(c net.Conn, _ string) { io.Copy(io.Discard, c) },
		"bytes of no end": func(c net.Conn, _ string) { io.Copy(c, endless{}) },
		"a huge frame":    func(c net.Conn, _ string) { c.Write([]byte{0xff, 0xff, 0xff, 0xff}); io.Copy(io.Discard, c) },
		"a frame that never ends": func(c net.Conn, _ string) {
			c.Write([]byte{0, 0, 0x30, 0, '{'})
			io.Copy(io.Discard, c)
		},
		"an acknowledgement of no end": func(c net.Conn, id string) {
			for i := 0; say(c, fmt.Sprintf("queued/h/%d", i), "queued", map[string]string{"request": id}); i++ {
			}
		},
		"stages of no end": func(c net.Conn, id string) {
			for i := 0; say(c, "x", "failed", map[string]string{"request": id, "node": fmt.Sprint(i)}); i++ {
			}
		},
		"the answer to another": func(c net.Conn, _ string) {
			say(c, "result/other", "result", map[string]any{"request": "other", "result": ring.Answer{Status: ring.Succeeded}})
			io.Copy(io.Discard, c)
		},
		"an answer of another kind": func(c net.Conn, id string) {
			say(c, "x", "ready", map[string]string{"request": id, "node": "no such"})
			io.Copy(io.Discard, c)
		},
		"no body": func(c net.Conn, id string) {
			say(c, "result/"+id, "result", nil)
			io.Copy(io.Discard, c)
		},
	} {
		t.Run(what, func(t *testing.T) {
			at := hostile(t, answer)
			w := ringsim.Connect(t.Context(), nil)
			defer w.Close()
			c := twoStages(t, w, []string{at, at})
			for call, do := range map[string]func(ctx context.Context) error{
				"inspect": func(ctx context.Context) error { _, err := c.Inspect(ctx, "", at); return err },
				"load": func(ctx context.Context) error {
					_, err := c.Load(ctx, c.command(0, ring.ContentLoad, c.body[0]))
					return err
				},
				"session": func(ctx context.Context) error { _, err := c.Session(ctx, c.route); return err },
			} {
				ended := make(chan error, 1)
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
					defer cancel()
					ended <- do(ctx)
				}()
				select {
				case err := <-ended:
					_, silent := errors.AsType[ring.NoAnswer](err)
					_, foreign := errors.AsType[ring.Foreign](err)
					_, failed := errors.AsType[ring.StageFailed](err)
					if !silent && !foreign && !failed {
						t.Errorf("%s: %v", call, err)
					}
				case <-time.After(time.Minute):
					t.Fatalf("%s goes on a minute after its deadline", call)
				}
			}
		})
	}
}

// endless is what /dev/urandom would be, without a length that is a frame's.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 0x01
	}
	return len(p), nil
}
