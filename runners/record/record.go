package record

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
)

// Protocol is the version written into every record. A reader that meets a higher one is read-only for that work.
const Protocol = 1

// Bounds on what a reader accepts.
const (
	MaxRecord   = 256 << 10 // any record but a manifest
	MaxManifest = 16 << 20
	MaxFiles    = 100_000 // files in one manifest
)

// Spec is work/<work>/spec.json: what a worker must do, written once before the first dispatch. Its identity part is
// what the work digest was computed over; the placement part is what was true when the work was first dispatched
// (what is true now travels in the Claim).
type Spec struct {
	Protocol   int               `json:"protocol"`
	Work       string            `json:"work"`
	Kind       string            `json:"kind"`
	CodeTree   string            `json:"code_tree,omitempty"` // bundle code/<tree>.tar.zst; empty: no code
	Argv       []string          `json:"argv"`                // ${needs.<job>} stands for the folder of that input's result
	Params     map[string]string `json:"params,omitempty"`
	Seed       int64             `json:"seed"`
	Replica    int64             `json:"replica,omitempty"`
	Inputs     []Input           `json:"inputs,omitempty"`
	Requires   map[string]string `json:"requires,omitempty"` // pinned fingerprint: the worker refuses another machine
	Generation int               `json:"generation"`
	Parent     string            `json:"parent,omitempty"`
	Env        map[string]string `json:"env,omitempty"`
	Result     string            `json:"result,omitempty"`  // folder, relative to the working folder; default $HEADWAY_RESULT
	Metrics    map[string]string `json:"metrics,omitempty"` // name → higher|lower: result/metrics.json must have them
	Identity   json.RawMessage   `json:"identity"`          // the canonical JSON that Work is the sha256 of
}

// Input is one finished work whose result this one reads.
type Input struct {
	Job  string `json:"job"`
	Work string `json:"work"`
}

// Claim is work/<work>/dispatch/<n>.json: one decision to launch, created if absent before the call goes out.
type Claim struct {
	Protocol   int      `json:"protocol"`
	Work       string   `json:"work"`
	Dispatch   int64    `json:"dispatch"`
	Nonce      string   `json:"nonce"` // of the claimer: settles a lost answer
	Dispatcher string   `json:"dispatcher"`
	Platform   string   `json:"platform"`
	Runner     string   `json:"runner"`
	Job        string   `json:"job"`    // name at the time, for people
	Commit     string   `json:"commit"` // accepted commit that asked for it
	Reason     string   `json:"reason"`
	CaptureS   float64  `json:"capture_s"` // capture window, seconds
	Terms      Terms    `json:"terms"`
	Secrets    []string `json:"secrets,omitempty"` // names only
	Before     *Before  `json:"before,omitempty"`  // the attempt before, as the claimer saw it; nil: there was none
	Spent      int64    `json:"spent,omitempty"`   // retries that earlier dispatches had spent, as the claimer counted them
	Time       string   `json:"time"`              // RFC 3339, for people; takes part in no decision
}

// Before is how far an attempt had come when its place was given to the next dispatch. The lease forgets it at the next
// capture, and an attempt that was killed leaves no account of its own.
type Before struct {
	Attempt  int64 `json:"attempt"`
	Dispatch int64 `json:"dispatch,omitempty"` // that it was captured with; 0: not noted
	Step     int64 `json:"step"`               // of its last renewal
	Kept     int64 `json:"kept,omitempty"`     // step that the resume pointer names; 0: none
	Off      bool  `json:"off,omitempty"`      // its lease was written off as silent, whatever it says of its end itself
}

// Terms are the placement knobs that a worker obeys; they may differ from one dispatch to the next.
type Terms struct {
	MilestoneSteps int64   `json:"milestone_steps,omitempty"`
	MilestoneS     float64 `json:"milestone_s,omitempty"`
	LeaseK         float64 `json:"lease_k"`
	LeaseFloorS    float64 `json:"lease_floor_s"`
	WatchPath      string  `json:"watch_path,omitempty"` // watch mode: glob of finished checkpoint files
	WatchIntervalS float64 `json:"watch_interval_s,omitempty"`
	FLOPsPerStep   float64 `json:"flops_per_step,omitempty"`
	Steps          int64   `json:"steps,omitempty"` // steps of the whole run, when stated
	GraceS         float64 `json:"grace_s"`         // SIGTERM to SIGKILL of the program
}

// Receipt is the platform's answer to a launch, or why there is none. Created if absent by the claimer.
type Receipt struct {
	Protocol int             `json:"protocol"`
	Work     string          `json:"work"`
	Dispatch int64           `json:"dispatch"`
	Nonce    string          `json:"nonce"` // the claim's
	OK       bool            `json:"ok"`
	Class    string          `json:"class,omitempty"` // failure class when not OK
	Text     string          `json:"text,omitempty"`
	Handle   json.RawMessage `json:"handle,omitempty"` // what the runner needs to find it again
	Time     string          `json:"time"`
}

// Release is one answer of a platform to "is this dispatch over?". Answers are kept only when they say something new.
type Release struct {
	Protocol   int    `json:"protocol"`
	Work       string `json:"work"`
	Dispatch   int64  `json:"dispatch"`
	Nonce      string `json:"nonce"`      // of the asker: settles a lost answer
	Settlement string `json:"settlement"` // pending, bounded, closed
	Until      string `json:"until,omitempty"`
	Text       string `json:"text,omitempty"`
	Time       string `json:"time"`
}

// Open is attempt/<n>/open.json: reserves the prefix and says where the attempt runs.
type Open struct {
	Protocol    int               `json:"protocol"`
	Work        string            `json:"work"`
	Attempt     int64             `json:"attempt"`
	Holder      string            `json:"holder"`
	Dispatch    int64             `json:"dispatch"`
	Platform    string            `json:"platform"`
	Fingerprint map[string]string `json:"fingerprint"`
	Resume      *Pointer          `json:"resume,omitempty"` // what it starts from
	Time        string            `json:"time"`
}

// End is attempt/<n>/end.json: how the attempt ended by its own account.
type End struct {
	Protocol int     `json:"protocol"`
	Work     string  `json:"work"`
	Attempt  int64   `json:"attempt"`
	Class    string  `json:"class"` // finished, yielded, deposed, user_code, no_result, disk_full, …
	ExitCode int     `json:"exit_code"`
	Step     int64   `json:"step"`
	Text     string  `json:"text,omitempty"`  // one sentence
	Error    string  `json:"error,omitempty"` // the program's own last error line: equal twice at one step ends the job
	RanS     float64 `json:"ran_s"`           // seconds from capture to end, worker's monotonic clock
	Time     string  `json:"time"`
}

// Pointer names a complete snapshot: the manifest's key and the sha256 of the manifest's bytes.
type Pointer struct {
	Attempt   int64  `json:"attempt"`
	Milestone int64  `json:"milestone"`
	Step      int64  `json:"step"`
	Manifest  string `json:"manifest"`
	SHA256    string `json:"sha256"`
}

// Manifest lists the files of a snapshot or a result; it is uploaded last. Paths are relative, clean, and use "/".
type Manifest struct {
	Protocol  int      `json:"protocol"`
	Work      string   `json:"work"`
	Attempt   int64    `json:"attempt"`
	Milestone int64    `json:"milestone,omitempty"` // 0 for a result
	Step      int64    `json:"step"`
	Parent    *Pointer `json:"parent,omitempty"` // the pointer that this snapshot grew from
	Files     []File   `json:"files"`            // sorted by path
}

// File is one file of a manifest; its key is the manifest's folder plus Path.
type File struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	Exec   bool   `json:"exec,omitempty"`
}

// Encode returns a record's bytes: JSON, indented for people who look into the bucket, with a final newline. Text is
// not escaped for HTML: Spec.Identity must come back as the bytes that were hashed, but for white space.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	return b.Bytes(), nil
}

// Decode reads one record of at most max bytes, and nothing behind it. Unknown fields are ignored (a newer writer of
// the same protocol may add some); a protocol above ours is refused by the caller that sees the Protocol field.
func Decode(b []byte, max int, v any) error {
	if len(b) > max {
		return fmt.Errorf("record of %d bytes, at most %d are accepted", len(b), max)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("decode record: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("decode record: bytes after the end of the JSON value")
	}
	return nil
}

// Hash is the lower-case hex sha256 of b.
func Hash(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// Nonce returns 32 random hex digits.
func Nonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}
