package fingerprint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"
)

// script prints the build of Python, and a hash over every package on its path: the name of its folder, which has the version, and
// the hashes of its files as its installer noted them. Left out are compiled files, which have none, scripts, whose first line
// holds a path, and what says only how it was asked for. It imports nothing of weight: every worker runs it.
const script = `import hashlib, os, sys
rows = set()
for place in sys.path:
    try:
        names = os.listdir(place or ".")
    except OSError:
        continue
    for name in names:
        if name.endswith((".dist-info", ".egg-info")):
            try:
                with open(os.path.join(place, name, "RECORD"), encoding="utf-8", errors="replace") as f:
                    files = sorted(l for l in f.read().splitlines() if not l.endswith(",,") and not l.startswith("..") and "direct_url.json" not in l and "/REQUESTED," not in l)
            except OSError:
                files = []
            rows.add(name + " " + hashlib.sha256("\n".join(files).encode("utf-8", "replace")).hexdigest())
print(" ".join(sys.version.split()))
print("sha256:%s of %d" % (hashlib.sha256("\n".join(sorted(rows)).encode("utf-8", "replace")).hexdigest(), len(rows)))
`

// python asks python3 what it is and what it would import; where that takes too long, what it is.
func python(ctx context.Context) (version, build, packages string) {
	lines := strings.Split(strings.TrimSpace(ask(ctx, 10*time.Second, "python3", "-c", script)), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[1], "sha256:") {
		version, _ = strings.CutPrefix(ask(ctx, 5*time.Second, "python3", "-V"), "Python ")
		return version, "", ""
	}
	version, build, _ = strings.Cut(lines[0], " ")
	return version, build, lines[1]
}

// cpuFlags hashes the names of the extensions that do arithmetic: what the kernel says of mitigations changes with every update.
func cpuFlags(flags string) string {
	var kept []string
	for f := range strings.FieldsSeq(flags) {
		if slices.ContainsFunc([]string{"sse", "ssse", "avx", "fma", "f16c", "bmi", "amx", "xop", "asimd", "sve", "sme", "neon", "fp", "bf16", "i8mm", "pni"},
			func(p string) bool { return strings.HasPrefix(f, p) }) {
			kept = append(kept, f)
		}
	}
	if len(kept) == 0 {
		return ""
	}
	slices.Sort(kept)
	return digest(strings.Join(slices.Compact(kept), " "))
}

// switches are beginnings of names, no more of a framework's than these: others hold folders, or are another program's. A table.
var switches = []string{"CUBLAS_", "CUDA_LAUNCH_BLOCKING", "CUDNN_", "JAX_DEFAULT_", "JAX_ENABLE_X64", "MIOPEN_", "MKL_", "NCCL_", "NVIDIA_TF32_OVERRIDE", "NVTE_", "OMP_", "OPENBLAS_",
	"PYTHONHASHSEED", "PYTORCH_", "TF_CUDNN_", "TF_DETERMINISTIC_", "TF_ENABLE_", "TF_FORCE_", "TF_GPU_", "TF_NUM_", "TF_XLA_", "TORCH_ALLOW_", "TORCH_BLAS_", "TORCH_CUDNN_", "TORCH_NCCL_", "XLA_"}

// SwitchesOf is the fact Switches: the names of the environment variables that choose kernels, precision or the order of sums, with a
// hash over their values, which may hold addresses and paths; "none" where there are none. A later entry of a name counts.
func SwitchesOf(environ []string) string {
	set := map[string]string{}
	for _, e := range environ {
		name, value, ok := strings.Cut(e, "=")
		if ok && slices.ContainsFunc(switches, func(p string) bool { return strings.HasPrefix(name, p) }) {
			set[name] = value
		}
	}
	if len(set) == 0 {
		return "none"
	}
	var names, all []string
	for name, value := range set {
		names, all = append(names, name), append(all, name+"="+value)
	}
	slices.Sort(names)
	slices.Sort(all)
	shown := clean(strings.Join(names, " "))
	if len(shown) > 150 {
		shown = strings.ToValidUTF8(shown[:150], "") + "…"
	}
	return shown + " " + digest(strings.Join(all, "\x00"))
}

// digest is a hash as a fact has it.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:])
}
