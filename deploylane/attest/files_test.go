package attest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/runners/record"
)

func TestCheckFiles(t *testing.T) {
	s := release(t)
	lay := func(t *testing.T) string {
		dir := t.TempDir()
		for name, text := range map[string]string{"model.safetensors": "model", "config/labels.json": "labels"} {
			if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	if err := CheckFiles(s, lay(t)); err != nil {
		t.Errorf("the very files: %v", err)
	}
	outside := filepath.Join(t.TempDir(), "model")
	if err := os.WriteFile(outside, []byte("model"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		do   func(dir string) error
		want FilesDiffer
	}{
		"swapped": {func(d string) error {
			return os.WriteFile(filepath.Join(d, "model.safetensors"), []byte("Model"), 0o644)
		}, FilesDiffer{Changed: []string{"model.safetensors"}}},
		"lost": {func(d string) error { return os.Remove(filepath.Join(d, "model.safetensors")) }, FilesDiffer{Missing: []string{"model.safetensors"}}},
		"more": {func(d string) error { return os.WriteFile(filepath.Join(d, "config/x.pkl"), nil, 0o644) }, FilesDiffer{Extra: []string{"config/x.pkl"}}},
		"a link to the very bytes": {func(d string) error {
			return errors.Join(os.Remove(filepath.Join(d, "model.safetensors")), os.Symlink(outside, filepath.Join(d, "model.safetensors")))
		}, FilesDiffer{Missing: []string{"model.safetensors"}, Odd: []string{"model.safetensors"}}},
		"a linked folder": {func(d string) error {
			return errors.Join(os.RemoveAll(filepath.Join(d, "config")), os.Symlink(filepath.Dir(outside), filepath.Join(d, "config")))
		}, FilesDiffer{Missing: []string{"config/labels.json"}, Odd: []string{"config"}}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := lay(t)
			if err := c.do(dir); err != nil {
				t.Fatal(err)
			}
			e, ok := errors.AsType[*FilesDiffer](CheckFiles(s, dir))
			if !ok {
				t.Fatal("not found")
			}
			if d := cmp.Diff(c.want, *e); d != "" {
				t.Error(d)
			}
		})
	}
	if err := CheckFiles(s, filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no folder, no error")
	}
}

func cpuBox() map[string]string {
	return map[string]string{"gpus": "0", "os": "linux", "arch": "amd64", "python": "3.12.3", "python_build": "main, GCC 13", "packages": "sha256:aa", "switches": "none",
		"probe": "sha256:bb", "libc": "glibc 2.39", "cpu": "EPYC", "cpu_flags": "sha256:cc", "cores": "2", "memory_mib": "8000", "container": "no", "kernel": "6.8"}
}

func gpuBox() map[string]string {
	m := cpuBox()
	for k, v := range map[string]string{"gpus": "1", "gpu": "NVIDIA H100", "gpu_pci": "0x233010DE", "gpu_mem_mib": "81559", "gpu_mig": "Disabled", "capability": "9.0", "driver": "550.54", "cuda": "12.4"} {
		m[k] = v
	}
	return m
}

func with(m map[string]string, k, v string) map[string]string {
	out := map[string]string{k: v}
	for name, value := range m {
		if name != k {
			out[name] = value
		}
	}
	if v == "" {
		delete(out, k)
	}
	return out
}

func TestAFactThatIsNotKnownIsNeverEqual(t *testing.T) {
	for name, c := range map[string]struct {
		a, b map[string]string
		want Level
		says []string
	}{
		"equal CPUs":                   {cpuBox(), cpuBox(), Pinned, nil},
		"equal GPUs":                   {gpuBox(), gpuBox(), Pinned, nil},
		"another driver":               {gpuBox(), with(gpuBox(), "driver", "560.1"), Apart, []string{"driver"}},
		"driver unknown on one":        {gpuBox(), with(gpuBox(), "driver", ""), Observed, []string{"driver"}},
		"driver unknown on both":       {with(gpuBox(), "driver", ""), with(gpuBox(), "driver", ""), Observed, []string{"driver"}},
		"no cards, so no driver":       {with(cpuBox(), "driver", ""), cpuBox(), Pinned, nil},
		"unknown whether there's one":  {with(cpuBox(), "gpus", ""), cpuBox(), Observed, []string{"gpus", "gpu", "gpu_pci", "gpu_mem_mib", "gpu_mig", "capability", "driver", "cuda"}},
		"another CPU beside a card":    {gpuBox(), with(gpuBox(), "cpu", "Xeon"), Pinned, []string{"cpu"}},
		"another CPU and no card":      {cpuBox(), with(cpuBox(), "cpu", "Xeon"), Apart, []string{"cpu"}},
		"another kernel":               {cpuBox(), with(cpuBox(), "kernel", "6.9"), Pinned, []string{"kernel"}},
		"a fact of a newer worker":     {with(cpuBox(), "moon", "full"), with(cpuBox(), "moon", "new"), Apart, []string{"moon"}},
		"a fact that one lacks":        {with(cpuBox(), "moon", "full"), cpuBox(), Observed, []string{"moon"}},
		"a card in one of two":         {cpuBox(), gpuBox(), Apart, []string{"gpus", "gpu", "gpu_pci", "gpu_mem_mib", "gpu_mig", "capability", "driver", "cuda"}},
		"another probe, all else same": {gpuBox(), with(gpuBox(), "probe", "sha256:00"), Apart, []string{"probe"}},
	} {
		level, diffs := CompareFacts(c.a, c.b)
		var names []string
		for _, d := range diffs {
			names = append(names, d.Name)
		}
		if level != c.want || !cmp.Equal(names, c.says) {
			t.Errorf("%s: %s %v, want %s %v", name, level, names, c.want, c.says)
		}
	}
}

func TestPin(t *testing.T) {
	requires, unknown := Pin(with(with(gpuBox(), "gpu_mig", ""), "kernel", "6.8"))
	if _, pinned := requires["kernel"]; pinned || requires["driver"] != "550.54" || requires["gpus"] != "1" || requires["cpu"] != "" || !cmp.Equal(unknown, []string{"gpu_mig"}) {
		t.Errorf("%v, unknown %v", requires, unknown)
	}
	requires, unknown = Pin(cpuBox())
	if _, pinned := requires["gpu"]; pinned || requires["cpu"] != "EPYC" || unknown != nil {
		t.Errorf("%v, unknown %v", requires, unknown)
	}
}

func TestTheGuaranteeIsWordedAsWhatItIs(t *testing.T) {
	files := []record.File{{Path: "a", SHA256: hash("a")}, {Path: "b", SHA256: hash("b")}}
	other := []record.File{{Path: "a", SHA256: hash("A")}, {Path: "c", SHA256: hash("c")}}
	for name, c := range map[string]struct {
		a, b Twin
		same bool
		says string
	}{
		"twins":              {Twin{"1", cpuBox(), files}, Twin{"2", cpuBox(), files}, true, "bit-identical on the same device class, build and software versions"},
		"classes unknown":    {Twin{"1", cpuBox(), files}, Twin{"2", with(cpuBox(), "packages", ""), files}, true, "not known: packages): an observation, no guarantee"},
		"two classes":        {Twin{"1", cpuBox(), files}, Twin{"2", with(cpuBox(), "cpu", "Xeon"), files}, true, `two classes (cpu: "EPYC" and "Xeon"): an observation`},
		"no determinism":     {Twin{"1", cpuBox(), files}, Twin{"2", cpuBox(), other}, false, "not repeated: 3 of 3 files differ (a, b, c); the machines are equal in all that is known"},
		"another machine":    {Twin{"1", gpuBox(), files}, Twin{"2", with(gpuBox(), "driver", "560.1"), other[:1]}, false, `2 of 2 files differ (a, b); the machines differ: driver: "550.54" and "560.1"`},
		"half known":         {Twin{"1", gpuBox(), files}, Twin{"2", with(gpuBox(), "driver", ""), other}, false, "not known of the machines: driver"},
		"nothing to compare": {Twin{"1", gpuBox(), nil}, Twin{"2", gpuBox(), nil}, false, "nothing was compared"},
	} {
		g := CompareRuns(c.a, c.b)
		if g.Identical != c.same || !strings.Contains(g.Text, c.says) {
			t.Errorf("%s: %v %q, want %q", name, g.Identical, g.Text, c.says)
		}
		if strings.Contains(g.Text, Promise) != (g.Identical && g.Level == Pinned) {
			t.Errorf("%s: promised at level %s: %q", name, g.Level, g.Text)
		}
	}
}

func TestOnlyRunsOfOnePinnedWorkAreTwins(t *testing.T) {
	retrained := func(change func(*record.Spec)) Statement {
		s := release(t)
		spec := record.Spec{Kind: "train", Argv: []string{"python3", "train.py"}, Seed: 1, Generation: 2, Parent: s.Predicate.Candidate.Work, Requires: map[string]string{"os": "linux"}}
		if change != nil {
			change(&spec)
		}
		s.Predicate.Retrained = run(spec)
		return s
	}
	second := func(s Statement) Statement {
		s.Predicate.Retrained.Attempt, s.Predicate.Retrained.Manifest.SHA256 = 2, hash("another manifest")
		return s
	}
	a := retrained(nil)
	for name, b := range map[string]Statement{"the same work": second(retrained(nil)), "a replica": retrained(func(s *record.Spec) { s.Replica = 1 })} {
		if g, err := CompareReleases(a, b); err != nil || g.Text != Promise {
			t.Errorf("%s: %v %q", name, err, g.Text)
		}
	}
	b := second(retrained(nil))
	b.Subject[0].Digest.SHA256 = hash("other")
	if g, err := CompareReleases(a, b); err != nil || g.Identical || !cmp.Equal(g.Files, []string{"config/labels.json"}) {
		t.Errorf("another file: %v %+v", err, g)
	}
	for name, b := range map[string]Statement{"the very same run": retrained(nil), "another seed": retrained(func(s *record.Spec) { s.Seed = 2 }), "not pinned": retrained(func(s *record.Spec) { s.Requires = nil })} {
		if _, err := CompareReleases(a, b); err == nil {
			t.Errorf("%s: compared", name)
		} else if _, ok := errors.AsType[*OtherWork](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
