package ring

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/headway-run/headway/deploylane/preflight"
)

// askAgain is what to do about an agent that was asked and said nothing, or not this.
const askAgain = "is the agent up, and of the plan's release? ask it again"

// JournalReserve is the room that an agent's journal must have, bytes.
const JournalReserve = 1 << 30

// guard is one rule of the post-mortem, as a function of what is known.
type guard struct {
	id    string
	class preflight.Class
	cost  preflight.Cost
	look  func(*View) []preflight.Finding
}

// guards is the table of rules. A rule with a part that needs nobody's answer stands twice, so that this part comes first.
var guards = []guard{
	{"R2", preflight.Equal, preflight.Free, guardRecords},
	{"R3", preflight.Derived, preflight.Free, guardBound},
	{"R4", preflight.FromPeer, preflight.Free, guardAddresses},
	{"R8", preflight.Twice, preflight.Free, guardFormat},
	{"R9", preflight.Derived, preflight.Free, guardRequests},
	{"R13", preflight.Derived, preflight.Free, guardLayers},
	{"R14", preflight.Claimed, preflight.Free, guardReleaser},
	{"R1", preflight.Addressee, preflight.Network, guardAddressee},
	{"R2", preflight.Equal, preflight.Network, guardGeneration},
	{"R3", preflight.Derived, preflight.Network, guardStore},
	{"R4", preflight.FromPeer, preflight.Network, guardEdges},
	{"R5", preflight.Required, preflight.Network, guardJournal},
	{"R10", preflight.Service, preflight.Network, guardMemory},
	{"R11", preflight.Service, preflight.Network, guardSlots},
	{"R12", preflight.Addressee, preflight.Network, guardUnload},
	{"R6", preflight.Inventory, preflight.Process, guardDevices},
	{"R7", preflight.Release, preflight.Process, guardRelease},
	{"W1", preflight.Release, preflight.Process, guardWeights},
}

// Checks are the guards of a view, for preflight.Run. survey is called before the first guard that needs an agent's
// answer, once; nil: the view has its survey, or none.
func Checks(v *View, survey func(context.Context) *Survey) []preflight.Check {
	var out []preflight.Check
	asked := survey == nil
	for _, g := range guards {
		out = append(out, preflight.Check{ID: g.id, Class: g.class, Cost: g.cost, Run: func(ctx context.Context) []preflight.Finding {
			if g.cost > preflight.Free && !asked {
				v.Survey, asked = survey(ctx), true
			}
			return g.look(v)
		}})
	}
	return out
}

// findings collects what one guard says.
type findings []preflight.Finding

func (f *findings) ok(subject, found string, args ...any) {
	*f = append(*f, preflight.Finding{Subject: subject, Verdict: preflight.OK, Found: bounded(fmt.Sprintf(found, args...))})
}

func (f *findings) refuse(subject, found, expected, fix string) {
	*f = append(*f, preflight.Finding{Subject: subject, Verdict: preflight.Refused, Found: bounded(found), Expected: expected, Fix: fix})
}

func (f *findings) unknown(subject, found, expected, fix string) {
	*f = append(*f, preflight.Finding{Subject: subject, Verdict: preflight.Unknown, Found: bounded(found), Expected: expected, Fix: fix})
}

// agents calls look for each host's answer as seen from here; one without an answer is unknown.
func (v *View) agents(f *findings, look func(h Host, in Inspection)) []preflight.Finding {
	for _, h := range v.Plan.Hosts {
		l, ok := v.Survey.look("", h.Name)
		switch {
		case ok:
			look(h, l.Inspection)
		case l.Err != nil:
			f.unknown("agent "+h.Name, l.Err.Error(), "an answer to INSPECT from "+h.Agent, askAgain)
		default:
			f.unknown("agent "+h.Name, "it was not inspected", "an answer to INSPECT from "+h.Agent, "inspect it")
		}
	}
	return *f
}

// guardAddressee: each stage's agent answers, and the node that a LOAD would create is not there.
func guardAddressee(v *View) []preflight.Finding {
	var f findings
	return v.agents(&f, func(h Host, in Inspection) {
		for _, s := range v.Plan.Stages {
			if s.Host != h.Name {
				continue
			}
			switch n, there := v.Survey.node(h.Name, s.Node); {
			case !there:
				f.ok("stage "+s.Node, "agent %s answers, and has no such node", h.Agent)
			case v.ours(n):
				f.ok("stage "+s.Node, "registered at %d, which is unloaded first", n.Generation)
			default:
				f.refuse("stage "+s.Node, fmt.Sprintf("node %s is registered on agent %s at generation %d (%s)", s.Node, h.Agent, n.Generation, n.State),
					"an agent without it: a LOAD for a registered node is rejected, even of the same plan", "unload it by the record of its load, or find out whose it is")
			}
		}
	})
}

// guardRecords: the load's one generation is above every recorded one.
func guardRecords(v *View) []preflight.Finding {
	var f findings
	subject := "ring " + v.Plan.Ring
	if !v.Known {
		f.unknown(subject, "the records of earlier loads were not read", "every generation that this ring ever had", "give the lane's store")
		return f
	}
	return above(f, subject, v.Generation, v.Recorded)
}

func above(f findings, subject string, generation uint64, all []Recorded) findings {
	if generation == 0 {
		f.unknown(subject, "no generation could be chosen", "one above all that were ever used", "find out which record or agent shows a number near the last one, 2^53")
		return f
	}
	for _, r := range all {
		if generation <= r.Generation {
			f.refuse(subject, fmt.Sprintf("generation %d is not above %d, recorded in %s", generation, r.Generation, r.Where),
				"a greater one: a number that was used collides with what a failed load left", "is this clock behind? the lane takes the store's, or the greatest recorded one and one more")
		}
	}
	if len(f) == 0 {
		f.ok(subject, "generation %d is above %d recorded ones", generation, len(all))
	}
	return f
}

// guardGeneration: the generation is above all that agents show, and every node that is loaded has one number for its
// load and for itself.
func guardGeneration(v *View) []preflight.Finding {
	var f findings
	v.agents(&f, func(h Host, in Inspection) {
		for _, n := range in.Nodes {
			if n.Load != nil && *n.Load != n.Generation {
				f.refuse("agent "+h.Name, fmt.Sprintf("generation %d (node %s) differs from load generation %d", n.Generation, n.ID, *n.Load),
					"one number: a ring loaded with two loses its head at the first release", "unload it; the lane writes both from one variable")
			}
		}
	})
	if len(f) > 0 {
		return f
	}
	return above(f, "ring "+v.Plan.Ring, v.Generation, v.seen())
}

// BoundOf derives the bound that the stage server of stage i will report. An error is a release without vectors, an
// architecture without a recorded cut, or a shape that no engine takes.
func (p *Plan) BoundOf(w Weights, i int) (uint64, error) {
	f, err := FormulaOf(p.Engine.Release)
	if err != nil {
		return 0, err
	}
	in, err := p.boundInput(f, w, i)
	if err != nil {
		return 0, err
	}
	b, err := f.Bound(in)
	return b.Reported(), err
}

func (p *Plan) boundInput(f Formula, w Weights, i int) (BoundInput, error) {
	in := BoundInput{Batch: p.Shape.Batch, Ubatch: p.Shape.Ubatch, Parallel: p.Shape.Parallel, Hidden: w.Hidden}
	if i == len(p.Stages)-1 {
		return in, nil // a tail cuts nothing
	}
	t, ok := f.Tensors(w.Arch)
	if !ok || w.Hidden == 0 {
		return in, fmt.Errorf("architecture %q (hidden %d) on %s: %w", w.Arch, w.Hidden, f.Release, ErrNoVector)
	}
	in.Tensors = t
	return in, nil
}

// guardBound: the derived bound of each stage fits the completion cap, and that the store.
func guardBound(v *View) []preflight.Finding {
	var f findings
	s := v.Plan.Shape
	for i, st := range v.Plan.Stages {
		subject := "stage " + st.Node
		bound, err := v.Plan.BoundOf(v.Weights, i)
		host := v.Plan.Host(st.Host)
		switch {
		case err != nil:
			f.unknown(subject, "its result bound is not known: "+err.Error(), "a release and a model that vectors are held for", "add the release with its vectors; it is not probably the same")
		case bound > s.Completion:
			nor := ""
			if bound > host.Retained {
				nor = " nor the agent's store of " + digits(host.Retained)
			}
			f.refuse(subject, fmt.Sprintf("largest result %s bytes at n_batch %d × n_ubatch %d cannot fit the completion cap of %s%s", digits(bound), s.Batch, s.Ubatch, digits(s.Completion), nor),
				"at most "+digits(s.Completion), v.fits(i, s.Completion))
		case s.Completion > host.Retained:
			f.refuse(subject, fmt.Sprintf("the completion cap of %s bytes exceeds the agent's store of %s", digits(s.Completion), digits(host.Retained)), "a cap that the store can hold", "lower the cap, or give the agent a greater store")
		default:
			f.ok(subject, "largest result %s bytes, cap %s, store %s", digits(bound), digits(s.Completion), digits(host.Retained))
		}
	}
	return f
}

// fits says what would fit a cap.
func (v *View) fits(stage int, limit uint64) string {
	formula, err := FormulaOf(v.Plan.Engine.Release)
	if err != nil {
		return ""
	}
	in, err := v.Plan.boundInput(formula, v.Weights, stage)
	if err != nil {
		return ""
	}
	var parts []string
	for _, batch := range slices.Compact([]uint64{min(128, in.Batch), in.Batch}) {
		in.Batch = batch
		if u := formula.LargestUbatch(in, limit); u > 0 {
			parts = append(parts, fmt.Sprintf("at n_batch %d the largest n_ubatch that fits is %d", batch, u))
		}
	}
	if b := formula.LargestBatch(in, limit); b > 0 {
		parts = append(parts, fmt.Sprintf("at n_ubatch %d the largest n_batch is %d", in.Ubatch, b))
	}
	return strings.Join(parts, ", ")
}

// guardStore: the store that an agent really has is the one of the plan, against which the cap was held.
func guardStore(v *View) []preflight.Finding {
	var f findings
	return v.agents(&f, func(h Host, in Inspection) {
		switch subject := "agent " + h.Name; {
		case in.Retained == nil:
			f.unknown(subject, "it does not say how large its store is", "at least "+digits(h.Retained), askAgain)
		case *in.Retained < h.Retained: // a LOAD asks for what the plan says, and is held against the store after the weights were read
			f.refuse(subject, fmt.Sprintf("its store holds %s bytes, the plan says %s", digits(*in.Retained), digits(h.Retained)), "at least "+digits(h.Retained), "start it with the store that the plan says, or plan the one that it has")
		default:
			f.ok(subject, "its store holds %s bytes", digits(*in.Retained))
		}
	})
}

// guardAddresses: no address that another host dials means that host itself.
func guardAddresses(v *View) []preflight.Finding {
	var f findings
	for _, e := range v.Plan.Edges() {
		from, to := v.Plan.Stages[e.From], v.Plan.Stages[e.To]
		h := v.Plan.Host(to.Host)
		subject := fmt.Sprintf("edge %s → %s", from.Node, to.Node)
		name, ok := agentAddress(h.Agent)
		switch why := unreachable(name); {
		case from.Host == to.Host:
			f.ok(subject, "inside host %s", to.Host)
		case !ok:
			f.refuse(subject, fmt.Sprintf("agent %s advertises %q", h.Name, h.Agent), "tcp://host:port", "write it byte for byte as the agent advertises itself")
		case why != "":
			f.refuse(subject, fmt.Sprintf("agent %s advertises %s, %s; from %s that is %s itself", h.Name, strings.TrimPrefix(h.Agent, "tcp://"), why, from.Host, from.Host), "an address that "+from.Host+" reaches "+h.Name+" at", "advertise the host's name or address in the ring's network")
		default:
			f.ok(subject, "agent %s advertises %s", h.Name, h.Agent)
		}
	}
	if len(f) == 0 {
		f.ok("ring "+v.Plan.Ring, "one stage, no edges")
	}
	return f
}

// guardEdges: dialled from the stage before, each agent answers as what it advertises.
func guardEdges(v *View) []preflight.Finding {
	var f findings
	v.agents(&f, func(h Host, in Inspection) { identity(&f, "agent "+h.Name, "here", h, in) })
	for _, e := range v.Plan.Edges() {
		from, to := v.Plan.Stages[e.From], v.Plan.Stages[e.To]
		if from.Host == to.Host {
			continue
		}
		subject, h := fmt.Sprintf("edge %s → %s", from.Node, to.Node), v.Plan.Host(to.Host)
		l, ok := v.Survey.look(from.Host, to.Host)
		switch {
		case ok:
			identity(&f, subject, from.Host, *h, l.Inspection)
		case l.Err != nil && isUnreachable(l.Err):
			f.refuse(subject, l.Err.Error(), fmt.Sprintf("agent %s at %s, dialled from %s", h.Name, h.Agent, from.Host), "let "+from.Host+" reach it, or advertise an address that it reaches")
		case l.Err != nil:
			f.unknown(subject, l.Err.Error(), fmt.Sprintf("an answer from %s, dialled from %s", h.Agent, from.Host), askAgain)
		default:
			f.unknown(subject, "it was not dialled from "+from.Host, "an answer from "+h.Agent, "inspect it from there")
		}
	}
	return f
}

func identity(f *findings, subject, from string, h Host, in Inspection) {
	if in.Agent != h.Agent {
		f.refuse(subject, fmt.Sprintf("dialled from %s, agent %s answers as %q, the plan says %q", from, h.Name, in.Agent, h.Agent), "one string, byte for byte: what differs is forwarded into silence", "write what it answers, or start it with what is written")
		return
	}
	f.ok(subject, "dialled from %s, it answers as %s", from, in.Agent)
}
