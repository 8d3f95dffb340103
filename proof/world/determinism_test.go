package world

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var traces = flag.String("traces", "", "TestDeterminism: leave the traces of the seeds in this file, and do nothing else")

// A seed that does not repeat its run cannot be looked into. The trace holds every request with its body, at its time, and
// every fate.
func TestDeterminism(t *testing.T) {
	dir := scratch(t)
	if *traces != "" {
		leaveTraces(t, dir)
		return
	}
	elsewhere, here := tracesOfAnother(t), []uint64(nil)
	for n := range uint64(deterministic) {
		one, two := Run(t, Config{Seed: n, Scratch: dir, Trail: true}), Run(t, Config{Seed: n, Scratch: dir, Trace: true, Trail: true})
		here = append(here, one.Trace)
		if one.Trace == two.Trace && len(one.Trail) > 10 {
			continue
		}
		t.Errorf("seed %d ran differently the second time", n)
		for i := range min(len(one.Trail), len(two.Trail)) {
			if one.Trail[i] != two.Trail[i] {
				for k := max(i-6, 0); k < min(i+3, len(one.Trail), len(two.Trail)); k++ {
					t.Logf("line %d\n%.600s\n%.600s", k, one.Trail[k], two.Trail[k])
				}
				break
			}
		}
	}
	if diff := cmp.Diff(here, elsewhere); diff != "" {
		t.Errorf("another process ran other worlds (-here +there):\n%s", diff)
	}
}

// deterministic is how many seeds are run three times.
const deterministic = 40

// tracesOfAnother runs the seeds in another process.
func tracesOfAnother(t *testing.T) (out []uint64) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "traces")
	if said, err := exec.Command(self, "-test.run", "^TestDeterminism$", "-traces", file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	raw, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func leaveTraces(t *testing.T, dir string) {
	var out []uint64
	for n := range uint64(deterministic) {
		out = append(out, Run(t, Config{Seed: n, Scratch: dir}).Trace)
	}
	raw, err := json.Marshal(out)
	if err == nil {
		err = os.WriteFile(*traces, raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
