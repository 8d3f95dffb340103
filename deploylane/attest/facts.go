package attest

import (
	"maps"
	"slices"
	"strings"
)

// Class says what a difference in a fact of a worker's fingerprint means for the bits of a result.
type Class string

// The classes.
const (
	Must    Class = "must"    // another value: other bits are to be expected
	OnGPU   Class = "gpu"     // must, unless the machine is known to have no card
	OnCPU   Class = "cpu"     // must, where the machine is known to have no card: the training's arithmetic runs on the CPU
	Ranks   Class = "ranks"   // must, where a work has more than one rank; every work has one today, so it is recorded
	Record  Class = "record"  // for people
	Unknown Class = "unknown" // a fact that this version does not know: treated as Must
)

// Fact is one field of a fingerprint.
type Fact struct {
	Name  string
	Class Class
	What  string
}

// Facts is the table of what a fingerprint may hold, in the order in which differences are told. Seeds, code, configuration and data
// are no facts of a machine: the work's identity binds them.
func Facts() []Fact {
	return []Fact{
		{"gpus", Must, "number of cards; 0 where there is certainly none"},
		{"gpu", OnGPU, "name of the card, as its driver says"},
		{"gpu_pci", OnGPU, "PCI device id: tells apart cards that share a name"},
		{"gpu_mem_mib", OnGPU, "its memory"},
		{"gpu_mig", OnGPU, "whether it is cut into slices"},
		{"capability", OnGPU, "compute capability"},
		{"driver", OnGPU, "driver version: it compiles kernels and chooses communication paths"},
		{"cuda", OnGPU, "CUDA version of the driver"},
		{"os", Must, "operating system"},
		{"arch", Must, "instruction set"},
		{"python", Must, "version of Python"},
		{"python_build", Must, "compiler and date of that Python"},
		{"packages", Must, "hash over every installed Python package: name, version, hashes of its files; so it covers frameworks with their build, and the CUDA libraries that come as packages"},
		{"switches", Must, "environment variables that choose kernels, precision or the order of sums"},
		{"probe", Must, "hash of fixed sums and functions on the CPU"},
		{"probe_run", Record, "hash of what the work's own probe printed; compared by the worker where it is required"},
		{"libc", OnCPU, "C library: its exp and log"},
		{"cpu", OnCPU, "model of the CPU"},
		{"cpu_flags", OnCPU, "hash of its instruction set extensions: another vector width changes sums"},
		{"cores", OnCPU, "usable cores: they set the number of threads, which sets the order of sums"},
		{"link", Ranks, "link between ranks"},
		{"memory_mib", Record, "memory of the machine"},
		{"container", Record, "whether it is one"},
		{"kernel", Record, "release of the kernel"},
	}
}

// musts lists the facts that must be equal on a machine with this fingerprint.
func musts(found map[string]string) (names []string) {
	known := map[string]bool{}
	for _, f := range Facts() {
		known[f.Name] = true
		if f.Class == Must || f.Class == OnGPU && found["gpus"] != "0" || f.Class == OnCPU && found["gpus"] == "0" {
			names = append(names, f.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if !known[name] {
			names = append(names, name)
		}
	}
	return names
}

// Pin makes, of a fingerprint, what a second generation requires of its machine, and lists the must-facts that are not known, which
// nobody can hold a machine against.
func Pin(found map[string]string) (requires map[string]string, unknown []string) {
	requires = map[string]string{}
	for _, name := range musts(found) {
		if v := strings.TrimSpace(found[name]); v != "" {
			requires[name] = found[name]
		} else {
			unknown = append(unknown, name)
		}
	}
	return requires, unknown
}
