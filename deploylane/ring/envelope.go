package ring

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
)

// Content types of the lifecycle, and of the adapter's command inside it.
const (
	ContentLoad   = "application/vnd.p4.node.load-v1"
	ContentUnload = "application/vnd.p4.node.unload-v1"
	ContentResult = "application/vnd.p4.node.lifecycle-result-v1"

	AdapterKind          = "llamacpp"
	AdapterContentLoad   = "application/vnd.p4.llamacpp.load-v4+json"
	AdapterContentUnload = "application/vnd.p4.llamacpp.unload-v4+json"
)

// Limits on what is decoded; bytes.
const (
	maxMetadata = 64 << 10
	maxAdapter  = 1 << 20
)

// Envelope is a lifecycle command: neutral metadata, and the adapter's own bytes that no broker and no agent reads.
type Envelope struct {
	Content string // ContentLoad or ContentUnload
	Meta    Metadata
	Body    []byte // opaque; of Meta.AdapterContent
}

// Metadata is the part of a lifecycle command that an agent reads.
type Metadata struct {
	Schema         int    `json:"schema"` // 1
	Node           string `json:"node_id"`
	Generation     uint64 `json:"node_generation"`
	Adapter        string `json:"adapter_kind"`
	AdapterContent string `json:"adapter_content_type"`
	Queue          int    `json:"queue_capacity"`      // events
	Completion     uint64 `json:"completion_capacity"` // bytes of the largest completion
	RetainedSlots  int    `json:"retained_capacity"`   // completions in flight
	Retained       uint64 `json:"retained_bytes"`      // of the agent's store that this node may hold
}

// StageLoad is the adapter's command of a LOAD: one stage of one ring. The numbers that the engine compares with one
// another (Load with Metadata.Generation, Bound with what the server reports) are written from one value by whoever
// builds a command; this type has both because the wire has both.
type StageLoad struct {
	Schema   int      `json:"schema"` // 4
	Ring     string   `json:"ring"`
	Load     uint64   `json:"load_generation"`
	Stage    int      `json:"stage"`  // from 0
	Stages   []Hop    `json:"stages"` // the whole ring, in order
	Model    string   `json:"model"`  // path on the host
	Digest   string   `json:"model_digest"`
	Layers   [2]int   `json:"layers"` // [begin, end)
	KV       [2]int   `json:"kv"`     // [begin, end), the same
	Override []string `json:"tensor_overrides,omitempty"`
	Device   string   `json:"device"`
	Mask     string   `json:"visible_devices,omitempty"`
	Endpoint string   `json:"endpoint"` // of the native server; agent and server share a host
	Batch    int      `json:"n_batch"`
	UBatch   int      `json:"n_ubatch"`
	Context  int      `json:"n_ctx"`
	Parallel int      `json:"n_seq_max"`
	Output   int      `json:"max_output_tokens"`
	Bound    uint64   `json:"max_physical_result_bytes"`
	Needs    []string `json:"required_capabilities,omitempty"`
}

// StageUnload is the adapter's command of an UNLOAD.
type StageUnload struct {
	Schema int    `json:"schema"` // 4
	Ring   string `json:"ring"`
	Load   uint64 `json:"load_generation"`
}

// Encode is the wire form: u32 little-endian length of the metadata, the metadata as JSON, the adapter's bytes.
func (e Envelope) Encode() ([]byte, error) {
	meta, err := json.Marshal(e.Meta)
	if err != nil {
		return nil, fmt.Errorf("encode a lifecycle envelope: %w", err)
	}
	if len(meta) > maxMetadata || len(e.Body) > maxAdapter {
		return nil, fmt.Errorf("a lifecycle envelope of %d + %d bytes: at most %d of metadata and %d of the adapter's", len(meta), len(e.Body), maxMetadata, maxAdapter)
	}
	out := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(meta)+len(e.Body)), uint32(len(meta)))
	return append(append(out, meta...), e.Body...), nil
}

// DecodeEnvelope reads what Encode wrote; unknown fields of the metadata are refused, since a field that is not
// understood may be one that must agree with another.
func DecodeEnvelope(content string, wire []byte) (Envelope, error) {
	bad := func(why string, args ...any) (Envelope, error) {
		return Envelope{}, Foreign{From: "the sender of a lifecycle envelope", Why: fmt.Sprintf(why, args...)}
	}
	if content != ContentLoad && content != ContentUnload {
		return bad("content type %q", content)
	}
	if len(wire) < 4 {
		return bad("%d bytes, expected at least 4", len(wire))
	}
	n := int64(binary.LittleEndian.Uint32(wire))
	if n > maxMetadata || n > int64(len(wire)-4) {
		return bad("metadata of %d bytes in an envelope of %d, at most %d", n, len(wire), maxMetadata)
	}
	e := Envelope{Content: content}
	d := json.NewDecoder(bytes.NewReader(wire[4 : 4+n]))
	d.DisallowUnknownFields()
	if err := d.Decode(&e.Meta); err != nil {
		return bad("metadata: %v", err)
	}
	if d.More() {
		return bad("more than one value of metadata")
	}
	if e.Meta.Schema != 1 {
		return bad("schema %d, expected 1", e.Meta.Schema)
	}
	if e.Body = wire[4+n:]; len(e.Body) > maxAdapter {
		return bad("%d bytes of the adapter's, at most %d", len(e.Body), maxAdapter)
	}
	return e, nil
}
