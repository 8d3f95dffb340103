package fingerprint

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMain answers for a child of TestTheProbeIsTheSameInEveryProcess.
func TestMain(m *testing.M) {
	if os.Getenv("FINGERPRINT_TEST_PROBE") != "" {
		_, _ = os.Stdout.WriteString(Compute())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestTheProbeIsTheSameInEveryProcess(t *testing.T) {
	here := Compute()
	sum, ok := strings.CutPrefix(here, probeVersion+" sha256:")
	if !ok || len(sum) != 64 {
		t.Fatalf("the probe is %q", here)
	}
	for _, procs := range []string{"1", "4"} {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		child := exec.Command(self)
		child.Env = append(os.Environ(), "FINGERPRINT_TEST_PROBE=1", "GOMAXPROCS="+procs)
		there, err := child.Output()
		if err != nil || string(there) != here {
			t.Errorf("here %s, in a process of its own %s, %v", here, there, err)
		}
	}
}

// What is computed is fixed: another value for the same version would refuse every machine that was pinned with the old one. The parts
// without functions come out alike on every amd64; elsewhere a product and a sum may be one rounding.
func TestTheProbeIsTheOneOfItsVersion(t *testing.T) {
	const want = "f7d1747401aceeb57799227d8d34d784ed433e28ababc9c72e7f5fbf317f7051"
	h := sha256.New()
	multiply32(h)
	multiply64(h)
	reduce(h)
	if got := hex.EncodeToString(h.Sum(nil)); runtime.GOARCH == "amd64" && (got != want || probeVersion != "v1") {
		t.Errorf("%s, %s: raise the version, and write down the new value", probeVersion, got)
	}
	if got := numbers(2, 6); got[0] != 0.2964235016896202 || got[1] != -0.9040982883632829 {
		t.Errorf("the numbers begin with %v", got)
	}
}

// The numbers are such that another order of a sum is another sum.
func TestTheOrderOfASumShows(t *testing.T) {
	xs := numbers(1<<14, 5)
	forward := 0.0
	for _, x := range xs {
		forward += x
	}
	if forward == pairs(xs) {
		t.Error("the order of a sum does not show")
	}
	seen := map[float64]bool{}
	for _, x := range numbers(4096, 1) {
		if x <= -1 || x >= 1 || seen[x] {
			t.Fatalf("%g: outside (-1, 1), or there twice", x)
		}
		seen[x] = true
	}
}

func TestSplitProbe(t *testing.T) {
	sum := "sha256:" + strings.Repeat("a", 64)
	got, argv, err := SplitProbe(sum + "  python3 probe.py --steps 3 ")
	if err != nil || got != sum || !cmp.Equal(argv, []string{"python3", "probe.py", "--steps", "3"}) {
		t.Errorf("%q %q %v", got, argv, err)
	}
	if got, argv, err = SplitProbe("unknown ./probe"); err != nil || got != "unknown" || len(argv) != 1 {
		t.Errorf("%q %q %v", got, argv, err)
	}
	for _, bad := range []string{"", "unknown", sum, "python3 probe.py", "sha256:abc python3 probe.py", strings.ToUpper(sum) + " x"} {
		if _, _, err := SplitProbe(bad); err == nil {
			t.Errorf("%q: accepted", bad)
		}
	}
}

func TestSwitchesOf(t *testing.T) {
	if got := SwitchesOf([]string{"HOME=/x", "PATH=/y", "ATF_X=1", "TF_CLI_CONFIG_FILE=/z", "TORCH_HOME=/t"}); got != "none" {
		t.Errorf("none of ours: %q", got)
	}
	a := SwitchesOf([]string{"OMP_NUM_THREADS=4", "CUBLAS_WORKSPACE_CONFIG=:4096:8", "NCCL_SOCKET_IFNAME=secret-net"})
	b := SwitchesOf([]string{"CUBLAS_WORKSPACE_CONFIG=:16:8", "NCCL_SOCKET_IFNAME=secret-net", "OMP_NUM_THREADS=8", "OMP_NUM_THREADS=4"})
	if !strings.HasPrefix(a, "CUBLAS_WORKSPACE_CONFIG NCCL_SOCKET_IFNAME OMP_NUM_THREADS sha256:") || strings.Contains(a, "secret-net") || a == b {
		t.Errorf("%q and %q", a, b)
	}
	if c := SwitchesOf([]string{"NCCL_SOCKET_IFNAME=secret-net", "OMP_NUM_THREADS=4", "CUBLAS_WORKSPACE_CONFIG=:4096:8"}); c != a {
		t.Errorf("in another order %q, not %q", c, a)
	}
	var many []string
	for i := range 100 {
		many = append(many, "NCCL_"+strings.Repeat("X", i)+"=1")
	}
	if got := SwitchesOf(many); len(got) > maxFact || clean(got) != got {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}

func TestCPUFlags(t *testing.T) {
	if cpuFlags("fpu avx2 fma ibrs") != cpuFlags("fma avx2 stibp fpu fma") || cpuFlags("avx2 fma") == cpuFlags("fma") || cpuFlags(" ibrs") != "" {
		t.Error("the extensions that do arithmetic count, each once, in any order, and nothing else")
	}
}

// Packages are those that python3 would import: another version, another file, another hash; compiled files and places do not count.
func TestPackages(t *testing.T) {
	lay := func(record string) string {
		place := t.TempDir()
		info := filepath.Join(place, "thing-1.0.dist-info")
		if err := os.Mkdir(info, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(info, "RECORD"), []byte(record), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PYTHONPATH", place)
		version, build, packages := python(t.Context())
		if version == "" || !strings.HasPrefix(packages, "sha256:") {
			t.Fatalf("python %q %q, packages %q", version, build, packages)
		}
		return packages
	}
	plain := lay("thing/a.py,sha256=x,1\n")
	if got := lay("thing/__pycache__/a.pyc,,\n../../../bin/thing,sha256=z,9\nthing-1.0.dist-info/direct_url.json,sha256=q,1\nthing/a.py,sha256=x,1\n"); got != plain {
		t.Error("what does not count counts")
	}
	if got := lay("thing/a.py,sha256=y,1\n"); got == plain {
		t.Error("another file, the same hash")
	}
}
