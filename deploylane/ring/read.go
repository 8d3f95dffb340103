package ring

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-run/headway/plan"
)

// Bounds of a ring plan.
const (
	maxStages = 256
	maxLayers = 10_000
	maxNeeds  = 64
	maxBatch  = 1 << 20 // rows
)

var capability = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*(=[^ ;]+)?$`)
var sha256Hex = regexp.MustCompile(`^[0-9a-f]{64}$`)
var deviceMask = regexp.MustCompile(`^\d{1,3}(,\d{1,3}){0,63}$`)

// derived is the table of keys that people write from memory, and what each follows from.
var derived = map[string]string{
	"generation":                "the store's clock and every generation that was ever recorded",
	"generations":               "the store's clock and every generation that was ever recorded",
	"load_generation":           "the store's clock and every generation that was ever recorded",
	"node_generation":           "the store's clock and every generation that was ever recorded",
	"bound":                     "batch, ubatch, parallel and the model's cut",
	"max_physical_result_bytes": "batch, ubatch, parallel and the model's cut",
	"kv":                        "the stage's layers",
	"gpu_layers":                "the stage's layers",
	"n_gpu_layers":              "the stage's layers",
	"overrides":                 "the layers of the other stages",
	"tensor_overrides":          "the layers of the other stages",
	"edges":                     "the order of the stages",
	"request_limit":             "the shape",
	"model":                     "the release, which names its weights by digest",
	"weights":                   "the release, which names its weights by digest",
}

// ReadPlan reads a ring plan; file is what errors call it. A plan is returned only without any error; the error is a
// plan.DocumentError with every problem as a line file:line:col: found: expected …; fix.
func ReadPlan(file string, data []byte) (*Plan, error) {
	doc := plan.ReadDocument(file, data)
	sum := sha256.Sum256(data)
	r := reader{p: &Plan{Digest: hex.EncodeToString(sum[:])}, agents: map[string]plan.Value{}, listen: map[string]plan.Value{}}
	f := r.fields(doc.Root(), "ring", "engine", "hosts", "shape", "stages", "canary", "switch")
	r.p.Ring = f["ring"].Required("ring: the ring's name").Word("")
	r.engine(f["engine"])
	r.hosts(f["hosts"])
	r.shape(f["shape"])
	r.stages(f["stages"])
	r.canary(f["canary"])
	r.catalog(f["switch"])
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return r.p, nil
}

type reader struct {
	p      *Plan
	agents map[string]plan.Value // host → where its agent is given
	listen map[string]plan.Value // host → where it is given what its agent listens at
}

// fields are the known keys of a mapping; one that is derived is refused in words of its own.
func (r *reader) fields(v plan.Value, known ...string) map[string]plan.Value {
	keys := slices.Clone(known) // those that are there alone: a message about another key lists what may be written
	for k := range v.Entries() {
		if _, is := derived[k]; is {
			keys = append(keys, k)
		}
	}
	f := v.Fields(keys...)
	for _, k := range keys {
		if from, is := derived[k]; is && f[k].Given() {
			f[k].Refuse("Derived", f[k].Name()+" is a literal for a derived value", "no "+k+": it follows from "+from, "delete it")
		}
	}
	return f
}

func (r *reader) engine(v plan.Value) {
	f := r.fields(v.Required("engine: {adapter: …, release: …, needs: […]}"), "adapter", "release", "needs")
	e := &r.p.Engine
	e.Adapter = f["adapter"].Required("adapter: p4-staged").Word("")
	e.Release = f["release"].Required("release: the exact release that agents and native servers report").Text("")
	for _, n := range f["needs"].Required("needs: the capabilities that the native server must report").List(maxNeeds) {
		need := n.Text("")
		if n.Given() && need != "" && !capability.MatchString(need) {
			n.Refuse("BadCapability", n.Name()+" is "+strconv.Quote(need), "name or name=value", "")
		}
		if slices.Contains(e.Needs, need) {
			n.Refuse("Duplicate", n.Name()+" is given twice", "each capability once", "delete one")
		}
		e.Needs = append(e.Needs, need)
	}
}

func (r *reader) hosts(v plan.Value) {
	v = v.Required("hosts: a mapping of host names")
	for name, h := range v.Entries() {
		f := r.fields(h, "agent", "listen", "journal", "retained", "native", "backend", "memory")
		native := r.fields(f["native"].Required("native: {path: …, sha256: …}"), "path", "sha256")
		memory := r.fields(f["memory"].Required("memory: {need: 60GiB}"), "need")
		f["journal"].Required("journal: required; no ring loads without it").Choice("required", "required")
		host := Host{Name: name, Pos: f["agent"].Pos(),
			Agent:    f["agent"].Required("agent: tcp://host:port, as the agent advertises itself").Text(""),
			Listen:   f["listen"].Text(""),
			Retained: size(f["retained"].Required("retained: 256MiB, the agent's store")),
			Path:     native["path"].Required("path: of the native server on this host").Text(""),
			SHA256:   native["sha256"].Required("sha256: of the native server").Any(""),
			Backend:  f["backend"].Required("backend: of this host's build").Choice("", sortedKeys(backends)...),
			Need:     size(memory["need"].Required("need: bytes of memory that a load takes here")),
		}
		r.agents[name], r.listen[name] = f["agent"], f["listen"]
		r.host(f, native, host)
		r.p.Hosts = append(r.p.Hosts, host)
	}
	if v.Given() && len(r.p.Hosts) == 0 {
		v.Refuse("NoHosts", "hosts is empty", "at least one host", "")
	}
	for _, h := range r.p.Hosts { // known only when all are read
		name, ok := agentAddress(h.Agent)
		if why := unreachable(name); ok && why != "" && len(r.p.Hosts) > 1 {
			r.agents[h.Name].Refuse("BadAddress", fmt.Sprintf("agent %s advertises %s, which is %s: from another host that is not this one", h.Name, h.Agent, why),
				"an address that the other hosts of the ring reach", "advertise the host's name or address in the ring's network")
		}
		if at, _, err := net.SplitHostPort(h.Listen); err == nil && strings.HasPrefix(unreachable(at), "a loopback") && len(r.p.Hosts) > 1 {
			r.listen[h.Name].Refuse("BadAddress", fmt.Sprintf("agent %s listens at %s: the other hosts do not reach it there, whatever it advertises", h.Name, h.Listen),
				"the host's address in the ring's network, or 0.0.0.0", "")
		}
	}
}

func (r *reader) host(f, native map[string]plan.Value, h Host) {
	if _, ok := agentAddress(h.Agent); h.Agent != "" && !ok {
		f["agent"].Refuse("BadAddress", fmt.Sprintf("agent is %q", h.Agent), "tcp://host:port", "write it byte for byte as the agent advertises itself")
	}
	if _, port, err := net.SplitHostPort(h.Listen); h.Listen != "" && (err != nil || !isPort(port)) {
		f["listen"].Refuse("BadAddress", fmt.Sprintf("listen is %q", h.Listen), "host:port", "")
	}
	for _, o := range r.p.Hosts {
		if o.Agent == h.Agent && h.Agent != "" {
			f["agent"].Refuse("Duplicate", fmt.Sprintf("hosts %s and %s have one agent, %s", o.Name, h.Name, h.Agent), "one agent a host", "")
		}
	}
	if h.Path != "" && !strings.HasPrefix(h.Path, "/") {
		native["path"].Refuse("BadPath", fmt.Sprintf("path is %q", h.Path), "a whole path, beginning with /", "")
	}
	if h.SHA256 != "" && !sha256Hex.MatchString(h.SHA256) {
		native["sha256"].Refuse("BadDigest", fmt.Sprintf("sha256 is %q", h.SHA256), "64 lower-case hex digits", "sha256sum prints them")
	}
}

func (r *reader) shape(v plan.Value) {
	f := r.fields(v.Required("shape: {batch, ubatch, context, parallel, completion, output}"), "batch", "ubatch", "context", "parallel", "completion", "output")
	number := func(k string, most int64) uint64 {
		return uint64(f[k].Required(k+": a whole number").Int(1, most, 0))
	}
	s := Shape{Batch: number("batch", maxBatch), Ubatch: number("ubatch", maxBatch), Parallel: number("parallel", 4096), Context: number("context", 1<<30),
		Output: number("output", 1<<30), Completion: size(f["completion"].Required("completion: 192MiB, the cap of one result")), Pos: v.Pos()}
	if s.Ubatch > s.Batch && s.Batch > 0 {
		f["ubatch"].Refuse("OutOfRange", fmt.Sprintf("ubatch is %d", s.Ubatch), fmt.Sprintf("at most the batch, %d", s.Batch), "")
	}
	if s.Output >= s.Context && s.Context > 0 {
		f["output"].Refuse("OutOfRange", fmt.Sprintf("output is %d", s.Output), fmt.Sprintf("less than the context, %d: a prompt needs room too", s.Context), "")
	}
	for _, h := range r.p.Hosts {
		if h.Retained > 0 && s.Completion > h.Retained {
			f["completion"].Refuse("OutOfRange", fmt.Sprintf("completion is %s bytes", digits(s.Completion)), fmt.Sprintf("at most the retained store of host %s, %s", h.Name, digits(h.Retained)), "")
			break
		}
	}
	r.p.Shape = s
}

func (r *reader) stages(v plan.Value) {
	v = v.Required("stages: a list in ring order")
	for _, s := range v.List(maxStages) {
		f := r.fields(s, "node", "host", "layers", "device", "mask", "endpoint")
		st := Stage{Node: f["node"].Required("node: the stage's id").Word(""), Host: f["host"].Required("host: one of hosts").Word(""),
			Device: f["device"].Required("device: as the backend names it, such as ROCm0").Word(""), Mask: f["mask"].Any(""),
			Endpoint: f["endpoint"].Required("endpoint: host:port of the native server").Text(""), Pos: s.Pos()}
		if l := f["layers"].Required("layers: begin-end, such as 0-12"); l.Given() {
			st.Layers = r.layers(l)
		}
		r.stage(f, st)
		r.p.Stages = append(r.p.Stages, st)
	}
	if v.Given() && len(r.p.Stages) == 0 {
		v.Refuse("NoStages", "stages is empty", "at least one stage", "")
	}
	for _, h := range r.p.Hosts {
		if len(r.p.Stages) > 0 && !slices.ContainsFunc(r.p.Stages, func(s Stage) bool { return s.Host == h.Name }) {
			r.agents[h.Name].Refuse("IdleHost", fmt.Sprintf("host %s has no stage", h.Name), "a stage on every host", "delete the host")
		}
	}
}

// layers reads begin-end and holds it against the stage before.
func (r *reader) layers(v plan.Value) [2]int {
	text := v.Any("")
	if text == "" {
		return [2]int{}
	}
	a, b, _ := strings.Cut(text, "-")
	begin, err1 := strconv.Atoi(a)
	end, err2 := strconv.Atoi(b)
	if err1 != nil || err2 != nil || strconv.Itoa(begin) != a || strconv.Itoa(end) != b || begin < 0 || end <= begin || end > maxLayers {
		v.Refuse("BadLayers", fmt.Sprintf("%s is %q", v.Name(), text), "begin-end, such as 0-12: the first layer, and the one behind the last", "")
		return [2]int{}
	}
	want := 0
	if n := len(r.p.Stages); n > 0 {
		if want = r.p.Stages[n-1].Layers[1]; want == 0 {
			return [2]int{begin, end} // the stage before was refused
		}
	}
	switch {
	case begin > want:
		v.Refuse("LayerGap", fmt.Sprintf("%s begins at %d: layers %d to %d are nobody's", v.Name(), begin, want, begin-1), fmt.Sprintf("a beginning of %d", want), "the layers of the stages tile the model")
	case begin < want:
		v.Refuse("LayerOverlap", fmt.Sprintf("%s begins at %d, and the stage before ends at %d", v.Name(), begin, want), fmt.Sprintf("a beginning of %d", want), "the layers of the stages tile the model")
	}
	return [2]int{begin, end}
}

func (r *reader) stage(f map[string]plan.Value, s Stage) {
	host := r.p.Host(s.Host)
	if s.Host != "" && host == nil {
		var names []string
		for _, h := range r.p.Hosts {
			names = append(names, h.Name)
		}
		f["host"].Refuse("UnknownHost", fmt.Sprintf("host is %q", s.Host), fmt.Sprintf("one of %s", strings.Join(names, ", ")), "")
	}
	for _, o := range r.p.Stages {
		if o.Node == s.Node && s.Node != "" {
			f["node"].Refuse("Duplicate", fmt.Sprintf("node %s is given twice", s.Node), "each node once", "")
		}
		if o.Host == s.Host && o.Endpoint == s.Endpoint && s.Endpoint != "" {
			f["endpoint"].Refuse("Duplicate", fmt.Sprintf("nodes %s and %s have one endpoint on host %s", o.Node, s.Node, s.Host), "an endpoint of its own", "")
		}
	}
	if why := badEndpoint(s.Endpoint); s.Endpoint != "" && why != "" {
		f["endpoint"].Refuse("BadEndpoint", fmt.Sprintf("endpoint is %q, %s", s.Endpoint, why), "a loopback or private address and a port: native servers ask nobody who they are", "")
	}
	if s.Mask != "" && !deviceMask.MatchString(s.Mask) {
		f["mask"].Refuse("BadMask", fmt.Sprintf("mask is %q", s.Mask), "indexes of devices, such as 2 or \"0,2\"", "")
	}
	if host == nil || host.Backend == "" || s.Device == "" {
		return
	}
	prefix := backends[host.Backend]
	index, err := strconv.Atoi(strings.TrimPrefix(s.Device, prefix))
	switch {
	case !strings.HasPrefix(s.Device, prefix) || err != nil || index < 0:
		f["device"].Refuse("BadDevice", fmt.Sprintf("device is %q on host %s, whose build is %s", s.Device, s.Host, host.Backend),
			fmt.Sprintf("%s and an index, such as %s0", prefix, prefix), "each build has its own names")
	case s.Mask != "" && index > strings.Count(s.Mask, ","):
		f["device"].Refuse("BadDevice", fmt.Sprintf("device is %q behind the mask %q", s.Device, s.Mask), fmt.Sprintf("an index below %d: what a mask leaves is counted from 0", 1+strings.Count(s.Mask, ",")), "")
	}
}

// badEndpoint says what is wrong with the endpoint of a native server, which has no authentication.
func badEndpoint(s string) string {
	a, err := netip.ParseAddrPort(s)
	switch {
	case err != nil || a.Port() == 0:
		return "which is no address and port"
	case !a.Addr().Unmap().IsLoopback() && !a.Addr().Unmap().IsPrivate():
		return "which others may reach"
	}
	return ""
}

// size is a number of bytes that is needed: none would be a guard that is off.
func size(v plan.Value) uint64 {
	n := v.Bytes(-1) // of one that cannot be read, which is said already
	if n == 0 {
		v.Refuse("OutOfRange", v.Name()+" is 0", "what it really is: at 0 nothing is held against it", "")
	}
	return uint64(max(n, 0))
}

// span is a duration within bounds: a canary without a gap or an answer's time proves nothing, and nobody waits for a year.
func span(v plan.Value, least, most, fallback time.Duration) time.Duration {
	d := v.Duration(fallback)
	if v.Given() && (d < least || d > most) {
		v.Refuse("OutOfRange", fmt.Sprintf("%s is %s", v.Name(), d), fmt.Sprintf("%s to %s", least, most), "")
	}
	return d
}

func (r *reader) canary(v plan.Value) {
	f := r.fields(v.Required("canary: {rounds, gap, deadline, prompts, format, expect}"), "rounds", "gap", "deadline", "prompts", "format", "expect")
	c := Canary{Rounds: int(f["rounds"].Int(3, 100, 3)), Gap: span(f["gap"].Required("gap: 20s, idle before the last round"), time.Millisecond, time.Hour, time.Second),
		Deadline: span(f["deadline"].Required("deadline: 60s for each answer"), time.Second, time.Hour, time.Minute),
		Prompts:  f["prompts"].Required("prompts: a file of the deploy repository").Path(""),
		Format:   f["format"].Required("format: the model's turn format, since the engine applies none").Word("")}
	expect := r.fields(f["expect"].Required("expect: {finish: eos}"), "finish")
	c.Finish = Stop(expect["finish"].Required("finish: eos").Choice(string(StopEnd), string(StopEnd)))
	r.p.Canary = c
}

func (r *reader) catalog(v plan.Value) {
	f := r.fields(v.Required("switch: {catalog, drain, tokens, output}"), "catalog", "drain", "tokens", "output")
	c := Catalog{Name: f["catalog"].Required("catalog: where clients read what they may use").Text(""), Drain: span(f["drain"].Required("drain: 120s"), 0, 24*time.Hour, 0),
		Tokens: uint64(f["tokens"].Required("tokens: of the largest prompt that clients may send").Int(1, 1<<30, 0)),
		Output: uint64(f["output"].Required("output: tokens that clients may ask for").Int(1, 1<<30, 0))}
	s := r.p.Shape
	if c.Output > s.Output && s.Output > 0 {
		f["output"].Refuse("OutOfRange", fmt.Sprintf("output is %d", c.Output), fmt.Sprintf("at most the loaded profile's %d", s.Output), "")
	}
	if s.Context > 0 && c.Tokens+c.Output > s.Context {
		f["tokens"].Refuse("OutOfRange", fmt.Sprintf("a request of %d + %d tokens", c.Tokens, c.Output), fmt.Sprintf("at most the loaded context, %d", s.Context), "")
	}
	r.p.Catalog = c
}

func sortedKeys[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// digits writes a number with commas, as people compare them.
func digits(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
