// Package llamarpc is a ring.Engine over llama.cpp's own parts: one head (its server) and remote backends (its RPC
// servers), one for each stage. It is the real process beside the simulator: for device names of the target's own list,
// a handshake before weights, addresses seen from where they are dialled, and health that does not mean service. The
// engine has no generations, journal, retained store or receipts: what of these the port asks for is kept here, or is
// said not to be reported.
//
// An RPC server has no authentication: a stage is placed on the loopback or inside a declared private network, nowhere
// else.
package llamarpc

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/headway-run/headway/deploylane/ring"
)

// Commands of the RPC wire, and the most that an answer of theirs may have, bytes.
const (
	cmdMemory = 11
	cmdHello  = 14
	cmdCount  = 15

	maxAnswer  = 4 << 10
	maxDevices = 16
)

// helloBytes is the size of a HELLO's capabilities since protocol 8; older servers take none.
const helloBytes = 24

// Hello is what an RPC server says of itself before any weights.
type Hello struct {
	Major, Minor, Patch uint8
	Devices             []ring.Device // unnamed: the head numbers them
}

// Protocol is the version as the server prints it.
func (h Hello) Protocol() string { return fmt.Sprintf("v%d.%d.%d", h.Major, h.Minor, h.Patch) }

// Ask shakes hands with an RPC server and asks for its devices' memory. The error is ring.Unreachable, ring.NoAnswer, or
// ring.Foreign where what answers speaks another protocol.
func Ask(ctx context.Context, address string) (Hello, error) {
	began := time.Now()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", strings.TrimPrefix(address, "tcp://"))
	if err != nil {
		if ctx.Err() != nil {
			return Hello{}, ring.NoAnswer{To: address, What: "INSPECT", After: time.Since(began)}
		}
		return Hello{}, ring.Unreachable{Address: address, Why: err.Error()}
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	h, err := talk(c)
	switch {
	case err != nil && ctx.Err() != nil:
		return Hello{}, ring.NoAnswer{To: address, What: "INSPECT", After: time.Since(began), Last: "its kernel, which took the connection"}
	case err != nil:
		return Hello{}, ring.Foreign{From: address, Why: "no HELLO of protocol 8 or later: " + err.Error()}
	}
	return h, nil
}

// talk is the handshake: versions first, so that a server of another protocol has hung up before anything else is asked.
func talk(rw io.ReadWriter) (Hello, error) {
	b, err := call(rw, cmdHello, make([]byte, helloBytes))
	if err != nil {
		return Hello{}, err
	}
	if len(b) < 3 {
		return Hello{}, fmt.Errorf("an answer of %d bytes", len(b))
	}
	h := Hello{Major: b[0], Minor: b[1], Patch: b[2]}
	if b, err = call(rw, cmdCount, nil); err != nil || len(b) != 4 {
		return h, fmt.Errorf("how many devices: %d bytes, %v", len(b), err)
	}
	n := binary.LittleEndian.Uint32(b)
	if n > maxDevices {
		return h, fmt.Errorf("%d devices, at most %d", n, maxDevices)
	}
	for i := range n {
		b, err := call(rw, cmdMemory, binary.LittleEndian.AppendUint32(nil, i))
		if err != nil || len(b) != 16 {
			return h, fmt.Errorf("memory of device %d: %d bytes, %v", i, len(b), err)
		}
		h.Devices = append(h.Devices, ring.Device{Free: binary.LittleEndian.Uint64(b), Total: binary.LittleEndian.Uint64(b[8:])})
	}
	return h, nil
}

// call sends one command: a byte, a length, the bytes; and reads a length and that many bytes.
func call(rw io.ReadWriter, cmd byte, body []byte) ([]byte, error) {
	out := binary.LittleEndian.AppendUint64([]byte{cmd}, uint64(len(body)))
	if _, err := rw.Write(append(out, body...)); err != nil {
		return nil, err
	}
	var head [8]byte
	if _, err := io.ReadFull(rw, head[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(head[:])
	if n > maxAnswer {
		return nil, fmt.Errorf("an answer of %d bytes, at most %d", n, maxAnswer)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(rw, b)
	return b, err
}

// Placed refuses a stage whose server would listen outside the loopback and the private networks that were declared.
func Placed(endpoint string, private []netip.Prefix) error {
	at, err := netip.ParseAddrPort(strings.TrimPrefix(endpoint, "tcp://"))
	if err != nil {
		return fmt.Errorf("stage endpoint %q: expected an address and a port, such as 127.0.0.1:50052; a name may come to mean another network", endpoint)
	}
	ip := at.Addr().Unmap()
	if ip.IsLoopback() {
		return nil
	}
	for _, p := range private {
		if p.Contains(ip) {
			return nil
		}
	}
	return fmt.Errorf("stage endpoint %s: an RPC server has no authentication: expected the loopback or one of the declared private networks %v", endpoint, private)
}
