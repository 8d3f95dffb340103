// Package headway holds the tests of the whole house: who may import whom, the rules every package keeps, what the
// worker's binary may carry, and the README. There is no code of the product here.
package headway

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/headway-run/headway"

// room says where a folder stands in the house: what it may import of ours (folders, a trailing /* means anything
// below) and which third-party modules. A folder that is missing from the table is a failure of its own, so nobody
// adds a room without saying which floor it is on.
type room struct {
	folder string
	ours   []string
	third  []string
	why    string
}

func house() []room {
	lower := []string{"plan", "plan/flops", "runners/bucket", "runners/record", "runners/witness", "runners"}
	cloud := []string{"github.com/aws/aws-sdk-go-v2", "github.com/aws/smithy-go"}
	return []room{
		{"plan/flops", nil, nil, "arithmetic alone"},
		{"plan", []string{"plan/flops"}, []string{"gopkg.in/yaml.v3", "github.com/google/go-cmp"}, "yaml in load.go, go-cmp in diff.go; see TestOneFileEach"},
		{"runners/bucket", nil, nil, "the port"},
		{"runners/bucket/mem", []string{"runners/bucket"}, nil, "adapter"},
		{"runners/bucket/dir", []string{"runners/bucket"}, []string{"golang.org/x/sys"}, "adapter; flock and link"},
		{"runners/bucket/s3", []string{"runners/bucket"}, cloud, "adapter; the client package only, never the SDK's config"},
		{"runners/bucket/open", []string{"runners/bucket", "runners/bucket/dir", "runners/bucket/s3"}, cloud, "store URL to adapter"},
		{"runners/bucket/probe", []string{"runners/bucket", "runners/bucket/counting"}, nil, "works through the port"},
		{"runners/bucket/faulty", []string{"runners/bucket"}, nil, "decorator"},
		{"runners/bucket/counting", []string{"runners/bucket"}, nil, "decorator"},
		{"runners/bucket/readonly", []string{"runners/bucket"}, nil, "decorator"},
		{"runners/bucket/buckettest", []string{"runners/bucket", "runners/bucket/*"}, []string{"github.com/google/go-cmp", "github.com/anishathalye/porcupine"}, "conformance suite"},
		{"runners/record", nil, nil, "immutable records"},
		{"runners/witness", []string{"runners/bucket", "runners/record"}, nil, "the lease; not plan: the agent links it, and plan links go-cmp"},
		{"runners/audit", []string{"runners/bucket", "runners/record", "runners/witness"}, nil, "reads a bucket, judges it"},
		{"runners/gc", []string{"runners/bucket", "runners/record", "runners/witness"}, nil, "deletes what nothing can name; not plan: retention comes as numbers"},
		{"runners", []string{"plan", "runners/bucket", "runners/record", "runners/witness"}, nil, "the contract"},
		{"runners/agent", []string{"runners/agent/*", "runners/bucket", "runners/record", "runners/witness"}, nil, "travels to every machine"},
		{"runners/agent/guard", nil, nil, "the program's parent, apart from the rest: it survives the agent"},
		{"runners/agent/fingerprint", nil, nil, "measures"},
		{"runners/agent/files", []string{"runners/record"}, nil, "what may be a file of a snapshot"},
		{"runners/agent/fetch", []string{"runners/agent/files", "runners/bucket", "runners/record"}, []string{"github.com/klauspost/compress"}, "downloads and verifies; never writes the store"},
		{"runners/agent/courier", []string{"runners/agent/files", "runners/bucket", "runners/record"}, nil, "uploads; never sees a lease"},
		{"runners/agent/journal", []string{"runners/bucket", "runners/record"}, nil, "log and event segments"},
		{"runners/goclient", nil, nil, "what a Go training loop imports"},
		{"runners/pyclient", nil, nil, "embeds the Python package"},
		{"runners/process", lower, []string{"golang.org/x/sys"}, "family"},
		{"runners/local", append(slices.Clone(lower), "runners/process"), nil, "platform"},
		{"runners/sim", lower, nil, "platform"},
		{"runners/runnertest", lower, []string{"github.com/google/go-cmp"}, "conformance suite"},
		{"reconcile/pack", nil, nil, "packing and ranks; arithmetic alone"},
		{"reconcile/repo", lower, []string{"github.com/go-git/go-git/v5", "github.com/go-git/go-billy/v5", "github.com/klauspost/compress", "golang.org/x/crypto", "github.com/skeema/knownhosts"}, "Git"},
		{"reconcile/signers", nil, []string{"github.com/hiddeco/sshsig", "github.com/ProtonMail/go-crypto", "golang.org/x/crypto"}, "who signed, and may they; pure"},
		{"reconcile/operate", lower, nil, "what a person asks of works, many at once"},
		{"reconcile/timeline", lower, nil, "a job's past, read out of its immutable records"},
		{"reconcile/forge", nil, nil, "speaks with GitHub, GitLab and Gitea; the standard library alone"},
		{"reconcile/notify", lower, nil, "which events are told, and how they get there"},
		{"reconcile/meter", lower, []string{"github.com/VictoriaMetrics/metrics"}, "what a dispatcher counts, as a page of metrics"},
		{"reconcile/goodput", lower, nil, "what paid time becomes; pure"},
		{"reconcile/patience", []string{"runners/record"}, []string{"gonum.org/v1/gonum"}, "how long before a silence is a death; pure"},
		{"reconcile/ladder", lower, nil, "chooses a platform; pure"},
		{"reconcile/spend", nil, nil, "arithmetic of costs and limits alone"},
		{"reconcile", append(slices.Clone(lower), "reconcile/*"), nil, "the loop; never a platform"},
		{"deploylane", append(slices.Clone(lower), "deploylane/access", "deploylane/attest", "deploylane/preflight", "deploylane/ring", "deploylane/spread", "deploylane/tag"), nil, "from a signed tag to a release; never reconcile: Git is a port"},
		{"deploylane/tag", []string{"plan", "runners/bucket", "runners/record"}, nil, "verdicts on signed tags and their ledger; Git, keys and stores are ports"},
		{"deploylane/preflight", []string{"plan"}, nil, "checks of a target before anything is sent to it; knows no engine"},
		{"deploylane/ring", append(slices.Clone(lower), "deploylane/preflight"), nil, "the port to serving engines, a ring's guards, loader and recovery; never an engine"},
		{"deploylane/llamarpc", []string{"deploylane/ring"}, nil, "the port over llama.cpp's own processes"},
		{"deploylane/ringsim", []string{"deploylane/ring"}, nil, "a serving ring to release onto, in a test or a drill; of ours it knows the port alone"},
		{"deploylane/ringsim/standalone", []string{"deploylane/ringsim"}, nil, "one agent of the simulator as a process, for network namespaces"},
		{"deploylane/spread", nil, []string{"gonum.org/v1/gonum"}, "is a retrained model one of its configuration's; pure"},
		{"deploylane/access", []string{"runners/record"}, nil, "rights in the stores as policies; pure, the stores enforce them"},
		{"deploylane/attest", []string{"deploylane/spread", "runners/record"}, []string{"github.com/secure-systems-lab/go-securesystemslib", "golang.org/x/crypto"}, "what a release carries, signed and checked; pure but for reading a folder"},
		{"proof/history", []string{"runners/bucket", "runners/record", "runners/witness"}, nil, "what happened to a store; nothing of the product knows it"},
		{"proof/judge", []string{"proof/history", "runners/bucket", "runners/record", "runners/witness"}, nil, "the oracle: records and decoders of the product, none of its decisions"},
		{"proof/model", []string{"proof/history", "runners/bucket", "runners/record", "runners/witness"}, nil, "the protocol as a state machine; records and decoders of the product, none of its decisions"},
		{"proof/mutant", []string{"proof/history", "runners/bucket", "runners/record", "runners/witness"}, nil, "stores with a protection left out"},
		{"proof/fleet", append(slices.Clone(lower), "runners/agent", "runners/goclient", "runners/sim"), nil, "real agents on the simulated platform"},
		{"proof/flap", []string{"plan", "reconcile", "runners/bucket", "runners/witness"}, nil, "policies side by side over one trace; ours is the product's own code"},
		{"proof/scale", []string{"plan", "runners/bucket", "runners/bucket/open", "runners/record", "runners/witness"}, nil, "holds leases and measures; the dispatcher is a binary to it"},
		{"proof/chaos/proxy", []string{"proof/history", "runners/bucket"}, nil, "HTTP that fails on command, and writes down what the store took"},
		{"proof/chaos/kin", nil, nil, "processes, by the kernel's list alone"},
		{"proof/chaos/server", []string{"proof/chaos/kin"}, nil, "the S3 server as a process"},
		{"proof/chaos/schedule", []string{"proof/chaos/proxy"}, nil, "what befalls a round; pure"},
		{"proof/chaos/account", []string{"proof/history", "runners/record", "runners/witness"}, nil, "adds records up; pure"},
		{"proof/chaos/round", []string{"proof/chaos/*", "proof/history", "proof/judge", "examples", "runners/bucket/probe", "runners/record", "runners/witness"}, nil, "one round of real processes"},
		{"proof/chaos", []string{"proof/chaos/*"}, nil, "the harness's command; the product is a binary to it"},
		{"proof/short", []string{"plan", "plan/flops", "reconcile", "reconcile/pack", "runners", "runners/bucket", "runners/bucket/mem", "runners/bucket/open", "runners/sim"}, nil, "the real reconciler over many short jobs"},
		{"proof/quota", []string{"reconcile/ladder", "runners/record"}, nil, "a month of free hours, side by side; the product's choice and nothing else of it"},
		{"proof/gitbench", []string{"plan", "reconcile", "reconcile/repo", "runners", "runners/bucket/mem"}, nil, "a large repository beside git itself; the dispatcher is a binary to it"},
		{"proof/world", []string{"plan", "reconcile", "reconcile/repo", "runners", "runners/*", "proof/history", "proof/judge", "proof/model", "proof/fleet", "proof/mutant"}, nil, "the whole house in one bubble; may import testing"},
		{"examples", nil, nil, "embeds the examples"},
		{"examples/digits/twin", []string{"runners/goclient"}, nil, "the example's Go program"},
		{"cmd/headway-agent", []string{"runners/agent", "runners/bucket/*", "runners/bucket", "runners/pyclient"}, nil, "the worker's binary"},
		{"cmd/headway-lane", []string{"deploylane", "deploylane/*", "plan", "reconcile/repo", "reconcile/signers", "runners", "runners/*"}, []string{"github.com/spf13/cobra", "golang.org/x/crypto"}, "the lane's binary: of the loop it has Git and signatures, and nothing that follows a plan"},
		{"cmd/headway", []string{"*"}, []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/go-git/go-git/v5", "github.com/lmittmann/tint", "golang.org/x/term", "golang.org/x/sys", "github.com/aws/aws-sdk-go-v2", "github.com/aws/smithy-go"}, "knows all"},
	}
}

func TestFloors(t *testing.T) {
	table := map[string]room{}
	for _, r := range house() {
		table[r.folder] = r
	}
	seen := map[string]bool{}
	for _, file := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		folder := filepath.ToSlash(filepath.Dir(file))
		r, ok := table[folder]
		if !ok {
			if !seen[folder] {
				t.Errorf("%s: this folder is not in the table of floors: add it with its floor and its reason", folder)
			}
			seen[folder] = true
			continue
		}
		seen[folder] = true
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, file, nil, parser.ImportsOnly)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, imp := range f.Imports {
			path, _ := strconv.Unquote(imp.Path.Value)
			if why := refuse(r, path); why != "" {
				t.Errorf("%s: %s", fset.Position(imp.Pos()), why)
			}
		}
	}
	for folder := range table {
		if !seen[folder] {
			t.Errorf("%s: in the table of floors, but there is no such package", folder)
		}
	}
}

// refuse says why room r may not import path; empty means that it may.
func refuse(r room, path string) string {
	if ours, is := strings.CutPrefix(path, module+"/"); is {
		for _, allowed := range r.ours {
			if below, all := strings.CutSuffix(allowed, "*"); ours == allowed || all && strings.HasPrefix(ours, below) {
				return ""
			}
		}
		return fmt.Sprintf("%s (%s) may not import %s", r.folder, r.why, ours)
	}
	if first, _, _ := strings.Cut(path, "/"); !strings.Contains(first, ".") {
		return "" // standard library
	}
	for _, allowed := range r.third {
		if path == allowed || strings.HasPrefix(path, allowed+"/") {
			return ""
		}
	}
	return fmt.Sprintf("%s (%s) may not import the module of %s", r.folder, r.why, path)
}

// TestOneFileEach keeps two libraries at arm's length: the YAML parser is a parser only, and go-cmp (which says of
// itself that it is for tests) is reached by the diff alone.
func TestOneFileEach(t *testing.T) {
	only := map[string]string{
		"gopkg.in/yaml.v3":         "plan/load.go",
		"github.com/google/go-cmp": "plan/diff.go",
	}
	for _, file := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") || strings.HasSuffix(filepath.Dir(file), "test") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range f.Imports {
			path, _ := strconv.Unquote(imp.Path.Value)
			for lib, home := range only {
				if (path == lib || strings.HasPrefix(path, lib+"/")) && filepath.ToSlash(file) != home {
					t.Errorf("%s imports %s; only %s may", file, path, home)
				}
			}
		}
	}
}

// goFiles lists the Go files of this module, without those of nested modules.
func goFiles(t *testing.T) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() && path != ".":
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
				return filepath.SkipDir
			}
		case strings.HasSuffix(path, ".go") && filepath.Dir(path) != ".":
			out = append(out, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 20 {
		t.Fatalf("found only %d Go files: the walk is broken", len(out))
	}
	return out
}
