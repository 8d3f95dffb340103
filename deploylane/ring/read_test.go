package ring

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// step37 is the ring of the post-mortem, with a profile that fits.
const step37 = `ring: step37
engine: {adapter: p4-staged, release: v0.9.0, needs: [physical-v4, layer-window=1]}
hosts:
  h1: {agent: "tcp://h1.ring:42011", listen: "0.0.0.0:42011", journal: required, retained: 256MiB, native: {path: /opt/p4/p4_staged_server, sha256: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}, backend: hip, memory: {need: 60GiB}}
  h2: {agent: "tcp://h2.ring:42012", journal: required, retained: 256MiB, native: {path: /opt/p4/p4_staged_server, sha256: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}, backend: hip, memory: {need: 60GiB}}
shape: {batch: 128, ubatch: 32, context: 4096, parallel: 8, completion: 192MiB, output: 1024}
stages:
  - {node: step37-s0, host: h1, layers: 0-12,  device: ROCm0, mask: 0, endpoint: "127.0.0.1:42100"}
  - {node: step37-s1, host: h1, layers: 12-23, device: ROCm0, mask: 2, endpoint: "127.0.0.1:42101"}
  - {node: step37-s2, host: h2, layers: 23-34, device: ROCm0, mask: 0, endpoint: "127.0.0.1:42102"}
  - {node: step37-s3, host: h2, layers: 34-45, device: ROCm0, mask: 2, endpoint: "127.0.0.1:42103"}
canary: {rounds: 3, gap: 20s, deadline: 60s, prompts: lane/canary/step37.jsonl, format: step37, expect: {finish: eos}}
switch: {catalog: the site's model list, drain: 120s, tokens: 3000, output: 1000}
`

func TestReadPlan(t *testing.T) {
	p, err := ReadPlan("ring.yaml", []byte(step37))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]Edge{{0, 1}, {1, 2}, {2, 3}, {3, 0}}, p.Edges()); d != "" {
		t.Error(d)
	}
	want := Stage{Node: "step37-s2", Host: "h2", Layers: [2]int{23, 34}, Device: "ROCm0", Mask: "0", Endpoint: "127.0.0.1:42102", Pos: p.Stages[2].Pos}
	if d := cmp.Diff(want, p.Stages[2]); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(Shape{Batch: 128, Ubatch: 32, Parallel: 8, Context: 4096, Completion: 201_326_592, Output: 1024, Pos: p.Shape.Pos}, p.Shape); d != "" {
		t.Error(d)
	}
}

// TestReadPlanRefuses changes one thing at a time in a good plan: each is one line with its place, what was found, what
// is expected, and each line is the only one.
func TestReadPlanRefuses(t *testing.T) {
	for _, c := range []struct{ old, now, want string }{
		{"ring: step37\n", "ring: step37\ngeneration: 1789\n", `ring.yaml:2:13: generation is a literal for a derived value: expected no generation: it follows from the store's clock and every generation that was ever recorded; delete it`},
		{"output: 1024}", "output: 1024, max_physical_result_bytes: 33554432}", `ring.yaml:6:122: shape.max_physical_result_bytes is a literal for a derived value: expected no max_physical_result_bytes: it follows from batch, ubatch, parallel and the model's cut; delete it`},
		{"layers: 23-34,", "layers: 23-34, kv: 23-34,", `ring.yaml:10:52: stages[2].kv is a literal for a derived value: expected no kv: it follows from the stage's layers; delete it`},
		{"layers: 12-23", "layers: 13-23", `ring.yaml:9:41: stages[1].layers begins at 13: layers 12 to 12 are nobody's: expected a beginning of 12; the layers of the stages tile the model`},
		{"layers: 12-23", "layers: 11-23", `ring.yaml:9:41: stages[1].layers begins at 11, and the stage before ends at 12: expected a beginning of 12; the layers of the stages tile the model`},
		{"layers: 0-12", "layers: 00-12", `ring.yaml:8:41: stages[0].layers is "00-12": expected begin-end, such as 0-12: the first layer, and the one behind the last`},
		{"tcp://h2.ring:42012", "tcp://127.0.0.1:42012", `ring.yaml:5:15: agent h2 advertises tcp://127.0.0.1:42012, which is a loopback address: from another host that is not this one: expected an address that the other hosts of the ring reach; advertise the host's name or address in the ring's network`},
		{"tcp://h2.ring:42012", "tcp://[::]:42012", `which is the unspecified address`},
		{"tcp://h2.ring:42012", "tcp://169.254.1.2:42012", `which is a link-local address`},
		{"tcp://h2.ring:42012", "tcp://[::ffff:127.0.0.1]:42012", `which is a loopback address`},
		{"tcp://h2.ring:42012", "tcp://127.1:42012", `which is a short form of an address`},
		{"tcp://h2.ring:42012", "tcp://LOCALHOST:42012", `which is a loopback name`},
		{"tcp://h2.ring:42012", "tcp://ip6-localhost:42012", `which is a loopback name`},
		{"tcp://h2.ring:42012", "tcp://255.255.255.255:42012", `which is the broadcast address`},
		{"tcp://h2.ring:42012", "tcp://0.1.2.3:42012", `which is an address of this host alone`},
		{"tcp://h2.ring:42012", "tcp://[fe80::1]:42012", `which is a link-local address`},
		{"tcp://h2.ring:42012", "tcp://[fe80::1%25eth0]:42012", `expected tcp://host:port`},
		{"tcp://h2.ring:42012", "tcp://h2.ring:65536", `agent is "tcp://h2.ring:65536": expected tcp://host:port`},
		{"tcp://h2.ring:42012", "tcp://h2.ring:0", `agent is "tcp://h2.ring:0": expected tcp://host:port`},
		{"tcp://h2.ring:42012", "tcp://h2.ring:042012", `expected tcp://host:port`},
		{"tcp://h2.ring:42012", "tcp://u@h2.ring:42012", `expected tcp://host:port`},
		{`tcp://h2.ring:42012"`, `tcp://h2.ring:42012", listen: "127.0.0.1:42012"`, `agent h2 listens at 127.0.0.1:42012: the other hosts do not reach it there, whatever it advertises`},
		{`tcp://h2.ring:42012"`, `tcp://h2.ring:42012", listen: "0.0.0.0:99999"`, `listen is "0.0.0.0:99999": expected host:port`},
		{"memory: {need: 60GiB}}\n  h2", "memory: {need: 0B}}\n  h2", `hosts.h1.memory.need is 0: expected what it really is: at 0 nothing is held against it`},
		{"completion: 192MiB", "completion: 0B", `shape.completion is 0: expected`},
		{"gap: 20s", "gap: 3650d", `canary.gap is 87600h0m0s: expected 1ms to 1h0m0s`},
		{"deadline: 60s", "deadline: 1ms", `canary.deadline is 1ms: expected 1s to 1h0m0s`},
		{"drain: 120s", "drain: 25h", `switch.drain is 25h0m0s: expected 0s to 24h0m0s`},
		{"layers: 34-45", "layers: 34-99999999999999999999", `layers is "34-99999999999999999999": expected begin-end`},
		{"batch: 128", "batch: 18446744073709551616", `shape.batch is`},
		{"tcp://h2.ring:42012", "h2.ring:42012", `ring.yaml:5:15: agent is "h2.ring:42012": expected tcp://host:port; write it byte for byte as the agent advertises itself`},
		{"tcp://h2.ring:42012", "tcp://h1.ring:42011", `ring.yaml:5:15: hosts h1 and h2 have one agent, tcp://h1.ring:42011: expected one agent a host`},
		{"journal: required, retained: 256MiB, native: {path: /opt/p4/p4_staged_server, sha256: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}, backend: hip, memory: {need: 60GiB}}\nshape", "journal: off, retained: 256MiB, native: {path: /opt/p4/p4_staged_server, sha256: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}, backend: hip, memory: {need: 60GiB}}\nshape", `ring.yaml:5:47: hosts.h2.journal is "off": expected one of required`},
		{"device: ROCm0, mask: 0, endpoint: \"127.0.0.1:42100\"", "device: CUDA0, mask: 0, endpoint: \"127.0.0.1:42100\"", `ring.yaml:8:56: device is "CUDA0" on host h1, whose build is hip: expected ROCm and an index, such as ROCm0; each build has its own names`},
		{"device: ROCm0, mask: 2, endpoint: \"127.0.0.1:42101\"", "device: ROCm2, mask: 2, endpoint: \"127.0.0.1:42101\"", `ring.yaml:9:56: device is "ROCm2" behind the mask "2": expected an index below 1: what a mask leaves is counted from 0`},
		{"127.0.0.1:42103", "0.0.0.0:42103", `ring.yaml:11:82: endpoint is "0.0.0.0:42103", which others may reach: expected a loopback or private address and a port: native servers ask nobody who they are`},
		{"127.0.0.1:42103", "127.0.0.1:42102", `ring.yaml:11:82: nodes step37-s2 and step37-s3 have one endpoint on host h2: expected an endpoint of its own`},
		{"node: step37-s3", "node: step37-s2", `ring.yaml:11:12: node step37-s2 is given twice: expected each node once`},
		{"host: h2, layers: 34-45", "host: h3, layers: 34-45", `ring.yaml:11:29: host is "h3": expected one of h1, h2`},
		{"ubatch: 32", "ubatch: 129", `ring.yaml:6:29: ubatch is 129: expected at most the batch, 128`},
		{"completion: 192MiB", "completion: 257MiB", `ring.yaml:6:73: completion is 269,484,032 bytes: expected at most the retained store of host h1, 268,435,456`},
		{"rounds: 3", "rounds: 1", `ring.yaml:12:18: canary.rounds is 1: expected`},
		{"finish: eos", "finish: length", `canary.expect.finish is "length": expected one of eos`},
		{"format: step37, ", "", `ring.yaml:12:9: canary.format is missing: expected format: the model's turn format, since the engine applies none`},
		{"tokens: 3000", "tokens: 3500", `a request of 3500 + 1000 tokens: expected at most the loaded context, 4096`},
		{"drain: 120s", "drain: 120s, force: true", `ring.yaml:13:55: unknown key "force" in switch: expected one of catalog, drain, tokens, output`},
		{"physical-v4", "\"physical v4\"", `ring.yaml:2:55: engine.needs[0] is "physical v4": expected name or name=value`},
	} {
		if !strings.Contains(step37, c.old) {
			t.Fatalf("the plan has no %q", c.old)
		}
		p, err := ReadPlan("ring.yaml", []byte(strings.Replace(step37, c.old, c.now, 1)))
		if err == nil {
			t.Errorf("%q for %q: accepted", c.now, c.old)
			continue
		}
		if lines := strings.Split(err.Error(), "\n"); p != nil || len(lines) != 1 || !strings.Contains(lines[0], c.want) {
			t.Errorf("%q for %q:\n%v\nwant %s", c.now, c.old, err, c.want)
		}
	}
}

// TestLoopbackOfOneHost: one host's agent may advertise loopback, and an endpoint may anywhere: two checks, not one.
func TestLoopbackOfOneHost(t *testing.T) {
	one := strings.ReplaceAll(strings.Replace(step37, "tcp://h1.ring:42011", "tcp://127.0.0.1:42011", 1), "host: h2", "host: h1")
	cut := strings.Index(one, "  h2: ")
	one = one[:cut] + one[cut+strings.Index(one[cut:], "\n")+1:]
	if _, err := ReadPlan("ring.yaml", []byte(one)); err != nil {
		t.Error(err)
	}
}

// TestReadPlanAllAtOnce: every problem of a file is said in one go.
func TestReadPlanAllAtOnce(t *testing.T) {
	_, err := ReadPlan("ring.yaml", []byte("ring: x\nhosts: {h1: {agent: nothing}}\nstages: [{node: a, host: b}]\n"))
	if err == nil || strings.Count(err.Error(), "\n") < 10 {
		t.Errorf("only:\n%v", err)
	}
}

// FuzzReadPlan: any bytes give a plan or an error, never both and never a crash.
func FuzzReadPlan(f *testing.F) {
	f.Add([]byte(step37))
	f.Add([]byte("ring: x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ReadPlan("ring.yaml", b)
		if (p == nil) == (err == nil) {
			t.Fatalf("%v, %v", p, err)
		}
		if p != nil && (len(p.Stages) == 0 || p.Stages[0].Layers[0] != 0 || p.Shape.Ubatch > p.Shape.Batch) {
			t.Fatalf("%+v", p)
		}
	})
}
