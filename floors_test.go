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
		{"runners/bucket/retry", []string{"runners/bucket"}, nil, "decorator"},
		{"runners/bucket/buckettest", []string{"runners/bucket", "runners/bucket/*"}, []string{"github.com/google/go-cmp", "github.com/anishathalye/porcupine"}, "conformance suite"},
		{"runners/record", nil, nil, "immutable records"},
		{"runners/witness", []string{"runners/bucket", "runners/record"}, nil, "the lease; not plan: the agent links it, and plan links go-cmp"},
		{"runners/audit", []string{"runners/bucket", "runners/record", "runners/witness"}, nil, "reads a bucket, judges it"},
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
		{"reconcile/repo", lower, []string{"github.com/go-git/go-git/v5", "github.com/go-git/go-billy/v5", "github.com/klauspost/compress", "golang.org/x/crypto", "github.com/skeema/knownhosts"}, "Git"},
		{"reconcile", append(slices.Clone(lower), "reconcile/*"), nil, "the loop; never a platform"},
		{"examples", nil, nil, "embeds the examples"},
		{"examples/digits/twin", []string{"runners/goclient"}, nil, "the example's Go program"},
		{"cmd/headway-agent", []string{"runners/agent", "runners/bucket/*", "runners/bucket", "runners/pyclient"}, nil, "the worker's binary"},
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
