// Package fingerprint measures the machine the agent runs on: facts that change what a program computes or how fast,
// as names and texts. Nothing in it names the host, its address or its owner. A fact that cannot be measured is
// absent, never guessed.
package fingerprint

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Names of the facts. A pinned fingerprint (record.Spec.Requires) uses the same ones.
const (
	OS         = "os"          // linux
	Arch       = "arch"        // amd64
	Kernel     = "kernel"      // release
	CPU        = "cpu"         // model name
	Cores      = "cores"       // usable ones
	Memory     = "memory_mib"  // of the machine, or the container's limit when that is lower
	Container  = "container"   // yes or no
	Libc       = "libc"        // C library and its version
	CPUFlags   = "cpu_flags"   // hash of the instruction set extensions that do arithmetic
	GPU        = "gpu"         // name of the first card
	GPUs       = "gpus"        // how many; 0 only where there is certainly none
	GPUPCI     = "gpu_pci"     // PCI device id of the first card
	GPUMIG     = "gpu_mig"     // whether it is cut into slices
	GPUMemory  = "gpu_mem_mib" // of the first card
	Driver     = "driver"      // NVIDIA driver
	CUDA       = "cuda"        // highest CUDA version that the driver takes
	Capability = "capability"  // compute capability of the first card
	Python     = "python"      // version of python3 on PATH

	PythonBuild = "python_build" // its compiler and date
	Packages    = "packages"     // hash over the packages that it finds: names, versions, hashes of their files
	Switches    = "switches"     // see SwitchesOf
	Probe       = "probe"        // hash of fixed computations; see probe.go
	ProbeRun    = "probe_run"    // hash of what a command printed, and the command: only where a work requires it
)

const maxFact = 256 // bytes of one fact

// Measure asks python3 and nvidia-smi, side by side and for some seconds, and returns what it found.
func Measure(ctx context.Context) map[string]string {
	f := map[string]string{
		OS:        runtime.GOOS,
		Arch:      runtime.GOARCH,
		Cores:     strconv.Itoa(runtime.NumCPU()),
		Container: "no",
	}
	var mu sync.Mutex
	put := func(k, v string) {
		mu.Lock()
		defer mu.Unlock()
		if v = clean(v); v != "" {
			f[k] = v
		}
	}
	if contained() {
		f[Container] = "yes"
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		version, build, packages := python(ctx)
		put(Python, version)
		put(PythonBuild, build)
		put(Packages, packages)
	})
	wg.Go(func() { put(Libc, ask(ctx, 5*time.Second, "getconf", "GNU_LIBC_VERSION")) })
	wg.Go(func() {
		for k, v := range gpu(ctx) {
			put(k, v)
		}
	})
	put(Kernel, first("/proc/sys/kernel/osrelease"))
	put(CPU, field("/proc/cpuinfo", "model name"))
	put(CPUFlags, cpuFlags(field("/proc/cpuinfo", "flags")+" "+field("/proc/cpuinfo", "Features")))
	put(Memory, memory())
	put(Probe, Compute())
	wg.Wait()
	return f
}

// Difference is one required fact that this machine does not have.
type Difference struct{ Name, Want, Got string }

func (d Difference) String() string {
	if d.Got == "" {
		return fmt.Sprintf("%s: required %q, not found", d.Name, d.Want)
	}
	return fmt.Sprintf("%s: required %q, found %q", d.Name, d.Want, d.Got)
}

// Compare returns what is required and not so, sorted by name. Facts must be equal byte for byte; one that was not measured is
// equal to nothing, whatever is required.
func Compare(requires, found map[string]string) []Difference {
	var out []Difference
	for _, k := range slices.Sorted(maps.Keys(requires)) {
		if found[k] != requires[k] || found[k] == "" {
			out = append(out, Difference{k, requires[k], found[k]})
		}
	}
	return out
}

// clean makes one bounded line of printable text out of what a tool or a file said.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(strings.TrimSpace(s), ""))
	s = strings.Join(strings.Fields(s), " ")
	for len(s) > maxFact {
		s = strings.ToValidUTF8(s[:maxFact], "")
	}
	return s
}

func first(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b)
}

// field reads the first "name : value" line of a file of the /proc sort.
func field(path, name string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if k, v, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(k) == name {
			return v
		}
	}
	return ""
}

// memory is the machine's, or the control group's limit when that is lower, in MiB.
func memory() string {
	kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(field("/proc/meminfo", "MemTotal")), " kB"), 10, 64)
	if err != nil {
		return ""
	}
	bytes := kib << 10
	for _, limit := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		if n, err := strconv.ParseInt(strings.TrimSpace(first(limit)), 10, 64); err == nil && n > 0 && n < bytes {
			bytes = n
		}
	}
	return strconv.FormatInt(bytes>>20, 10)
}

func contained() bool {
	for _, mark := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Stat(mark); err == nil {
			return true
		}
	}
	return os.Getenv("KUBERNETES_SERVICE_HOST") != ""
}

func gpu(ctx context.Context) map[string]string {
	out := ask(ctx, 10*time.Second, "nvidia-smi", "--query-gpu=name,memory.total,driver_version,compute_cap", "--format=csv,noheader,nounits")
	f := parseGPU(out)
	if len(f) > 0 {
		if _, v, ok := strings.Cut(ask(ctx, 10*time.Second, "nvidia-smi"), "CUDA Version:"); ok {
			if fields := strings.Fields(v); len(fields) > 0 {
				f[CUDA] = fields[0]
			}
		}
		parts := strings.Split(strings.Split(ask(ctx, 10*time.Second, "nvidia-smi", "--query-gpu=pci.device_id,mig.mode.current", "--format=csv,noheader"), "\n")[0], ", ")
		if len(parts) == 2 {
			f[GPUPCI], f[GPUMIG] = parts[0], parts[1]
		}
		return f
	}
	if !anyCard() {
		return map[string]string{GPUs: "0"}
	}
	return nil
}

// anyCard says whether the kernel shows anything that may compute beside the CPU, of whatever maker.
func anyCard() bool {
	for _, glob := range []string{"/dev/nvidia*", "/dev/kfd", "/dev/dxg", "/dev/dri/renderD*", "/dev/accel*", "/dev/neuron*", "/dev/vfio/[0-9]*", "/proc/driver/nvidia"} {
		if found, err := filepath.Glob(glob); err != nil || len(found) > 0 {
			return true
		}
	}
	return runtime.GOOS != "linux"
}

// parseGPU reads nvidia-smi's answer: one line per card. Anything else is no card.
func parseGPU(out string) map[string]string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	parts := strings.Split(lines[0], ", ")
	if len(parts) != 4 {
		return nil
	}
	return map[string]string{
		GPU:        parts[0],
		GPUMemory:  parts[1],
		Driver:     parts[2],
		Capability: parts[3],
		GPUs:       strconv.Itoa(len(lines)),
	}
}

// ask runs a tool and returns what it wrote to stdout, bounded; empty when it is absent, fails or takes too long.
func ask(ctx context.Context, patience time.Duration, name string, args ...string) string {
	path, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil || len(out) > 64<<10 {
		return ""
	}
	return string(out)
}
