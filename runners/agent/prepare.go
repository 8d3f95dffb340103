package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/headway-run/headway/runners/agent/fetch"
	"github.com/headway-run/headway/runners/agent/files"
	"github.com/headway-run/headway/runners/agent/fingerprint"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// exitOf makes any error of the start an exit. It is the one place that does.
func exitOf(err error) Exit {
	if e, ok := errors.AsType[*refusedOrder](err); ok {
		return Exit{CodeRefused, "refused", e.text}
	}
	if e, ok := errors.AsType[*ending](err); ok {
		return e.exit
	}
	if e, ok := errors.AsType[*witness.Refusal](err); ok {
		return exitOfRefusal(e)
	}
	if e, ok := errors.AsType[*fetch.Unreadable](err); ok && e.What == "result" {
		return Exit{CodeRefused, "refused", e.Error()}
	} else if ok {
		return Exit{CodeRefused, "snapshot_unreadable", e.Error()}
	}
	if e, ok := errors.AsType[*fetch.BadBundle](err); ok {
		return Exit{CodeRefused, "refused", e.Error()}
	}
	if e, ok := errors.AsType[*files.DiskFull](err); ok {
		return Exit{CodeDiskFull, "disk_full", e.Error()}
	}
	if files.Full(err) {
		return Exit{CodeDiskFull, "disk_full", err.Error()}
	}
	if e, ok := errors.AsType[*bucket.Error](err); ok {
		return Exit{CodeStore, storeClass(e.Code), oneLine(err.Error())}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return Exit{CodeStore, "store", oneLine(err.Error())}
	}
	if _, ok := errors.AsType[*witness.Unreadable](err); ok || errors.Is(err, witness.ErrAbsent) {
		return Exit{CodeStore, "store", err.Error()}
	}
	return Exit{CodeInternal, "internal", err.Error()}
}

// storeClass tells what may pass by itself from what a person has to mend: a launch that cannot but end the same way
// must not be free.
func storeClass(c bucket.Code) string {
	switch c {
	case bucket.Denied, bucket.Full, bucket.BadKey, bucket.Unsupported:
		return "store_refused"
	case bucket.Unknown, bucket.NotFound, bucket.Condition, bucket.Raced, bucket.Gone, bucket.Throttled, bucket.NoBucket:
	}
	return "store"
}

// oneLine makes one sentence of joined errors.
func oneLine(s string) string { return strings.ReplaceAll(s, "\n", "; ") }

func exitOfRefusal(e *witness.Refusal) Exit {
	switch e.Why {
	case witness.AlreadyFinished, witness.SpawnedElsewhere, witness.BelowFloor:
		return Exit{CodeNothingToDo, "nothing_to_do", e.Error()}
	case witness.UnknownHistory, witness.StoreViolation, witness.Unsettled:
		return Exit{CodeStore, "store", e.Error()}
	case witness.NotHolder:
		return Exit{CodeLeaseLost, "deposed", e.Error()}
	case witness.NotOpened, witness.BadPointer, witness.BadMove:
	}
	return Exit{CodeInternal, "internal", e.Error()}
}

// refusedOrder is a machine, a spec or a claim that this run must not go on with.
type refusedOrder struct{ text string }

func (e *refusedOrder) Error() string { return e.text }

func refused(format string, args ...any) error { return &refusedOrder{fmt.Sprintf(format, args...)} }

// readOrder reads claim and spec, as long as patience lasts, and holds them against each other and against the work's own
// digest. The claim comes first: it says how long there is time.
func readOrder(ctx context.Context, c *Config, p *patience) (spec record.Spec, claim record.Claim, err error) {
	if err := readPart(ctx, c, p, record.ClaimKey(c.Work, c.Dispatch), &claim); err != nil {
		return spec, claim, err
	}
	if err := checkClaim(&claim, c); err != nil {
		return spec, claim, err
	}
	if err := p.claimed(&claim); err != nil {
		return spec, claim, err
	}
	if err := readPart(ctx, c, p, record.SpecKey(c.Work), &spec); err != nil {
		return spec, claim, err
	}
	return spec, claim, checkSpec(&spec, c.Work)
}

func readPart(ctx context.Context, c *Config, p *patience, key string, into any) error {
	return p.ask(ctx, func() error {
		once, cancel := p.once(ctx)
		defer cancel()
		err := fetch.JSON(once, c.Bucket, key, record.MaxRecord, into)
		if bucket.Is(err, bucket.NotFound) {
			return refused("%s does not exist: this launch was never claimed", key)
		}
		if _, ok := errors.AsType[*bucket.Error](err); err != nil && !ok && once.Err() == nil {
			return refused("%s: %v", key, err)
		}
		return err
	})
}

func checkSpec(s *record.Spec, work string) error {
	if s.Protocol > record.Protocol {
		return refused("the spec is of protocol %d, this agent reads up to %d: use a newer agent", s.Protocol, record.Protocol)
	}
	if s.Work != work {
		return refused("the spec is of work %.12s, but work %.12s was asked for", s.Work, work)
	}
	if err := record.CheckIdentity(*s); err != nil {
		return refused("the spec is not what work %.12s stands for: %v", work, err)
	}
	if len(s.Argv) == 0 || s.Argv[0] == "" {
		return refused("the spec names no program to run")
	}
	if s.Result != "" && !filepath.IsLocal(s.Result) {
		return refused("the result folder %.80q leads out of the working folder", s.Result)
	}
	return nil
}

func checkClaim(cl *record.Claim, c *Config) error {
	switch {
	case cl.Protocol > record.Protocol:
		return refused("the claim is of protocol %d, this agent reads up to %d: use a newer agent", cl.Protocol, record.Protocol)
	case cl.Work != c.Work || cl.Dispatch != c.Dispatch:
		return refused("the claim is of work %.12s, dispatch %d, but %.12s, %d was asked for", cl.Work, cl.Dispatch, c.Work, c.Dispatch)
	case c.Platform != "" && cl.Platform != c.Platform:
		return refused("the claim is for platform %.80q, this is %.80q", cl.Platform, c.Platform)
	}
	t := &cl.Terms
	for _, v := range []float64{t.MilestoneS, t.LeaseK, t.LeaseFloorS, t.WatchIntervalS, t.FLOPsPerStep, t.GraceS, t.WarmS, float64(t.MilestoneSteps)} {
		if !(v >= 0 && v <= 1e18) {
			return refused("the claim's terms are out of range: %g", v)
		}
	}
	t.WatchIntervalS, t.GraceS, t.WarmS = min(t.WatchIntervalS, 7*86400), min(t.GraceS, 3600), min(t.WarmS, 6*3600)
	if t.LeaseFloorS == 0 {
		t.LeaseFloorS = witness.DefaultFloor.Seconds()
	}
	if t.GraceS == 0 {
		t.GraceS = defaultGrace
	}
	if t.MilestoneSteps == 0 && t.MilestoneS == 0 {
		t.MilestoneS = defaultMilestone
	}
	return nil
}

// Where the claim says nothing, seconds.
const (
	defaultGrace     = 30
	defaultMilestone = 600
)

// measure takes the fingerprint and refuses a machine that is not what a pinned work requires. What the work's own probe must
// print is looked at later: its program is not there yet.
func (c *Config) measure(ctx context.Context, spec *record.Spec) (found map[string]string, err error) {
	requires := spec.Requires
	if c.Inside != nil {
		found = c.Inside.facts()
	} else {
		found = fingerprint.Measure(ctx)
		environ := c.Environ
		for _, name := range slices.Sorted(maps.Keys(spec.Env)) {
			environ = append(environ[:len(environ):len(environ)], name+"="+spec.Env[name])
		}
		found[fingerprint.Switches] = fingerprint.SwitchesOf(environ)
		if _, probed := requires[fingerprint.ProbeRun]; probed {
			requires = maps.Clone(requires)
			delete(requires, fingerprint.ProbeRun)
		}
	}
	return found, unlike(fingerprint.Compare(requires, found))
}

// unlike refuses a machine for what it lacks.
func unlike(diffs []fingerprint.Difference) error {
	if len(diffs) == 0 {
		return nil
	}
	var lines []string
	for _, d := range diffs {
		lines = append(lines, d.String())
	}
	return refused("this machine is not what the work is pinned to: %s", strings.Join(lines, "; "))
}

// laid is what a program starts from.
type laid struct {
	cwd    string
	argv   []string
	result string
	env    map[string]string
	resume resumeAnswer
}

// layAll fetches code, inputs and the snapshot to resume from, and puts everything where the program finds it.
func layAll(ctx context.Context, c *Config, spec *record.Spec, claim *record.Claim, s *scratch, seen witness.Record, tell fetch.Progress) (*laid, error) {
	l := &laid{cwd: s.at("code"), result: s.at("result"), resume: resumeAnswer{OK: true}, env: map[string]string{
		"HEADWAY_WORK": c.Work, "HEADWAY_ATTEMPT": itoa(seen.Attempt), "HEADWAY_SEED": itoa(spec.Seed)}}
	if spec.Deploy {
		l.env["HEADWAY_DEPLOY"] = "1"
	}
	if spec.CodeTree != "" {
		if err := fetch.Bundle(ctx, c.Bucket, spec.CodeTree, l.cwd, tell); err != nil {
			return nil, err
		}
	}
	needs, err := layInputs(ctx, c, spec, s, tell)
	if err != nil {
		return nil, err
	}
	for job, dir := range needs {
		l.env[needVar(job)] = dir
	}
	if l.argv, err = fillArgv(spec.Argv, needs); err != nil {
		return nil, refused("%v", err)
	}
	if p := seen.Resume; p != nil {
		if err := layResume(ctx, c, claim, s, *p, l, tell); err != nil {
			return nil, err
		}
	}
	if spec.Result != "" {
		l.result = filepath.Join(l.cwd, spec.Result)
	}
	l.env["HEADWAY_RESULT"] = l.result
	if err := os.MkdirAll(l.result, 0o755); err != nil {
		return nil, err
	}
	return l, layOut(c.Python, s.at("python"))
}

func layInputs(ctx context.Context, c *Config, spec *record.Spec, s *scratch, tell fetch.Progress) (map[string]string, error) {
	needs := map[string]string{}
	for i, in := range spec.Inputs {
		seen, err := readWitness(ctx, c.Bucket, in.Work)
		if errors.Is(err, witness.ErrAbsent) {
			return nil, refused("input %.80q (work %.12s) was never run: it must be finished first", in.Job, in.Work)
		}
		if err != nil {
			return nil, err
		}
		f := seen.Record.Finished
		if seen.Record.State != witness.Finished || f == nil {
			return nil, refused("input %.80q (work %.12s) is %s, not finished", in.Job, in.Work, seen.Record.State)
		}
		dir := filepath.Join(s.at("need"), itoa(int64(i)))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		if _, err := fetch.Result(ctx, c.Bucket, in.Work, f.Attempt, f.Manifest, f.SHA256, dir, tell); err != nil {
			return nil, err
		}
		needs[in.Job] = dir
	}
	return needs, nil
}

// readWitness reads another work's witness, asking again for a while: a store that does not answer once is no reason to
// give up a lease.
func readWitness(ctx context.Context, b bucket.Bucket, work string) (seen witness.Seen, err error) {
	for n := range 4 {
		once, cancel := context.WithTimeout(ctx, 30*time.Second)
		seen, err = witness.Read(once, b, work)
		cancel()
		_, bad := errors.AsType[*witness.Unreadable](err)
		if err == nil || bad || errors.Is(err, witness.ErrAbsent) || ctx.Err() != nil {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(n+1) * time.Second):
		}
	}
	return seen, err
}

func layResume(ctx context.Context, c *Config, claim *record.Claim, s *scratch, p record.Pointer, l *laid, tell fetch.Progress) error {
	dir := s.at("resume")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if _, err := fetch.Snapshot(ctx, c.Bucket, c.Work, p, dir, tell); err != nil {
		return err
	}
	l.resume.Path, l.resume.Step, l.resume.Milestone = &dir, p.Step, p.Milestone
	l.env["HEADWAY_RESUME"], l.env["HEADWAY_RESUME_STEP"] = dir, itoa(p.Step)
	if claim.Terms.WatchPath == "" {
		return nil
	}
	// A program that cannot be changed finds its checkpoint where the last attempt left it.
	found, _, err := files.List(dir)
	if err != nil {
		return err
	}
	for _, f := range found {
		_ = os.Remove(filepath.Join(l.cwd, filepath.FromSlash(f.Path))) // a file of the code gives way
	}
	return files.CopyTree(dir, found, l.cwd)
}

// secretValues are what must not be seen in a log.
func secretValues(names, environ []string) (values []string) {
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		if slices.Contains(names, name) || strings.HasPrefix(name, "AWS_SECRET") || strings.HasPrefix(name, "AWS_SESSION") {
			values = append(values, value)
		}
	}
	return values
}
