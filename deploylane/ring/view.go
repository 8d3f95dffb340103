package ring

import (
	"context"
	"sync"
	"time"
)

// inspectAge is how old an inspection may be when a command is sent because of it.
const inspectAge = 60 * time.Second

// inspectTime is the deadline of one inspection. An agent asks its native server for capabilities and devices in it.
const inspectTime = 30 * time.Second

// Look is one answer to an inspection, or why there is none.
type Look struct {
	Inspection Inspection
	Err        error
	At         time.Time // this process's clock
}

// pair is an inspection of a host's agent, dialled from a host; From "": from here.
type pair struct{ From, Host string }

// Survey is what the agents of a ring said of themselves.
type Survey struct{ looks map[pair]Look }

// TakeSurvey inspects every agent from here, and from each host whose stages will dial it; of the load that is to be replaced
// (nil: none), the agents that the plan has no more too. It never fails: an inspection that did is a Look with an error.
func TakeSurvey(ctx context.Context, e Engine, p *Plan, replaces *Intent) *Survey {
	asks := map[pair]string{} // → address
	for _, h := range p.Hosts {
		asks[pair{"", h.Name}] = h.Agent
	}
	if replaces != nil {
		for _, st := range replaces.Stages {
			asks[pair{"", hostOf(p, st)}] = st.Agent
		}
	}
	for _, edge := range p.Edges() {
		from, to := p.Stages[edge.From].Host, p.Stages[edge.To].Host
		if from != to {
			asks[pair{from, to}] = p.Host(to).Agent
		}
	}
	s := &Survey{looks: map[pair]Look{}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for ask, address := range asks {
		wg.Go(func() {
			within, cancel := context.WithTimeout(ctx, inspectTime)
			defer cancel()
			began := time.Now()
			in, err := e.Inspect(within, Viewpoint(ask.From), address)
			err = silence(within, err, NoAnswer{To: address, What: "INSPECT", After: time.Since(began)})
			mu.Lock()
			defer mu.Unlock()
			s.looks[ask] = heard(in, address, err)
		})
	}
	wg.Wait()
	return s
}

// hostOf is where a survey keeps the agent of a stage of an earlier load: with the plan's host that has it, whatever that is called by
// now, or by its address (no host's name has that form).
func hostOf(p *Plan, st IntentStage) string {
	for _, h := range p.Hosts {
		if h.Agent == st.Agent {
			return h.Name
		}
	}
	return st.Agent
}

// heard keeps an answer that a guard may look at.
func heard(in Inspection, address string, err error) Look {
	if why := in.sane(); err == nil && why != "" {
		in, err = Inspection{}, Foreign{From: address, Why: why}
	}
	return Look{Inspection: in, Err: err, At: time.Now()}
}

// SurveyOf makes a survey of inspections that were taken before: for each, the host that it was dialled from and the
// address say what it answers.
func SurveyOf(p *Plan, all []Inspection) *Survey {
	s := &Survey{looks: map[pair]Look{}}
	for _, in := range all { // an agent of an earlier plan is kept by its address
		s.looks[pair{string(in.From), hostOf(p, IntentStage{Agent: in.Dialled})}] = heard(in, in.Dialled, nil)
	}
	return s
}

// look is an answer as seen from a host; ok: there is one that says anything.
func (s *Survey) look(from, host string) (Look, bool) {
	if s == nil {
		return Look{}, false
	}
	l, ok := s.looks[pair{from, host}]
	return l, ok && l.Err == nil
}

// node finds a registered node on a host's agent, as seen from here.
func (s *Survey) node(host, id string) (Node, bool) {
	l, _ := s.look("", host)
	for _, n := range l.Inspection.Nodes {
		if n.ID == id {
			return n, true
		}
	}
	return Node{}, false
}

// model is the path of a host's weights with a digest.
func (s *Survey) model(host, digest string) (string, bool) {
	l, _ := s.look("", host)
	for _, m := range l.Inspection.Models {
		if m.Digest == digest && digest != "" {
			return m.Path, true
		}
	}
	return "", false
}

// View is everything that the guards of a load look at.
type View struct {
	Plan       *Plan
	Weights    Weights
	Generation uint64     // of the load that is to come; 0: none can be chosen
	Recorded   []Recorded // every generation that is known of this ring's nodes
	Known      bool       // Recorded is complete: both records were read
	Replaces   *Intent    // the load that serves now and is unloaded first; nil: none
	Prompts    []Prompt   // of the canary
	Lease      Releaser
	Survey     *Survey
}

// Recorded is a generation and where it stands.
type Recorded struct {
	Generation uint64
	Where      string // a key, a file, or "node x on agent y"
}

// Releaser says who may release to the ring.
type Releaser struct {
	Known bool   // the ring's lease was read
	Ours  bool   // this process holds it
	Other string // who does, when another one does
}

// ours says that a node is one that the load to be replaced has left.
func (v *View) ours(n Node) bool {
	return v.Replaces != nil && v.Replaces.Generation == n.Generation && v.Replaces.names(n.ID)
}

// seen lists the generations that agents show for the plan's nodes, those that are gone included.
func (v *View) seen() []Recorded {
	var out []Recorded
	for _, s := range v.Plan.Stages {
		l, ok := v.Survey.look("", s.Host)
		if !ok {
			continue
		}
		agent := l.Inspection.Agent
		for _, n := range l.Inspection.Nodes {
			if n.ID == s.Node {
				out = append(out, Recorded{n.Generation, "node " + n.ID + " on " + agent})
				if n.Load != nil {
					out = append(out, Recorded{*n.Load, "the load of node " + n.ID + " on " + agent})
				}
			}
		}
		for _, b := range l.Inspection.Buried {
			if b.ID == s.Node {
				out = append(out, Recorded{b.Generation, "a former node " + b.ID + " on " + agent})
			}
		}
	}
	return out
}
