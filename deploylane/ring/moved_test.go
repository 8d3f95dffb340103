package ring_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/headway-run/headway/deploylane/ring"
	"github.com/headway-run/headway/deploylane/ringsim"
)

// threeHosts is the post's world and a third host, which its ring does not use.
func threeHosts(c *ringsim.Config) {
	h := c.Hosts[1]
	h.Name, h.Listen, h.Advertise = "h3", "0.0.0.0:42013", "tcp://h3.ring:42013"
	c.Hosts = append(c.Hosts, h)
}

// TestRingMoves: a new plan may leave a host, and may call one that stays another name: what the old load has on the agents that the
// plan has no more is looked at, and unloaded.
func TestRingMoves(t *testing.T) {
	for what, now := range map[string]string{
		"to another host":                  strings.NewReplacer("h2: {", "h3: {", "host: h2", "host: h3", "tcp://h2.ring:42012", "tcp://h3.ring:42013").Replace(ringPlan),
		"to another host of the same name": strings.NewReplacer("tcp://h2.ring:42012", "tcp://h3.ring:42013").Replace(ringPlan),
		"to another name of a host":        strings.NewReplacer("h1: {", "a: {", "host: h1", "host: a").Replace(ringPlan),
	} {
		inWorld(t, t.TempDir(), threeHosts, func(t *testing.T, p *place) {
			p.mustServe("r1")
			r2 := release("r2")
			r2.Plan = []byte(now)
			l := p.lane(&life{})
			report, err := l.Preflight(t.Context(), r2, nil)
			if err != nil || report.Blocked {
				t.Errorf("%s: %v, %v", what, report.Blocking(), err)
			}
			for _, f := range report.Findings {
				if f.Rule == "R12" && !strings.Contains(f.Found, "it exists at generation") {
					t.Errorf("%s: %s", what, f)
				}
			}
			out, err := l.Release(t.Context(), r2, nil)
			if err != nil || out.Release != "r2" {
				t.Fatalf("%s: %+v, %v", what, out, err)
			}
			for _, at := range []string{"tcp://h1.ring:42011", "tcp://h2.ring:42012", "tcp://h3.ring:42013"} {
				in, err := l.Engine.Inspect(t.Context(), "", at)
				if err != nil || slices.ContainsFunc(in.Nodes, func(n ring.Node) bool { return n.Generation != out.Serving }) {
					t.Errorf("%s: left at %s: %+v, %v", what, at, in.Nodes, err)
				}
			}
		})
	}
}

// TestRingMovesFromSilence: the agent that a ring is to leave does not answer, so that what it holds is not known: unknown blocks, says
// who it was and for how long it was asked, and nothing is sent.
func TestRingMovesFromSilence(t *testing.T) {
	inWorld(t, t.TempDir(), threeHosts, func(t *testing.T, p *place) {
		p.mustServe("r1")
		p.w.Freeze("h2", true)
		r2, l := release("r2"), &life{}
		r2.Plan = []byte(strings.NewReplacer("tcp://h2.ring:42012", "tcp://h3.ring:42013").Replace(ringPlan))
		_, err := p.lane(l).Release(t.Context(), r2, nil)
		b, is := errors.AsType[ring.Blocked](err)
		if !is || l.n != 0 {
			t.Fatalf("%v after %v", err, l.what)
		}
		for _, f := range b.Report.Blocking() {
			if f.Rule != "R12" || !strings.Contains(f.String(), "no answer to INSPECT from tcp://h2.ring:42012 after 30s") || f.Fix == "" {
				t.Errorf("%s", f)
			}
		}
	})
}
