package ring

import (
	"fmt"
	"strings"
)

// Standing is how a node of a load was found.
type Standing string

const (
	Missing  Standing = "missing"  // its agent answers and has no such node
	Loading  Standing = "loading"  // at this generation
	Loaded   Standing = "loaded"   // at this generation, ready
	Broken   Standing = "broken"   // at this generation, failed or stopped, or with two numbers
	Stranger Standing = "stranger" // at a generation that no open record names
	Unclear  Standing = "unclear"  // its agent does not know what it holds
	Unseen   Standing = "unseen"   // its agent did not answer
)

// Found is one node of a load, as an inspection shows it.
type Found struct {
	IntentStage
	Standing   Standing
	Generation uint64 // that it is registered with
	Detail     string // the engine's words
}

// find says how the nodes of a load stand. others are generations of other open loads, whose nodes are not strangers.
func find(i *Intent, s *Survey, others map[uint64]bool) []Found {
	var out []Found
	for _, st := range i.Stages {
		f := Found{IntentStage: st, Standing: Missing}
		n, there := s.node(st.Host, st.Node)
		l, seen := s.look("", st.Host)
		f.Generation, f.Detail = n.Generation, clip(n.State)
		switch {
		case !seen:
			f.Standing, f.Detail = Unseen, "it was not inspected"
			if l.Err != nil {
				f.Detail = bounded(l.Err.Error())
			}
		case l.Inspection.Agent != st.Agent:
			f.Standing, f.Detail = Unseen, fmt.Sprintf("%q answers at %s", clip(l.Inspection.Agent), st.Agent)
		case !there:
		case n.Generation != i.Generation && others[n.Generation]:
		case n.Generation != i.Generation:
			f.Standing = Stranger
		case n.Resource == Unknown:
			f.Standing = Unclear
		case n.State == "loading":
			f.Standing = Loading
		case n.State == "ready" && n.Resource == Present && (n.Load == nil || *n.Load == n.Generation):
			f.Standing = Loaded
		default:
			f.Standing = Broken
		}
		out = append(out, f)
	}
	return out
}

// Situation is all that a decision about one load needs.
type Situation struct {
	Store  error   // why the records could not be read; nil: they were
	Intent *Intent // nil: no record names a load
	Ledger Ledger
	Found  []Found
	Late   bool // the time that loading or an answer may take is over
}

// Do is the next step of a load.
type Do string

const (
	DoNothing  Do = "nothing"   // it serves, or is closed, or nothing can be known
	DoStart    Do = "start"     // nothing of ours happened
	DoAbandon  Do = "abandon"   // close the record: no command left
	DoMarkSent Do = "mark sent" // the command left before its event was written
	DoWait     Do = "wait"      // look again until the deadline
	DoCanary   Do = "canary"    // prove it, then switch
	DoTakeBack Do = "take back" // clear the catalog, unload exactly what exists
	DoClose    Do = "close"     // everything is absent: gone
	DoAdopt    Do = "adopt"     // nodes without any record: a person has to vouch for their generation
	DoStop     Do = "stop"      // a person; change nothing more
)

// Decision is a step, why, and the nodes that it is about.
type Decision struct {
	Do    Do
	Nodes []IntentStage // DoTakeBack: to unload; DoMarkSent: that are there
	Why   string
}

// Decide is the table of ring.md §5.3: what to do next with a load, from its record and from what is found. It is used
// alike after a crash and in the ordinary course.
func Decide(s Situation) Decision {
	is := count(s.Found)
	present := nodes(s.Found, Loaded, Broken, Loading)
	switch l := s.Ledger; {
	case s.Store != nil:
		return Decision{Do: DoNothing, Why: "the store cannot be read, and the local record is evidence, not authority: " + s.Store.Error()}
	case s.Intent == nil && len(s.Found) > is[Missing]+is[Unseen]:
		return Decision{Do: DoAdopt, Why: "nodes without a record: " + list(s.Found, Stranger, Loaded, Loading, Broken, Unclear)}
	case s.Intent == nil:
		return Decision{Do: DoStart, Why: "no record names a load"}
	case l.Closed != "":
		return Decision{Do: DoNothing, Why: "it is closed: " + string(l.Closed)}
	case is[Unclear] > 0:
		return Decision{Do: DoStop, Why: "an agent does not know what it holds: " + list(s.Found, Unclear)}
	case is[Stranger] > 0:
		return Decision{Do: DoStop, Why: fmt.Sprintf("not ours: the record says generation %d, found %s", s.Intent.Generation, list(s.Found, Stranger))}
	case is[Unseen] > 0 && !s.Late:
		return Decision{Do: DoWait, Why: "no answer: " + list(s.Found, Unseen)}
	case is[Unseen] > 0:
		return Decision{Do: DoStop, Why: "no answer, so nothing is known of " + list(s.Found, Unseen)}
	case !l.Sent && len(present) == 0:
		return Decision{Do: DoAbandon, Why: "no command left"}
	case !l.Sent:
		return Decision{Do: DoMarkSent, Nodes: present, Why: "a command left before its event was written: " + list(s.Found, Loaded, Broken, Loading)}
	case len(present) == 0:
		return Decision{Do: DoClose, Why: "every node is absent"}
	case is[Loading] > 0 && !s.Late:
		return Decision{Do: DoWait, Why: "still loading: " + list(s.Found, Loading)}
	case is[Loaded] < len(s.Found):
		return Decision{Do: DoTakeBack, Nodes: present, Why: "not whole: " + list(s.Found, Missing, Broken, Loading)}
	case l.Failed:
		return Decision{Do: DoTakeBack, Nodes: present, Why: "it failed"}
	case l.Unloads:
		return Decision{Do: DoTakeBack, Nodes: present, Why: "its unload had begun"}
	case l.Serving:
		return Decision{Do: DoNothing, Why: "it serves"}
	}
	return Decision{Do: DoCanary, Why: "every stage is loaded"}
}

func count(all []Found) map[Standing]int {
	out := map[Standing]int{}
	for _, f := range all {
		out[f.Standing]++
	}
	return out
}

func nodes(all []Found, want ...Standing) []IntentStage {
	var out []IntentStage
	for _, f := range all {
		for _, w := range want {
			if f.Standing == w {
				out = append(out, f.IntentStage)
			}
		}
	}
	return out
}

func list(all []Found, want ...Standing) string {
	var out []string
	for _, f := range all {
		for _, w := range want {
			if f.Standing == w {
				out = append(out, fmt.Sprintf("node %s on %s %s (generation %d) %s", f.Node, f.Agent, f.Standing, f.Generation, f.Detail))
			}
		}
	}
	return strings.Join(out, "; ")
}
