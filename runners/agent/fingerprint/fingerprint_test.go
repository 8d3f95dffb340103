package fingerprint

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCompare(t *testing.T) {
	found := map[string]string{"gpu": "NVIDIA H100", "driver": "550.54", "os": "linux"}
	got := Compare(map[string]string{"gpu": "NVIDIA L4", "cuda": "12.4", "os": "linux"}, found)
	want := []Difference{{"cuda", "12.4", ""}, {"gpu", "NVIDIA L4", "NVIDIA H100"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if s := got[1].String(); s != `gpu: required "NVIDIA L4", found "NVIDIA H100"` {
		t.Errorf("a difference reads %s", s)
	}
	if got := Compare(map[string]string{"cuda": ""}, found); len(got) != 1 {
		t.Errorf("nothing was measured, and nothing equals it: %v", got)
	}
	if got := Compare(nil, found); got != nil {
		t.Errorf("nothing required, yet %v", got)
	}
}

func TestParseGPU(t *testing.T) {
	got := parseGPU("NVIDIA L4, 23034, 550.54.15, 8.9\nNVIDIA L4, 23034, 550.54.15, 8.9\n")
	want := map[string]string{GPU: "NVIDIA L4", GPUs: "2", GPUMemory: "23034", Driver: "550.54.15", Capability: "8.9"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, bad := range []string{"", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver", "a,b"} {
		if got := parseGPU(bad); got != nil {
			t.Errorf("%q: read as %v", bad, got)
		}
	}
}

// A tool that prints control characters or a megabyte is hostile text like any other.
func TestMeasureBoundsWhatToolsSay(t *testing.T) {
	bin := t.TempDir()
	script := "#!/bin/sh\ncase \"$1\" in --query*) printf 'Evil\\033[31m\\001Card, 1, 2, 3\\n';; *) echo '| CUDA Version: 12.4 |';; esac\n"
	if err := os.WriteFile(filepath.Join(bin, "nvidia-smi"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	f := Measure(t.Context())
	if f[GPU] != "Evil [31m Card" || f[CUDA] != "12.4" {
		t.Errorf("gpu %q, cuda %q", f[GPU], f[CUDA])
	}
	host, _ := os.Hostname()
	for k, v := range f {
		if host != "" && len(host) > 3 && strings.Contains(v, host) {
			t.Errorf("%s names the host: %q", k, v)
		}
	}
	if f[OS] != runtime.GOOS || f[Cores] == "" {
		t.Errorf("os %q, cores %q", f[OS], f[Cores])
	}
	if got := clean(strings.Repeat("é", 1000)); len(got) > maxFact {
		t.Errorf("%d bytes of one fact", len(got))
	}
}
