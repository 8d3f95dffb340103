package ring

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-run/headway/deploylane/preflight"
)

func isUnreachable(err error) bool {
	_, is := errors.AsType[Unreachable](err)
	return is
}

// guardJournal: the operational journal is on, can be written and has room.
func guardJournal(v *View) []preflight.Finding {
	var f findings
	return v.agents(&f, func(h Host, in Inspection) {
		subject, j := "agent "+h.Name, in.Journal
		switch {
		case j == nil:
			f.unknown(subject, "it does not say whether it has an operational journal", "one that is on", askAgain)
		case !j.On || j.Dir == "":
			f.refuse(subject, "it runs without an operational journal (P4_EVENT_OUTBOUND_JOURNAL_DIR)", "one: without it every LOAD is refused", "set the folder and start the agent again; switching it off moves a symptom and mends nothing")
		case !j.Writable:
			f.refuse(subject, fmt.Sprintf("its user cannot write the journal at %q", j.Dir), "a folder of its own", "give the folder to the agent's user")
		case j.Free < JournalReserve:
			f.refuse(subject, fmt.Sprintf("the journal at %q has %s bytes of room", j.Dir, digits(j.Free)), "at least "+digits(JournalReserve), "free the disk")
		default:
			f.ok(subject, "journal at %q, %s bytes of room", j.Dir, digits(j.Free))
		}
	})
}

// guardDevices: device names are of the list that the build on that host prints.
func guardDevices(v *View) []preflight.Finding {
	var f findings
	return v.agents(&f, func(h Host, in Inspection) {
		var names []string
		for _, d := range in.Devices {
			names = append(names, d.Name)
		}
		for _, s := range v.Plan.Stages {
			if s.Host != h.Name {
				continue
			}
			subject := "stage " + s.Node
			switch {
			case in.Devices == nil || in.Native == nil:
				f.unknown(subject, fmt.Sprintf("the build on %s did not list its devices", h.Name), "a list with "+s.Device, "run its device listing by hand on that host")
			case in.Native.Backend != h.Backend:
				f.refuse(subject, fmt.Sprintf("the build on %s is %q, the plan says %q", h.Name, in.Native.Backend, h.Backend), "the backend that is installed", "install the planned build, or plan the installed one and its device names")
			case !slices.Contains(names, s.Device):
				f.refuse(subject, fmt.Sprintf("device %q is not one of %v that %s's %s build offers", s.Device, names, h.Name, in.Native.Backend), "a name of that list", "device names belong to the build, not to the card")
			case !maskFits(s.Mask, len(names)):
				f.refuse(subject, fmt.Sprintf("the mask %q names a device behind the last of %v on %s", s.Mask, names, h.Name), fmt.Sprintf("indexes below %d", len(names)), "count the devices in that list from 0")
			case !slices.Contains(masked(names, s.Mask), s.Device):
				f.refuse(subject, fmt.Sprintf("behind the mask %q on %s, device %q is not one of %v", s.Mask, h.Name, s.Device, masked(names, s.Mask)), "a name of that list", "a mask numbers anew, from 0, what it leaves")
			default:
				f.ok(subject, "%s is one of %v", s.Device, names)
			}
		}
	})
}

func maskFits(mask string, devices int) bool {
	for part := range strings.SplitSeq(mask, ",") {
		if i, err := strconv.Atoi(part); mask != "" && (err != nil || i >= devices) {
			return false
		}
	}
	return true
}

// masked is what a build calls the devices that a mask leaves: it numbers them anew.
func masked(names []string, mask string) []string {
	if mask == "" {
		return names
	}
	var out []string
	for part := range strings.SplitSeq(mask, ",") {
		if i, err := strconv.Atoi(part); err == nil && i >= 0 && i < len(names) {
			out = append(out, strings.TrimRight(names[i], "0123456789")+strconv.Itoa(len(out)))
		}
	}
	return out
}

// guardRelease: agent and native server are the plan's release, the file is the reviewed one, and it reports every
// capability that the agent and the plan want.
func guardRelease(v *View) []preflight.Finding {
	var f findings
	builds := map[string]string{} // build → first host
	v.agents(&f, func(h Host, in Inspection) {
		subject, n := h.Name, in.Native
		want := v.Plan.Engine.Release
		before := len(f)
		if in.Release == "" || n == nil || n.Release == "" || in.Needs == nil {
			f.unknown(subject, "agent or native server do not say what they are", "release "+want+" and its capabilities, asked without a model", askAgain)
			return
		}
		if in.Release != want || n.Release != want {
			f.refuse(subject, fmt.Sprintf("the agent is release %s and the native server %s", in.Release, n.Release), want, "install what the plan names, or plan what is installed")
		}
		if n.Problem != "" {
			f.refuse(subject, fmt.Sprintf("native server at %s: %s", n.Path, n.Problem), "a server that answers HELLO", "start that file by hand on its host and read what it says")
		}
		if n.Path != h.Path || n.SHA256 != h.SHA256 {
			f.refuse(subject, fmt.Sprintf("the native server is %s with sha256 %s", n.Path, n.SHA256), fmt.Sprintf("%s with %s", h.Path, h.SHA256), "install the reviewed build")
		}
		for _, need := range slices.Concat(in.Needs, v.Plan.Engine.Needs) {
			if !reports(n.Hello, need) {
				f.refuse(subject, fmt.Sprintf("native server at %s lacks capability %q that agent release %s requires", n.Path, need, in.Release), "every required capability in its HELLO", "build both from one checkout")
			}
		}
		if in.Build != "" {
			builds[in.Build] += " " + h.Name
		}
		if len(f) == before {
			f.ok(subject, "release %s, %d capabilities", in.Release, len(n.Hello))
		}
	})
	if len(builds) > 1 {
		var list []string
		for _, b := range sortedKeys(builds) {
			list = append(list, b+" on"+builds[b])
		}
		f.refuse("ring "+v.Plan.Ring, "agents of different builds: "+strings.Join(list, ", "), "one build on all hosts", "build and install from one checkout")
	}
	return f
}

// reports says that a HELLO has a capability: the name with any value, or exactly name=value.
func reports(hello []string, need string) bool {
	return slices.ContainsFunc(hello, func(c string) bool {
		name, _, _ := strings.Cut(c, "=")
		return c == need || name == need
	})
}

// guardWeights: the release's weights are on each host, by the digest that the agent computed there.
func guardWeights(v *View) []preflight.Finding {
	var f findings
	return v.agents(&f, func(h Host, in Inspection) {
		path, ok := v.Survey.model(h.Name, v.Weights.Digest)
		switch subject := "host " + h.Name; {
		case in.Models == nil || v.Weights.Digest == "":
			f.unknown(subject, "the weights were not looked at", "a file with "+first(v.Weights.Digest, "the release's digest"), "say which weights (--weights), and have the agent hash what is on its host")
		case !ok:
			f.refuse(subject, fmt.Sprintf("no file of %d has the release's digest", len(in.Models)), v.Weights.Digest, "fetch the release's weights to this host")
		default:
			f.ok(subject, "%s has the release's digest", path)
		}
	})
}

// guardFormat: the canary's prompts are rendered in the turn format that the plan names, since the engine applies none.
func guardFormat(v *View) []preflight.Finding {
	var f findings
	c, subject := v.Plan.Canary, "canary"
	switch {
	case len(v.Prompts) == 0:
		f.unknown(subject, "no prompts were read", "at least one in "+c.Prompts, "write the file, one JSON object a line")
	case c.Format == "" || c.Finish != StopEnd:
		f.refuse(subject, fmt.Sprintf("format %q, finish %q", c.Format, c.Finish), "a turn format, and an end by end-of-turn", "a prompt without its format is continued to the length limit")
	}
	for i, p := range v.Prompts {
		if p.Format != c.Format {
			f.refuse(subject, fmt.Sprintf("prompt %d is rendered as %q, the plan says %q", i+1, p.Format, c.Format), "one format", "render the prompts again")
		}
	}
	if len(f) == 0 {
		f.ok(subject, "%d prompts in format %s, ended by %s", len(v.Prompts), c.Format, c.Finish)
	}
	return f
}

// guardRequests: what clients and the canary may send fits the loaded profile.
func guardRequests(v *View) []preflight.Finding {
	var f findings
	c, s := v.Plan.Catalog, v.Plan.Shape
	if c.Output > s.Output || c.Tokens+c.Output > s.Context || c.Tokens == 0 {
		f.refuse("catalog", fmt.Sprintf("clients may send %d tokens and ask for %d", c.Tokens, c.Output), fmt.Sprintf("at most %d to ask for and %d in all, which is what is loaded", s.Output, s.Context), "lower the catalog's limits, or load a larger profile")
	}
	for i, p := range v.Prompts {
		if out := uint64(max(p.MaxTokens, 0)); out == 0 || out > s.Output || out > s.Context {
			f.refuse("canary", fmt.Sprintf("prompt %d asks for %d tokens", i+1, p.MaxTokens), fmt.Sprintf("1 to %d", s.Output), "ask for less, or load a larger profile")
		}
	}
	if len(f) == 0 {
		f.ok("catalog", "%d + %d tokens of %d", c.Tokens, c.Output, s.Context)
	}
	return f
}

// guardMemory: memory for the load is free, counting what the load to be replaced gives back.
func guardMemory(v *View) []preflight.Finding {
	var f findings
	return v.agents(&f, func(h Host, in Inspection) {
		subject := "host " + h.Name
		if in.Memory == nil {
			f.unknown(subject, "its memory was not measured", digits(h.Need)+" bytes free", askAgain)
			return
		}
		free, back := in.Memory.Free, uint64(0)
		for _, n := range in.Nodes {
			if v.ours(n) {
				back += n.Resident
			}
		}
		if free+back < h.Need || free+back < free {
			f.refuse(subject, fmt.Sprintf("%s bytes are free and %s come back by the unload", digits(free), digits(back)), "at least "+digits(h.Need), "find out who holds the memory: the load before may not have given it back")
			return
		}
		f.ok(subject, "%s bytes free, %s come back, %s needed", digits(free), digits(back), digits(h.Need))
	})
}

// guardSlots: an agent takes as many more connections as the ring needs of it.
func guardSlots(v *View) []preflight.Finding {
	var f findings
	return v.agents(&f, func(h Host, in Inspection) {
		need := 2 // a command of the lane, and the canary's session
		for _, e := range v.Plan.Edges() {
			if v.Plan.Stages[e.To].Host == h.Name {
				need++
			}
		}
		switch subject := "agent " + h.Name; {
		case in.Slots == nil:
			f.unknown(subject, "it does not say how many connections are free", strconv.Itoa(need), askAgain)
		case in.Slots.Free < need:
			f.refuse(subject, fmt.Sprintf("%d of %d connections are free", in.Slots.Free, in.Slots.Total), fmt.Sprintf("at least %d: at none it accepts nobody, and says nothing", need), "a client that left without FINISH leaks one for ever; restart the agent when nothing is loaded")
		default:
			f.ok(subject, "%d of %d connections are free, %d needed", in.Slots.Free, in.Slots.Total, need)
		}
	})
}

// guardUnload: what is to be unloaded first is what the record of its load names, or is gone.
func guardUnload(v *View) []preflight.Finding {
	var f findings
	if v.Replaces == nil {
		f.ok("ring "+v.Plan.Ring, "nothing is unloaded first")
		return f
	}
	for _, s := range v.Replaces.Stages {
		subject := "node " + s.Node
		host := hostOf(v.Plan, s)
		l, ok := v.Survey.look("", host)
		n, there := v.Survey.node(host, s.Node)
		switch {
		case !ok && l.Err != nil:
			f.unknown(subject, l.Err.Error(), "to see at "+s.Agent+" whether it exists", askAgain)
		case !ok:
			f.unknown(subject, "agent "+s.Agent+" was not inspected", "to see whether it exists", "inspect it")
		case !there:
			f.ok(subject, "it is gone, and no UNLOAD names it")
		case n.Generation != v.Replaces.Generation:
			f.refuse(subject, fmt.Sprintf("it exists at generation %d, the record of its load says %d", n.Generation, v.Replaces.Generation), "one number", "find the record that names the other")
		case n.Resource == Unknown:
			f.refuse(subject, "what it holds is unknown to its agent", "present or absent", "a person has to look at the host")
		default:
			f.ok(subject, "it exists at generation %d", n.Generation)
		}
	}
	return f
}

// guardLayers: the layers of the stages are those of the model, each once.
func guardLayers(v *View) []preflight.Finding {
	var f findings
	subject, next := "ring "+v.Plan.Ring, 0
	if v.Weights.Layers <= 0 {
		f.unknown(subject, "the model's number of layers is not known", "what the release's record says", "say which weights (--weights)")
		return f
	}
	for _, s := range v.Plan.Stages {
		if s.Layers[0] != next || s.Layers[1] <= s.Layers[0] {
			f.refuse("stage "+s.Node, fmt.Sprintf("layers [%d, %d) behind those up to %d", s.Layers[0], s.Layers[1], next), fmt.Sprintf("a beginning of %d", next), "the layers of the stages tile the model")
		}
		next = s.Layers[1]
	}
	if next != v.Weights.Layers {
		f.refuse(subject, fmt.Sprintf("the stages end at layer %d", next), fmt.Sprintf("%d, the layers of the model", v.Weights.Layers), "plan the stages for this model")
	}
	if len(f) == 0 {
		f.ok(subject, "%d layers in %d stages", next, len(v.Plan.Stages))
	}
	return f
}

// guardReleaser: nobody else releases to this ring.
func guardReleaser(v *View) []preflight.Finding {
	var f findings
	switch subject := "ring " + v.Plan.Ring; {
	case !v.Lease.Known:
		f.unknown(subject, "the ring's lease was not read", "nobody else's", "give the lane's store")
	case v.Lease.Other != "" && !v.Lease.Ours:
		f.refuse(subject, "another release holds it: "+v.Lease.Other, "one ring, one releaser", "wait for it, or let a person end its lease when that process is gone")
	default:
		f.ok(subject, "nobody else releases to it")
	}
	return f
}
