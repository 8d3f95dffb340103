package deploylane

import (
	"fmt"
	"maps"
	"math"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/headway-run/headway/deploylane/access"
	"github.com/headway-run/headway/deploylane/spread"
	"github.com/headway-run/headway/deploylane/tag"
	"github.com/headway-run/headway/plan"
)

// File is where the lane's configuration lies in the plan repository: in a folder that the branch protects.
const File = "lane/lane.yaml"

// Bounds and defaults of lane.yaml.
const (
	maxModels       = 256
	maxTargets      = 16
	maxWords        = 64
	defaultAttempts = 3
	defaultCapture  = 2 * time.Minute
)

// Config is lane.yaml. Who may release what, in which environment and with how many signers stands in lane/policy.yaml beside it.
type Config struct {
	Research  string              // URL of the store that research writes; the lane reads it
	Store     string              // URL of the lane's own
	Keys      []string            // command that answers a policy on its standard input with a worker's keys; see access.ReadKeys
	Platforms map[string]Platform // trusted places to run
	Models    map[string]Model
}

// Platform is a trusted place to run.
type Platform struct {
	Name    string
	Runner  string
	Slots   int
	Capture time.Duration     // how long after a launch the first lease may take to appear
	Options map[string]string // the runner's own
}

// Model is what may be released, and what is asked of it. It travels in the candidate's record, so that a release goes on by
// the rules that it began with.
type Model struct {
	Name     string          `json:"name"`
	Plan     string          `json:"plan"` // file
	Job      string          `json:"job"`  // the training
	Backtest Backtest        `json:"backtest"`
	Metrics  []spread.Metric `json:"metrics"`
	Seeds    int             `json:"seeds"`           // least number of the parent's seeds
	On       []string        `json:"on"`              // platforms, in order of preference
	Attempts int             `json:"attempts"`        // failed tries of one work after which the release is refused
	Twice    bool            `json:"twice,omitempty"` // the retraining runs a second time, and the two results are held against each other
	Targets  []Target        `json:"targets"`
}

// Backtest is the job that decides, and the least score.
type Backtest struct {
	Job     string   `json:"job"`
	Metric  string   `json:"metric"`
	AtLeast *float64 `json:"at_least,omitempty"`
	AtMost  *float64 `json:"at_most,omitempty"`
}

// why says why a score does not do, or "".
func (b Backtest) why(score float64) string {
	switch {
	case math.IsNaN(score) || math.IsInf(score, 0):
		return fmt.Sprintf("%s is no finite number", b.Metric)
	case b.AtLeast != nil && score < *b.AtLeast:
		return fmt.Sprintf("%s is %g, at least %g is asked for", b.Metric, score, *b.AtLeast)
	case b.AtMost != nil && score > *b.AtMost:
		return fmt.Sprintf("%s is %g, at most %g is asked for", b.Metric, score, *b.AtMost)
	}
	return ""
}

// Kinds of targets.
const (
	TargetPointer = "pointer"
	TargetExec    = "exec"
	TargetWebhook = "webhook"
	TargetRing    = "ring"
)

// Target is where a release goes.
type Target struct {
	Name   string   `json:"name"`
	Kind   string   `json:"kind"`
	Argv   []string `json:"argv,omitempty"`   // exec
	Secret string   `json:"secret,omitempty"` // webhook: the variable that holds the URL
	Ring   *Ring    `json:"ring,omitempty"`
}

// Read reads lane.yaml. runners are those that this program has: a platform that names another one would never run anything. The
// error lists everything that is wrong with it, one line each.
func Read(file string, data []byte, runners []string) (Config, error) {
	doc := plan.ReadDocument(file, data)
	f := doc.Root().Fields("lane", "research", "store", "worker_keys", "platforms", "models")
	f["lane"].Required("lane: v1").Choice("v1", "v1")
	c := Config{Platforms: map[string]Platform{}, Models: map[string]Model{}}
	c.Research = storeURL(f["research"].Required("the store of research, such as research: s3://acme-headway/team-a"))
	c.Store = storeURL(f["store"].Required("the lane's own store, such as store: s3://acme-lane/team-a"))
	if c.Store != "" && c.Store == c.Research {
		f["store"].Refuse("OneStore", "store is the store of research", "a bucket or a prefix of the lane's own", "whoever may write the one must not be able to write the other")
	}
	if a, b, both := places(c.Research, c.Store); both && c.Store != c.Research && a.Overlaps(b) || c.Store != c.Research && (inside(c.Research, c.Store) || inside(c.Store, c.Research)) {
		f["store"].Refuse("NotApart", "store lies in the store of research, or the other way round", "a bucket or a prefix of the lane's own", "no policy tells their keys apart for sure")
	}
	c.Keys = readKeys(f["worker_keys"], c.Store)
	for name, v := range f["platforms"].Required("platforms: {pinned: {runner: local}}").Entries() {
		c.Platforms[name] = readPlatform(name, v, runners)
	}
	for name, v := range f["models"].Required("models: {digits: {plan: …, job: …, …}}").Entries() {
		if len(c.Models) == maxModels {
			v.Refuse("TooLong", fmt.Sprintf("more than %d models", maxModels), "fewer", "")
			break
		}
		c.Models[name] = readModel(name, v, &c)
	}
	return c, doc.Err()
}

// storeURL is one that names a place without a secret.
func storeURL(v plan.Value) string {
	s := v.Text("")
	u, err := url.Parse(s)
	if !v.Given() || s == "" {
		return ""
	}
	if err != nil || u.User != nil || !(u.Scheme == "s3" && u.Host != "" || u.Scheme == "dir" && u.Host == "" && path.IsAbs(u.Path)) {
		v.Refuse("BadStore", v.Name()+" is no store", "dir:///PATH or s3://BUCKET/PREFIX, without a user name", "credentials come from the environment")
		return ""
	}
	return s
}

// inside says whether one folder is the other or lies in it, as they are written: links are not followed.
func inside(outer, inner string) bool {
	out, first := strings.CutPrefix(outer, "dir://")
	in, second := strings.CutPrefix(inner, "dir://")
	return first && second && strings.HasPrefix(path.Clean(in)+"/", strings.TrimSuffix(path.Clean(out), "/")+"/")
}

// places are where two stores on S3 lie.
func places(research, own string) (a, b access.Place, both bool) {
	a, first := access.At(research)
	b, second := access.At(own)
	return a, b, first == nil && second == nil
}

// readKeys reads the command that a worker's keys come from. On S3 there has to be one: whoever holds the lane's own keys
// could write its records.
func readKeys(v plan.Value, store string) (argv []string) {
	argv = readCommand(v, maxWords)
	onS3 := strings.HasPrefix(store, "s3:")
	switch {
	case onS3 && len(argv) == 0:
		v.Required("a command that makes keys for a policy, such as worker_keys: [/usr/local/bin/worker-keys]")
	case !onS3 && len(argv) > 0:
		v.Refuse("NoKeys", "worker_keys is given, and the store is a folder", "none", "the owner and the mode of a folder say who writes it")
	}
	return argv
}

// readCommand reads a program and its arguments. The lane has no checkout, so a path that is not absolute could only mean a file of the
// folder that it was started in, which no key vouches for.
func readCommand(v plan.Value, most int) (argv []string) {
	for i, w := range v.List(most) {
		argv = append(argv, w.Any(""))
		if i == 0 && !Program(argv[0]) {
			w.Refuse("RelativeProgram", w.Name()+" is "+shown(argv[0], 200), "an absolute path, or a name on the PATH", "the lane has no checkout, and files of the folder that it runs in are signed by nobody")
		}
	}
	return argv
}

// Program says that a command's first word is an absolute path or a name on the PATH.
func Program(word string) bool { return path.IsAbs(word) || !strings.Contains(word, "/") }

func readPlatform(name string, v plan.Value, runners []string) Platform {
	p := Platform{Name: name, Slots: 1, Capture: defaultCapture, Options: map[string]string{}}
	runner := false
	for k, f := range v.Entries() {
		switch k {
		case "runner":
			runner = true
			p.Runner = f.Choice("", runners...)
		case "slots":
			p.Slots = int(f.Int(1, 4096, 1))
		case "capture":
			p.Capture = f.Duration(defaultCapture)
		default:
			p.Options[k] = f.Any("")
		}
	}
	if !runner {
		v.Refuse("Missing", v.Name()+" names no runner", "runner: local, for example", "")
	}
	return p
}

func readModel(name string, v plan.Value, c *Config) Model {
	f := v.Fields("plan", "job", "backtest", "metrics", "seeds", "on", "attempts", "twice", "targets")
	if why := tag.CheckModel(name); why != "" {
		v.Refuse("BadModel", why, "a name that a tag can carry", "")
	}
	m := Model{Name: name}
	m.Plan = f["plan"].Required("the plan file, such as plan: plans/digits.yaml").Path("")
	m.Job = f["job"].Required("the job that trains it, such as job: digits").Text("")
	m.Backtest = readBacktest(f["backtest"].Required("backtest: {job: digits-backtest, metric: accuracy, at_least: 0.9}"))
	for k, g := range f["metrics"].Required("metrics: {val_accuracy: {direction: higher, margin: 0.02}}").Entries() {
		m.Metrics = append(m.Metrics, readMetric(k, g))
	}
	slices.SortFunc(m.Metrics, func(a, b spread.Metric) int { return strings.Compare(a.Name, b.Name) })
	m.Seeds = int(f["seeds"].Int(spread.LeastRuns, 10_000, spread.DefaultRuns))
	m.On = f["on"].Required("platforms of this file, such as on: [pinned]").Names(16)
	for _, on := range m.On {
		if _, ok := c.Platforms[on]; !ok {
			f["on"].Refuse("UnknownPlatform", fmt.Sprintf("%s names %s, which is no platform of this file", f["on"].Name(), on), "one of "+strings.Join(slices.Sorted(maps.Keys(c.Platforms)), ", "), "")
		}
	}
	m.Attempts = int(f["attempts"].Int(1, 20, defaultAttempts))
	m.Twice = f["twice"].Bool(false)
	for i, t := range f["targets"].Required("targets: [{pointer: true}]").List(maxTargets) {
		one := readTarget(i, t)
		if one.Name != "" && slices.ContainsFunc(m.Targets, func(o Target) bool { return o.Name == one.Name }) {
			t.Refuse("Twice", fmt.Sprintf("%s has the name %s, as one before it", t.Name(), one.Name), "a name of its own", "what a target answered is kept under its name, and so the second would never be told")
		}
		m.Targets = append(m.Targets, one)
	}
	return m
}

func readBacktest(v plan.Value) Backtest {
	f := v.Fields("job", "metric", "at_least", "at_most")
	b := Backtest{Job: f["job"].Required("the job, such as job: digits-backtest").Text(""), Metric: f["metric"].Required("the score, such as metric: accuracy").Word("")}
	bound := func(v plan.Value) *float64 {
		if !v.Given() {
			return nil
		}
		n := v.Number(-1e300, 1e300, 0)
		return &n
	}
	b.AtLeast, b.AtMost = bound(f["at_least"]), bound(f["at_most"])
	if v.Given() && b.AtLeast == nil && b.AtMost == nil {
		v.Refuse("Missing", v.Name()+" has no bound, so every score would do", "at_least or at_most", "")
	}
	return b
}

func readMetric(name string, v plan.Value) spread.Metric {
	f := v.Fields("direction", "range", "margin", "gating", "examples")
	m := spread.Metric{Name: name, Gating: f["gating"].Bool(true), Examples: f["examples"].Int(0, 1e12, 0)}
	m.Direction = spread.Direction(f["direction"].Required("direction: higher").Choice("", string(spread.Higher), string(spread.Lower), string(spread.Target)))
	if f["range"].Given() {
		m.Range = spread.Range(f["range"].Choice("", string(spread.Share), string(spread.Positive)))
	}
	if m.Gating {
		f["margin"].Required("the largest loss that is accepted, in the metric's unit, such as margin: 0.02")
	}
	m.Margin = f["margin"].Number(0, 1e300, 0)
	if m.Gating && f["margin"].Given() && m.Margin == 0 {
		f["margin"].Refuse("OutOfRange", f["margin"].Name()+" is 0", "more than 0", "no number of seeds brings a band of no width")
	}
	return m
}

func readTarget(i int, v plan.Value) Target {
	f := v.Fields("name", TargetPointer, TargetExec, TargetWebhook, TargetRing, "weights")
	var kinds []string
	for _, k := range []string{TargetPointer, TargetExec, TargetWebhook, TargetRing} {
		if f[k].Given() {
			kinds = append(kinds, k)
		}
	}
	if len(kinds) != 1 {
		v.Refuse("OneKind", fmt.Sprintf("%s names %d kinds of target", v.Name(), len(kinds)), "one of pointer, exec, webhook, ring", "")
		return Target{}
	}
	if f["weights"].Given() && kinds[0] != TargetRing {
		f["weights"].Refuse("NoRing", f["weights"].Name()+" is given, and no ring", "weights beside ring alone", "")
	}
	t := Target{Kind: kinds[0], Name: f["name"].Word(fmt.Sprintf("%s-%d", kinds[0], i+1))}
	switch t.Kind {
	case TargetPointer:
		if !f[TargetPointer].Bool(true) {
			f[TargetPointer].Refuse("BadValue", f[TargetPointer].Name()+" is false", "true, or no such target", "")
		}
		t.Name = f["name"].Word(TargetPointer)
	case TargetExec:
		if t.Argv = readCommand(f[TargetExec], maxWords); len(t.Argv) == 0 {
			f[TargetExec].Refuse("EmptyList", f[TargetExec].Name()+" names no program", "the program and its arguments, such as [/usr/local/bin/deploy, prod]", "")
		}
	case TargetWebhook:
		g := f[TargetWebhook].Fields("secret")
		t.Secret = g["secret"].Required("webhook: {secret: DEPLOY_HOOK}, the environment variable that holds the URL").Text("")
	case TargetRing:
		t.Ring = readRing(f[TargetRing], f["weights"])
	}
	return t
}
