package agent

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/headway-run/headway/deploylane/attest"
	"github.com/headway-run/headway/runners/agent/fingerprint"
	"github.com/headway-run/headway/runners/record"
)

// A pinned probe that comes out otherwise is refused before the lease, naming both hashes.
func TestAnotherProbeIsRefusedBeforeTheLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	other := "v1 sha256:" + strings.Repeat("0", 64)
	w.spec.Requires = map[string]string{fingerprint.Probe: other}
	p := w.run(1, CodeRefused)
	for _, hash := range []string{other, fingerprint.Compute()} {
		if !strings.Contains(p.out.String(), hash) {
			t.Errorf("the refusal does not name %s:\n%s", hash, p.out.String())
		}
	}
	if w.witness().Record.Rev != 0 {
		t.Errorf("the witness was touched: %+v", w.witness().Record)
	}
}

// What a machine is measured to be is what it is held against: a work that is pinned to all of it runs there.
func TestAWorkPinnedToThisMachineRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.spec.Requires = fingerprint.Measure(t.Context())
	delete(w.spec.Requires, fingerprint.Memory)
	w.run(1, CodeFinished)
}

var foundHash = regexp.MustCompile(`found \\?"(sha256:[0-9a-f]{64}) `)

// The work's own probe runs before the program, in its folder and environment. A refusal tells its hash; with that the work runs.
func TestTheWorksOwnProbe(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "probe.sh")
	if err := os.WriteFile(script, []byte("echo ready >&2; echo $TOTAL; echo $HEADWAY_SEED\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	probed := func(hash string, code int) *agentProc {
		w := newWorld(t, nil)
		w.spec.Requires = map[string]string{fingerprint.ProbeRun: hash + " /bin/sh " + script}
		p := w.run(1, code)
		if e := w.end(1); code == CodeRefused && (e.Class != "refused" || e.Step != 0) {
			t.Errorf("the end of a refused attempt: %+v", e)
		}
		return p
	}
	said := foundHash.FindStringSubmatch(probed("unknown", CodeRefused).out.String())
	if said == nil || said[1] != "sha256:"+record.Hash([]byte("100\n7\n")) {
		t.Fatalf("found %q", said)
	}
	probed(said[1], CodeFinished)
	wrong := "sha256:" + strings.Repeat("0", 64)
	if out := probed(wrong, CodeRefused).out.String(); !strings.Contains(out, wrong) || !strings.Contains(out, said[1]) {
		t.Errorf("the refusal does not name both hashes:\n%s", out)
	}
}

// A probe that cannot be believed is refused by its cause, and leaves nothing behind.
func TestAProbeThatFails(t *testing.T) {
	t.Parallel()
	hash := "sha256:" + strings.Repeat("0", 64)
	for want, script := range map[string]string{
		"ended with exit code 3: \\\"no card here\\\"": "echo; echo no card here >&2; exit 3",
		"printed more than 1048576 bytes":              "exec cat /dev/zero",
		"expected a hash and a command":                "",
	} {
		t.Run(want[:20], func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			path := filepath.Join(t.TempDir(), "probe.sh")
			if err := os.WriteFile(path, []byte(script), 0o644); err != nil {
				t.Fatal(err)
			}
			w.spec.Requires = map[string]string{fingerprint.ProbeRun: hash + " /bin/sh " + path}
			if script == "" {
				w.spec.Requires[fingerprint.ProbeRun] = "/bin/sh " + path
			}
			p := w.run(1, CodeRefused)
			if !strings.Contains(p.out.String(), want) {
				t.Errorf("said:\n%s", p.out.String())
			}
			if left, _ := filepath.Glob(filepath.Join(w.scratch, "*")); len(left) > 0 {
				t.Errorf("left on disk: %v", left)
			}
		})
	}
}

// What the word facts prints is what a plan's requires takes, and what the agent then finds.
func TestFactsAreWhatRequiresTakes(t *testing.T) {
	t.Parallel()
	var out, trouble strings.Builder
	environ := []string{"OMP_NUM_THREADS=2"}
	if code := Main(t.Context(), []string{"facts"}, environ, &out, &trouble, Deps{}); code != 0 || trouble.String() != "" {
		t.Fatalf("%d %s", code, trouble.String())
	}
	c := Config{Environ: environ}
	spec := record.Spec{Requires: map[string]string{}}
	for line := range strings.SplitSeq(out.String(), "\n") {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		v, err := strconv.Unquote(value)
		if err != nil {
			t.Errorf("%s: %v", line, err)
		}
		spec.Requires[name] = v
	}
	if len(spec.Requires) < 8 || spec.Requires["probe"] != fingerprint.Compute() || !strings.HasPrefix(spec.Requires["switches"], "OMP_NUM_THREADS sha256:") {
		t.Errorf("facts:\n%s", out.String())
	}
	if _, err := c.measure(t.Context(), &spec); err != nil {
		t.Error(err)
	}
	spec.Env = map[string]string{"OMP_NUM_THREADS": "4"}
	if _, err := c.measure(t.Context(), &spec); err == nil || !strings.Contains(err.Error(), "switches") {
		t.Errorf("another switch by the work's own environment: %v", err)
	}
}

// Two runs of one pinned work on one machine leave the same bytes, and what that shows is worded as what it is.
func TestTwoRunsOfOnePinnedWorkAreTwins(t *testing.T) {
	t.Parallel()
	pins := fingerprint.Measure(t.Context())
	delete(pins, fingerprint.Memory)
	delete(pins, fingerprint.Kernel)
	marks := t.TempDir()
	var twins []attest.Twin
	var works []string
	for range 2 {
		w := newWorld(t, map[string]string{"MARKS": marks})
		w.spec.Requires = pins
		w.run(1, CodeFinished)
		f := w.witness().Record.Finished
		var open record.Open
		var m record.Manifest
		for key, into := range map[string]any{record.OpenKey(w.work, f.Attempt): &open, f.Manifest: &m} {
			if err := record.Decode([]byte(w.text(key)), record.MaxManifest, into); err != nil {
				t.Fatal(err)
			}
		}
		works = append(works, w.work)
		twins = append(twins, attest.Twin{Name: w.url, Fingerprint: open.Fingerprint, Files: m.Files})
	}
	g := attest.CompareRuns(twins[0], twins[1])
	if works[0] != works[1] || !g.Identical || (g.Text == attest.Promise) != (g.Level == attest.Pinned) || g.Level == attest.Apart {
		t.Errorf("works %v: %+v", works, g)
	}
	if twins[0].Fingerprint[fingerprint.GPUs] == "0" && g.Level != attest.Pinned {
		t.Errorf("a machine without cards, of which something is not known: %v", g.Facts)
	}
}
