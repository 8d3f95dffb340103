package llamarpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/deploylane/ring"
)

// answer is an answer on the wire.
func answer(b ...byte) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(b))), b...)
}

// deaf reads from one place and writes to nowhere.
type deaf struct{ io.Reader }

func (deaf) Write(b []byte) (int, error) { return len(b), nil }

// The handshake of protocol 8, as a server of it answers; and what is not one.
func TestTalk(t *testing.T) {
	memory := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 7<<20), 9<<20)
	good := bytes.Join([][]byte{answer(append([]byte{8, 0, 1}, make([]byte, 25)...)...), answer(1, 0, 0, 0), answer(memory...)}, nil)
	h, err := talk(deaf{bytes.NewReader(good)})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(Hello{Major: 8, Patch: 1, Devices: []ring.Device{{Free: 7 << 20, Total: 9 << 20}}}, h); d != "" || h.Protocol() != "v8.0.1" {
		t.Error(d, h.Protocol())
	}
	for name, wire := range map[string][]byte{
		"nothing":      nil,
		"short":        good[:20],
		"too long":     append(binary.LittleEndian.AppendUint64(nil, 1<<40), 8),
		"no version":   answer(8),
		"many devices": append(answer(8, 0, 0), answer(255, 0, 0, 0)...),
		"odd memory":   bytes.Join([][]byte{answer(8, 0, 0), answer(1, 0, 0, 0), answer(1)}, nil),
	} {
		if h, err := talk(deaf{bytes.NewReader(wire)}); err == nil {
			t.Errorf("%s: %+v", name, h)
		}
	}
}

func FuzzTalk(f *testing.F) {
	f.Add(answer(8, 0, 0))
	f.Add(append(answer(8, 0, 0), answer(1, 0, 0, 0)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := talk(deaf{bytes.NewReader(b)}); err == nil && len(h.Devices) > maxDevices {
			t.Errorf("%d devices", len(h.Devices))
		}
	})
}

// Who does not answer is named, and by the right name: nobody, somebody else, or one that is silent.
func TestAskNames(t *testing.T) {
	serve := func(do func(net.Conn)) string {
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
				do(c)
			}
		}()
		return "tcp://" + l.Addr().String()
	}
	old := serve(func(c net.Conn) { // takes no capabilities, and hangs up
		io.ReadFull(c, make([]byte, 9))
		c.Close()
	})
	var held []net.Conn
	silent := serve(func(c net.Conn) { held = append(held, c) })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := Ask(ctx, old); !errors.As(err, new(ring.Foreign)) {
		t.Errorf("an old server: %v", err)
	}
	if _, err := Ask(ctx, "tcp://127.0.0.1:1"); !errors.As(err, new(ring.Unreachable)) {
		t.Errorf("nobody: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := Ask(short, silent)
	if e, ok := errors.AsType[ring.NoAnswer](err); !ok || e.To != silent {
		t.Errorf("silence: %v", err)
	}
}

// A stage is on the loopback or in a declared private network; a name may mean anything.
func TestPlaced(t *testing.T) {
	private := []netip.Prefix{netip.MustParsePrefix("10.231.0.0/16")}
	for at, says := range map[string]string{
		"127.0.0.1:50052": "", "[::1]:50052": "", "[::ffff:127.0.0.1]:50052": "", "10.231.7.1:50052": "",
		"10.232.7.1:50052": "no authentication", "0.0.0.0:50052": "no authentication", "[::]:1": "no authentication",
		"h1.ring:50052": "expected an address and a port", "127.0.0.1": "expected an address and a port",
	} {
		err := Placed(at, private)
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", at, err)
		}
	}
}
