//go:build netns

package ringsim_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-run/headway/deploylane/preflight"
	"github.com/headway-run/headway/deploylane/ring"
	"github.com/headway-run/headway/deploylane/ringsim"
)

// place is a host of the test: a network namespace and its address.
type place struct{ Namespace, IP string }

func places(t *testing.T) map[string]place {
	t.Helper()
	var out map[string]place
	if err := json.Unmarshal([]byte(os.Getenv("HEADWAY_TEST_NETNS")), &out); err != nil {
		t.Fatalf("HEADWAY_TEST_NETNS: %v; run this through .ci/netns/run", err)
	}
	return out
}

// agent starts an agent as a process in a namespace and waits until it is ready. kill ends it by SIGKILL.
func (p place) agent(t *testing.T, binary, listen, advertised string) (kill func()) {
	t.Helper()
	cmd := exec.Command("ip", "netns", "exec", p.Namespace, binary, "agent", listen, advertised)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() { // ip becomes the agent: it execs it
		cmd.Process.Kill()
		cmd.Wait()
	})
	t.Cleanup(kill)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.HasPrefix(line, "P4_EVENT_AGENT_READY") {
		t.Fatalf("agent %s: %q %v", advertised, line, err)
	}
	return kill
}

// standalone builds the program of an agent.
func standalone(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "standalone")
	if out, err := exec.Command("go", "build", "-o", binary, "./standalone").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// TestNetnsRelease: a ring of two hosts through its life, over the kernel's own network and agents that are processes: the
// loader's guards see each agent from its peer, releases are switched and taken back, and a host's agent that is killed with
// SIGKILL in the last round of a canary brings the old release back.
func TestNetnsRelease(t *testing.T) {
	t.Parallel() // it waits more than it computes
	at, binary := places(t), standalone(t)
	one, two := "tcp://"+at["h1"].IP+":42021", "tcp://"+at["h2"].IP+":42022"
	kill := at["h1"].agent(t, binary, "0.0.0.0:42021", one)
	at["h2"].agent(t, binary, "0.0.0.0:42022", two)
	text := strings.NewReplacer("ONE", one, "TWO", two).Replace(`ring: step37
engine: {adapter: ringsim, release: v0.9.0, needs: [physical-v4, layer-window]}
hosts:
  h1: {agent: "ONE", journal: required, retained: 256MiB, native: {path: /opt/p4/p4_staged_server, sha256: 5e4e000000000000000000000000000000000000000000000000000000000001}, backend: hip, memory: {need: 60GiB}}
  h2: {agent: "TWO", journal: required, retained: 256MiB, native: {path: /opt/p4/p4_staged_server, sha256: 5e4e000000000000000000000000000000000000000000000000000000000001}, backend: hip, memory: {need: 60GiB}}
stages:
  - {node: step37-s0, host: h1, layers: 0-23,  device: ROCm0, mask: 0, endpoint: "127.0.0.1:42100"}
  - {node: step37-s1, host: h2, layers: 23-45, device: ROCm0, mask: 2, endpoint: "127.0.0.1:42101"}
` + shared)
	s := site{Plan: text, Agents: map[string]string{"h1": one, "h2": two}, Store: filepath.Join(t.TempDir(), "store"), Disk: t.TempDir()}
	s.course(t, func(up bool) {
		if up {
			kill = at["h1"].agent(t, binary, "0.0.0.0:42021", one)
		} else {
			kill()
		}
	})
}

// TestNetnsSeenFromThePeer: R4 with the kernel's own word for what an address means. The same loopback address is an agent
// on its host and nobody from the other; an identity that differs is seen; and the guard says both before anything is sent.
// With the guard off the ring loads, and then nothing arrives.
func TestNetnsSeenFromThePeer(t *testing.T) {
	t.Parallel() // it waits more than it computes
	at := places(t)
	binary := standalone(t)
	one, two := "tcp://"+at["h1"].IP+":42011", "tcp://"+at["h2"].IP+":42012"
	const alone = "tcp://127.0.0.1:42013"
	at["h1"].agent(t, binary, "0.0.0.0:42011", one)
	at["h2"].agent(t, binary, "0.0.0.0:42012", two)
	at["h2"].agent(t, binary, "0.0.0.0:42013", alone)
	at["h2"].agent(t, binary, "0.0.0.0:42014", "tcp://h2.lan:42014")
	w := ringsim.Connect(t.Context(), map[string]string{"h1": one, "h2": two})
	c := twoStages(t, w, []string{one, two})

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if in, err := c.Inspect(ctx, "h2", alone); err != nil || in.Agent != alone {
		t.Errorf("from its own host: %q %v", in.Agent, err)
	}
	if _, err := c.Inspect(ctx, "h1", alone); !errors.As(err, new(ring.Unreachable)) {
		t.Errorf("from the other host: %v", err)
	}
	for agent, says := range map[string]string{
		two:                               "",
		"tcp://" + at["h2"].IP + ":42013": "answers as \"" + alone + "\"",
		"tcp://" + at["h2"].IP + ":42014": "answers as \"tcp://h2.lan:42014\"",
		"tcp://" + at["h2"].IP + ":42015": "cannot be reached from h1",
		alone:                             "from h1 that is h1 itself",
	} {
		if got := edges(t, c, one, agent); (got == "") != (says == "") || !strings.Contains(got, says) {
			t.Errorf("%s: %q, expected %q", agent, got, says)
		}
	}

	c.mustLoad()
	if r, err := c.ask("one"); err != nil || r.Stop != ring.StopEnd {
		t.Errorf("a ring over two hosts: %+v %v", r, err)
	}
	trap := twoStages(t, ringsim.Connect(t.Context(), nil), []string{one, alone})
	for i := range trap.meta {
		trap.meta[i].Node, trap.route.Stages[i].Node = "trap"+trap.meta[i].Node, "trap"+trap.meta[i].Node
		trap.body[i].Mask = "1"
	}
	trap.via = []string{one, "tcp://" + at["h2"].IP + ":42013"} // the caller's way to it, which h1 does not know
	trap.mustLoad()
	short, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err := trap.Session(short, trap.route)
	if silent, ok := errors.AsType[ring.NoAnswer](err); !ok || silent.What != "session (1 of 2 ready)" {
		t.Errorf("guard off: %v", err)
	}
}

// edges is what R4 refuses of a ring of two agents; "": nothing.
func edges(t *testing.T, c *careless, one, two string) string {
	t.Helper()
	text := strings.NewReplacer("tcp://h1.ring:42011", one, "tcp://h2.ring:42012", "tcp://203.0.113.9:1").Replace(postPlan)
	p, err := ring.ReadPlan("ring.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p.Hosts[1].Agent = two // a loopback address is refused by the reader already
	v := &ring.View{Plan: p}
	for _, check := range ring.Checks(v, func(ctx context.Context) *ring.Survey { return ring.TakeSurvey(ctx, c.Outer, p, nil) }) {
		if check.ID != "R4" {
			continue
		}
		for _, f := range check.Run(t.Context()) {
			if f.Verdict == preflight.Refused {
				return f.String()
			}
		}
	}
	return ""
}
