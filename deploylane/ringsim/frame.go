package ringsim

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"github.com/headway-run/headway/deploylane/ring"
)

// maxFrame bounds what is read from a connection, bytes.
const maxFrame = 4 << 20

// The kinds of target that a broker knows beyond those of ring.Target.
const toOuter ring.TargetKind = "outer"

// target is the only part of a frame that a broker reads.
type target struct {
	Kind       ring.TargetKind `json:"kind"`
	Agent      string          `json:"agent"` // of an outer: its ingress
	Node       string          `json:"node,omitempty"`
	Generation uint64          `json:"generation,omitempty"` // of a node; 0: the one that is there
	Channel    string          `json:"channel,omitempty"`    // of an outer
}

// The kinds of frame. The first block goes to agents, the second to nodes, the third to the caller.
const (
	kindInspect = "inspect"
	kindLoad    = "load"
	kindUnload  = "unload"
	kindRelay   = "relay"
	kindFinish  = "finish"

	kindSession = "session"
	kindInfer   = "infer"
	kindCapsule = "capsule"
	kindReceipt = "receipt"
	kindRelease = "release"

	kindQueued    = "queued" // dispatch succeeded: it lies in a queue, and nothing else
	kindFull      = "full"
	kindNoNode    = "unknown-node"
	kindInspected = "inspected"
	kindResult    = "result"
	kindReady     = "ready"
	kindFailed    = "failed"
	kindAccepted  = "accepted"
	kindTooLarge  = "too-large"
	kindFirst     = "first"
	kindOutput    = "output"
	kindClosed    = "closed"
)

// frame is one event on the wire.
type frame struct {
	ID      string `json:"id"` // named after what it is about, so that it is the same in every run
	Kind    string `json:"kind"`
	Content string `json:"content,omitempty"`
	To      target `json:"to"`
	Answer  target `json:"answer"` // the caller
	Body    []byte `json:"body,omitempty"`
}

// work is the body of frames of a session, in both directions.
type work struct {
	Request string           `json:"request,omitempty"`
	Node    string           `json:"node,omitempty"`
	Gen     uint64           `json:"node_generation,omitempty"`
	Load    uint64           `json:"load_generation,omitempty"`
	State   string           `json:"state,omitempty"`
	Prompt  []byte           `json:"prompt,omitempty"`
	Max     int              `json:"max,omitempty"`
	Round   int              `json:"round,omitempty"`
	Mark    uint64           `json:"mark,omitempty"` // what the layers made of it so far
	Text    []byte           `json:"text,omitempty"`
	Stop    ring.Stop        `json:"stop,omitempty"`
	Stages  int              `json:"stages,omitempty"`
	Source  string           `json:"source,omitempty"` // the head
	Result  *ring.Answer     `json:"result,omitempty"`
	Report  *ring.Inspection `json:"report,omitempty"`
}

func pack(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain data of our own types: it cannot fail
	}
	return b
}

func unpack(f frame) (work, error) {
	var w work
	err := json.Unmarshal(f.Body, &w)
	return w, err
}

func writeFrame(w io.Writer, f frame) error {
	b := pack(f)
	_, err := w.Write(append(binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(b)), uint32(len(b))), b...))
	return err
}

func readFrame(r io.Reader) (frame, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > maxFrame {
		return frame{}, fmt.Errorf("a frame of %d bytes, at most %d", n, maxFrame)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return frame{}, err
	}
	var f frame
	if err := json.Unmarshal(b, &f); err != nil {
		return frame{}, fmt.Errorf("a frame that is none: %w", err)
	}
	return f, nil
}
