// Package plan is what people commit: the YAML files at one Git commit, read strictly, turned into jobs with a
// content-addressed identity, checked, ordered, and held against what was observed.
//
// It is pure: no network, no clock, no environment, and no goroutine that outlives a call. Everything it reads comes through [Tree], so a
// commit in a bare repository, a work tree and a test fixture are the same to it. All problems of all files are
// found in one run, each with file, line and column.
package plan

import (
	"errors"
	"time"

	"github.com/headway-run/headway/plan/flops"
)

// Bounds on hostile or mistaken input. A file beyond one is refused before anything is allocated for it.
const (
	MaxFileBytes  = 256 << 10 // one plan file (git.md §4.3)
	MaxConfig     = 64 << 10  // headway.yaml
	MaxDepth      = 32        // nesting of YAML nodes
	MaxMatrix     = 10_000    // jobs that one matrix may make
	MaxJobs       = 100_000   // jobs of one plan
	MaxPlanFiles  = 20_000    // files that the globs of one plan may match
	MaxNameLength = 128       // bytes of a job's or a platform's name
	MaxText       = 16 << 10  // bytes of one value
	MaxKeys       = 256       // keys of one map
	MaxList       = 64        // entries of one list, other than needs and the axes of a matrix
	MaxNeeds      = 1000      // jobs that one job may need
	MaxInputs     = 200_000   // needs of a whole plan, groups expanded
	MaxIdentity   = 64 << 10  // bytes of one job's canonical identity: it travels inside a record
	MaxCanonical  = 256 << 20 // bytes of the canonical JSON of a whole plan
)

// ConfigFile is the name of the configuration at the root of a plan repository.
const ConfigFile = "headway.yaml"

// EntryKind says what a [Tree] entry is. Anything that is not a regular file or a folder is refused where a plan
// or a code folder would read it: never followed, never silently empty.
type EntryKind uint8

const (
	KindFile EntryKind = iota
	KindDir
	KindLink      // symbolic link: its target is never opened
	KindSubmodule // gitlink
)

// Entry is one name in a folder of a [Tree].
type Entry struct {
	Name string
	Kind EntryKind
	Exec bool   // executable bit (identity of code, ignored on plan files)
	Hash string // Git object id (40 hex digits): blob for a file or link, tree for a folder, commit for a submodule
	Size int64  // bytes; -1 when not known without reading
}

// ErrTooLarge is wrapped by [Tree.Read] when a file has more bytes than the caller accepts.
var ErrTooLarge = errors.New("file is too large")

// Tree is the read side of one commit or one folder. Paths are slash-separated and relative to the root ("" is the
// root itself). An absent path answers an error that wraps fs.ErrNotExist; any other error means that the tree
// could not be read, which is never the same as absent.
type Tree interface {
	// Entries lists one folder in Git's order.
	Entries(dir string) ([]Entry, error)
	// Read returns a regular file's bytes. One of more than max bytes is refused before it is read, with an error
	// that wraps ErrTooLarge.
	Read(path string, max int64) ([]byte, error)
}

// Pos is where something was written. Line and Col start at 1; zero means "the whole file".
type Pos struct {
	File string `json:"file"`
	Line int    `json:"line,omitempty"`
	Col  int    `json:"col,omitempty"`
}

// Sort says what changing a field means (design.md §3).
type Sort string

const (
	Identity  Sort = "identity"  // changing it makes other work: the diff shows replace
	Placement Sort = "placement" // an update in place that never disturbs a running attempt
	Metadata  Sort = "metadata"  // labels, owner, notes, suspend
)

// Severity of a [Problem].
type Severity string

const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Problem is one refusal or warning about the files: one clear sentence with where, what was found, what was
// expected and how to mend it.
type Problem struct {
	Pos      Pos      `json:"pos"`
	Severity Severity `json:"severity"`
	Code     string   `json:"code"`               // stable name, for example UnknownField, DuplicateKey, Cycle
	Text     string   `json:"text"`               // what is wrong, with the value found
	Expected string   `json:"expected,omitempty"` // what would be right
	Hint     string   `json:"hint,omitempty"`     // nearest known name or what to do
}

// Config is headway.yaml.
type Config struct {
	Name      string              // name of this plan repository on a shared store; empty: none given
	Store     string              // "embedded", dir:///path, or s3://bucket/prefix?endpoint=…&region=…
	Plans     []string            // globs of plan files, relative to the root
	Platforms map[string]Platform // by configured name
	Defaults  Defaults
	Parallel  map[string]int // works that may run at once, by label ("team=a")
	Guard     Guard
	Retention Retention
	Notify    []Notify
	Lanes     []string // URLs of the stores of deploy lanes that release what lies in Store
}

// Platform is a configured place to run: a runner plus its account, offers and limits.
type Platform struct {
	Name     string
	Pos      Pos
	Runner   string            // name of the plugin: local, sim, …
	Slots    int               // launches at a time; 0: the runner's own default
	GPU      []string          // ids or short names of the cards it offers; empty: none
	Price    Money             // per hour of one launch, where the runner does not say it; zero: not given
	MaxPrice Money             // per hour; zero: no limit
	Capture  time.Duration     // capture window; 0: the family's prior (science.md §4.2)
	At       map[string]Pos    // where each of its keys stands
	Options  map[string]string // everything else, handed to the runner, which refuses what it does not know
}

// Defaults apply to every job that does not say otherwise.
type Defaults struct {
	On       []string
	OnDelete OnDelete
	Limits   Limits
	Suspend  bool
}

// OnDelete says what happens to running work whose job left the plan.
type OnDelete string

const (
	Drain  OnDelete = "drain"  // default: stops after its next acknowledged milestone
	Revoke OnDelete = "revoke" // stops now
	Orphan OnDelete = "orphan" // may finish
)

// Money is an amount in the platform's own unit ("USD", "credits"), never converted.
type Money struct {
	Amount float64
	Unit   string
}

// Limits stop a job at the next milestone when one is crossed. Zero means no limit, except Retries.
type Limits struct {
	Retries  int           // attempts below their share that may be spent; default 5
	Wall     time.Duration // since the first launch
	Paid     Money         // by all launches, in that unit; without a unit: in each by itself
	Price    Money         // per hour
	Parallel int           // works of this job's group that may run at once
}

// GPU is the hardware asked for. The zero value means CPU.
type GPU struct {
	Any   []string // any one of these cards, by short name or id
	Count int      // cards for one worker; default 1 when Any is set
	DType string   // math mode: fp32, tf32, bf16, fp16, fp16_acc16, fp8, int8, fp64
}

// Milestones is how often the program is asked for a snapshot. At most one of the two is set; neither: it is derived.
type Milestones struct {
	Steps int64
	Every time.Duration
}

// Lease holds the placement knobs of the lease. Zero values mean the defaults of witness.
type Lease struct {
	K     float64       // lease length as a multiple of the step time; default 50
	Floor time.Duration // never shorter than this; raised to the store's own floor
}

// Watch describes a program that cannot be changed: a finished file that matches Path is the evidence of progress.
type Watch struct {
	Path     string        // glob relative to the working folder
	Interval time.Duration // usual time between two checkpoints; the lease is derived from it
}

// Score is the number that a backtest must reach.
type Score struct {
	Name    string
	AtLeast float64
	AtMost  float64
	HasMin  bool
	HasMax  bool
}

// Input is one work that this work needs.
type Input struct {
	Job  string // name in this plan
	Work Digest // identity
}

// Digest is the full work digest: sha256 over the canonical JSON of the identity fields, 64 hex digits.
type Digest string

// Short is the form that people see: the first 12 hex digits.
func (d Digest) Short() string {
	if len(d) < 12 {
		return string(d)
	}
	return string(d[:12])
}

// Job is one entry of a plan: a name bound to a work, plus where it may run. The name is not identity. Jobs that are
// like one another may share their maps and slices: they are for reading.
type Job struct {
	Name  string
	Group string // the entry whose matrix made this job; equal to Name otherwise
	Pos   Pos
	Work  Digest

	// Identity.
	Kind       string            // train, backtest, dataset, …
	Code       string            // folder of this repository; only its tree hash is identity
	CodeTree   string            // Git tree hash of Code
	Run        string            // as written, before substitution
	Argv       []string          // Run split into words, ${params.x}, ${seed}, ${replica} filled in; ${needs.x} left for the worker
	Params     map[string]string // canonical scalar text
	Seed       int64
	Replica    int64 // "run it once more": makes other work of the same question
	Inputs     []Input
	Requires   map[string]string // pinned fingerprint fields
	Generation int               // 1 = research
	Parent     Digest
	Deploy     bool              // a backtest that decides about a release; no plan file sets it, nor generation or parent: the deploy lane does
	Env        map[string]string // plain environment for the program; never a secret
	Result     string            // folder the program leaves its result in, relative to its working folder; default: $HEADWAY_RESULT

	// Placement.
	On         []string
	GPU        GPU
	FLOPs      flops.Work // what it costs in FLOPs; used to plan and to judge, not to identify
	Milestones Milestones
	Lease      Lease
	Watch      Watch
	Policy     []Policy
	ExitCodes  ExitCodes
	Limits     Limits
	Priority   int
	Secrets    []string
	Trust      string // any | datacenter | own
	OnDelete   OnDelete
	Metrics    map[string]string // name → higher | lower
	Score      Score

	// Metadata.
	Labels  map[string]string
	Owner   string
	Notes   string
	Suspend bool
}
