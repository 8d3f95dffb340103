package record

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
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
	Deploy     bool              `json:"deploy,omitempty"` // a backtest that decides about a release: only the deploy lane makes one
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
	Protocol   int       `json:"protocol"`
	Work       string    `json:"work"`
	Dispatch   int64     `json:"dispatch"`
	Nonce      string    `json:"nonce"` // of the claimer: settles a lost answer
	Dispatcher string    `json:"dispatcher"`
	Platform   string    `json:"platform"`
	Runner     string    `json:"runner"`
	Job        string    `json:"job"`    // name at the time, for people
	Commit     string    `json:"commit"` // accepted commit that asked for it
	Reason     string    `json:"reason"`
	CaptureS   float64   `json:"capture_s"` // capture window, seconds
	Terms      Terms     `json:"terms"`
	Secrets    []string  `json:"secrets,omitempty"` // names only
	Before     *Before   `json:"before,omitempty"`  // the attempt before, as the claimer saw it; nil: there was none
	Spent      int64     `json:"spent,omitempty"`   // retries that earlier dispatches had spent, as the claimer counted them
	Family     string    `json:"family,omitempty"`  // the job's group: what its speed is compared within
	Mode       string    `json:"mode,omitempty"`    // math mode of the job's gpu.dtype; "none": it names none
	GPUs       int       `json:"gpus,omitempty"`    // cards of one worker
	Judged     []Verdict `json:"judged,omitempty"`  // attempts that no earlier claim has judged
	Launch     string    `json:"launch,omitempty"`  // what the claims of one launch call have in common: their jobs share one machine; empty: it was to start alone
	Price      *Price    `json:"price,omitempty"`   // what it was expected to cost; counts where the receipt does not say
	Paid       *Paid     `json:"paid,omitempty"`    // what the oldest launches of the work have cost; nil: there are few
	Time       string    `json:"time"`              // RFC 3339, for people; takes part in no decision
}

// Before is how far an attempt had come when its place was given to the next dispatch. The lease forgets it at the next
// capture, and an attempt that was killed leaves no account of its own.
type Before struct {
	Attempt  int64  `json:"attempt"`
	Dispatch int64  `json:"dispatch,omitempty"` // that it was captured with; 0: not noted
	Step     int64  `json:"step"`               // of its last renewal
	Kept     int64  `json:"kept,omitempty"`     // step that the resume pointer names; 0: none
	Off      bool   `json:"off,omitempty"`      // its lease was ended without a stop: written off as silent, whatever it says of its end itself, or
	Stopped  string `json:"stopped,omitempty"`  // its lease was stopped for a limit that was crossed: the sentence
	Moved    bool   `json:"moved,omitempty"`    // so that its work goes on on a better rung of its ladder
	State    string `json:"state,omitempty"`    // of its lease: yielded or revoked; this and what follows is missing in claims of older versions
	Reason   string `json:"reason,omitempty"`   // why, as the lease had it; hostile text
	At       string `json:"at,omitempty"`       // the store's stamp of that lease, RFC 3339 with its fraction; tells people, decides nothing
}

// Terms are the placement knobs that a worker obeys; they may differ from one dispatch to the next.
type Terms struct {
	MilestoneSteps int64    `json:"milestone_steps,omitempty"`
	MilestoneS     float64  `json:"milestone_s,omitempty"`
	LeaseK         float64  `json:"lease_k"`
	LeaseFloorS    float64  `json:"lease_floor_s"`
	WarmS          float64  `json:"warm_s,omitempty"`     // capture to the first steady step takes this long at most; 0: not known
	WatchPath      string   `json:"watch_path,omitempty"` // watch mode: glob of finished checkpoint files
	WatchIntervalS float64  `json:"watch_interval_s,omitempty"`
	FLOPsPerStep   float64  `json:"flops_per_step,omitempty"`
	Steps          int64    `json:"steps,omitempty"`       // steps of the whole run, when stated
	GraceS         float64  `json:"grace_s"`               // SIGTERM to SIGKILL of the program
	Policies       []Policy `json:"policies,omitempty"`    // what the worker looks for in the program's output
	RetryCodes     []int    `json:"retry_codes,omitempty"` // exit codes of the program that are the machine's doing: class retryable

	MilestoneAssumed bool `json:"milestone_assumed,omitempty"` // nobody states MilestoneS, and no snapshot of the job was measured yet
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
	Price    *Price          `json:"price,omitempty"`  // what the platform charges for the launch; nil: it did not say
	// Jobs is how many jobs the launch call carried, this one included; 0: this one alone. They share one machine: Price is
	// the whole machine's, and it is paid once, from the launch until the last of them is over. Whoever adds up the costs
	// of each job counts Price/Jobs or Price×Share for it, or it is counted Jobs times. The others are those whose claims have the same Launch.
	Jobs int `json:"jobs,omitempty"`
	// Share is which part of the launch's price is this job's, where they compute on unequal numbers of cards; 0: an equal part.
	Share    float64 `json:"share,omitempty"`
	Outlives bool    `json:"outlives,omitempty"` // it is paid for until it is released, also once its worker has left
	Time     string  `json:"time"`
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

// Refusal is dispatch/<n>.refused.json: why a worker left before it took the lease, since the machine is not what the work is
// pinned to. Created if absent by the worker, when it can.
type Refusal struct {
	Protocol    int               `json:"protocol"`
	Work        string            `json:"work"`
	Dispatch    int64             `json:"dispatch"`
	Text        string            `json:"text"`        // each field that differs, with both values; hostile text
	Fingerprint map[string]string `json:"fingerprint"` // what was found
	Time        string            `json:"time"`
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
	Text     string  `json:"text,omitempty"`   // one sentence
	Error    string  `json:"error,omitempty"`  // the program's own last error line: equal twice at one step ends the job
	RanS     float64 `json:"ran_s"`            // seconds from capture to end, worker's monotonic clock
	Sums     *Sums   `json:"sums,omitempty"`   // nil: of an older worker
	Policy   *Match  `json:"policy,omitempty"` // the first line of output that a policy of the job matched
	Time     string  `json:"time"`
}

// Policy is what a job says about a line of its output: a regular expression (RE2), and what follows when an attempt whose
// output had such a line fails.
type Policy struct {
	Log  string `json:"log"`
	Then string `json:"then"` // stop: the job has failed, no retry; exclude: not on this platform again
}

// Match says which policy a line matched.
type Match struct {
	Policy
	Line string `json:"line"` // bounded, hostile text
}

// What a Policy may ask for.
const (
	ThenStop    = "stop"
	ThenExclude = "exclude"
)

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
	Sums      *Sums    `json:"sums,omitempty"`   // of the attempt until this snapshot; nil: of an older worker
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
	if err := json.Unmarshal(b, v); err != nil { // which refuses bytes after the value, too
		return fmt.Errorf("decode record: %w", err)
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
