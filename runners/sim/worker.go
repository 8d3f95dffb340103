package sim

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// under returns the model with what the claim's terms say instead.
func (m Model) under(t record.Terms) Model {
	if t.MilestoneSteps > 0 {
		m.Milestone = t.MilestoneSteps
	}
	if t.Steps > 0 {
		m.Steps = t.Steps
	}
	if t.LeaseFloorS > 0 {
		m.LeaseFloor = time.Duration(t.LeaseFloorS * float64(time.Second))
	}
	return m
}

// State is what a simulated work has computed: a chain of hashes with one link for each step.
type State struct {
	Step  int64  `json:"step"`
	Chain string `json:"chain"`
}

// Begin is the state before the first step of a work.
func Begin(work string) State { return State{Chain: work} }

// Next is the state after one more step.
func (s State) Next() State {
	h := sha256.Sum256([]byte(s.Chain + ":" + strconv.FormatInt(s.Step+1, 10)))
	return State{Step: s.Step + 1, Chain: hex.EncodeToString(h[:])}
}

// Metric is the value of a metric of that name after these steps, from 0 to 1.
func (s State) Metric(name string) float64 {
	h := sha256.Sum256([]byte(s.Chain + name))
	return float64(h[0]) / 255
}

// Expect is the state after a number of steps: what a result must hold, however often the run was killed.
func Expect(work string, steps int64) State {
	s := Begin(work)
	for range steps {
		s = s.Next()
	}
	return s
}

// StateFile is the one file of a simulated milestone and of a result; MetricsFile is beside it in a result.
const (
	StateFile   = "state.json"
	MetricsFile = "metrics.json"
)

// worker is the simulated agent and program of one instance.
type worker struct {
	r  *Runner
	in *instance
	f  Fault // what the script has for it
	b  bucket.Bucket
	m  Model

	h         *witness.Holder
	state     State
	from      int64 // step that the attempt began at
	milestone int64
	unsettled *record.Pointer // a move of the pointer that has no verdict yet: nothing is built on it
	began     time.Time       // of the attempt
	renewed   time.Time
	log       segments
	events    segments
}

// run is the life of a worker; the answer says how it ended.
func (w *worker) run(ctx context.Context) string {
	f := w.f
	if f.Effect == Slow {
		w.m.Step = f.For
	}
	if f.Effect == Mute {
		<-ctx.Done()
		return "killed"
	}
	if !sleep(ctx, w.m.Start) {
		return "killed"
	}
	if (f.Effect == Die || f.Effect == Restart) && f.Step == 0 {
		return "died"
	}
	end, err := w.capture(ctx)
	if err != nil || end != "" {
		return ended(ctx, end, err)
	}
	end, err = w.loop(ctx)
	return ended(ctx, end, err)
}

// ended puts an end into words. A worker whose context has ended was killed, whatever its last call said.
func ended(ctx context.Context, end string, err error) string {
	switch {
	case ctx.Err() != nil:
		return "killed"
	case err != nil:
		return "gave up: " + err.Error()
	}
	return end
}

// capture takes the lease, opens the attempt and reads the snapshot to go on from. end is not empty when there is
// nothing to do.
func (w *worker) capture(ctx context.Context) (end string, err error) {
	j := w.in.job
	h, err := witness.Capture(ctx, w.b, witness.CaptureRequest{Work: j.Work, Dispatch: j.Dispatch, Lease: w.lease()})
	if no, is := errors.AsType[*witness.Refusal](err); is {
		return "nothing to do: " + no.Why.String(), nil
	}
	if err != nil {
		return "", err
	}
	w.h, w.began, w.renewed = h, time.Now(), time.Now()
	rec := h.Seen().Record
	w.r.captured(w.in, rec.Attempt)
	w.log.prefix = record.LogPrefix(j.Work, rec.Attempt)
	w.events.prefix = record.EventPrefix(j.Work, rec.Attempt)
	found := map[string]string{"gpu": w.m.GPU, "os": "none"}
	if w.m.Driver != "" {
		found["driver"] = w.m.Driver
	}
	v := h.Open(ctx, record.Open{Platform: j.Claim.Platform, Fingerprint: found, Time: stamp()})
	if v.Outcome != witness.Won {
		return "", fmt.Errorf("open: %w", v.Err)
	}
	w.state = Begin(j.Work)
	if rec.Resume != nil {
		if err := w.load(ctx, *rec.Resume); err != nil {
			return "snapshot unreadable", w.leave(ctx, "snapshot_unreadable", 0, err.Error())
		}
	}
	w.from = w.state.Step
	w.events.add(`{"event":"start","step":%d,"attempt":%d}`, w.state.Step, rec.Attempt)
	return "", nil
}

// load reads the snapshot that the witness names, and believes nothing that does not hash to what was promised.
func (w *worker) load(ctx context.Context, p record.Pointer) error {
	b, err := w.get(ctx, p.Manifest)
	if err != nil {
		return err
	}
	if record.Hash(b) != p.SHA256 {
		return fmt.Errorf("%s does not hash to what the witness names", p.Manifest)
	}
	var m record.Manifest
	if err := record.Decode(b, record.MaxManifest, &m); err != nil {
		return err
	}
	if len(m.Files) != 1 || m.Files[0].Path != StateFile {
		return fmt.Errorf("%s is not a simulated snapshot", p.Manifest)
	}
	body, err := w.get(ctx, record.MilestonePrefix(w.in.job.Work, p.Attempt, p.Milestone)+StateFile)
	if err != nil {
		return err
	}
	if record.Hash(body) != m.Files[0].SHA256 {
		return fmt.Errorf("%s of milestone %d of attempt %d is damaged", StateFile, p.Milestone, p.Attempt)
	}
	return json.Unmarshal(body, &w.state)
}

// loop does the steps.
func (w *worker) loop(ctx context.Context) (end string, err error) {
	f := w.f
	for w.state.Step < w.m.Steps {
		next := w.state.Step + 1
		switch {
		case (f.Effect == Die || f.Effect == Restart) && next >= f.Step:
			return "died", nil
		case f.Effect == Hang && next >= f.Step:
			<-ctx.Done()
			return "killed", nil
		case f.Effect == Exit:
			return "failed", w.leave(ctx, "user_code", int(f.Step), "the program gave no reason")
		case f.Effect == OOM && next >= f.Step:
			return "failed", w.leave(ctx, "user_code", 1, tooSmall(w.h.Seen().Record.Attempt))
		case f.Effect == Fail && next >= f.Step:
			return "failed", w.leave(ctx, "user_code", 1, fmt.Sprintf("ValueError: loss is not a number at step %d", f.Step))
		}
		if !sleep(ctx, w.m.Step) {
			return "killed", nil
		}
		w.state = w.state.Next()
		w.r.stepped(w.in, w.state.Step)
		w.log.add("step %d loss %.4f", w.state.Step, 1/float64(w.state.Step+1))
		if over, err := w.tell(ctx); err != nil || over {
			return "deposed", err
		}
		select {
		case <-w.in.notice:
			return "yielded", w.leave(ctx, "yielded", 0, "asked to leave")
		default:
		}
	}
	return w.finish(ctx)
}

// tell is what the step path does between two steps: a milestone when one is due, else a renewal when one is.
func (w *worker) tell(ctx context.Context) (over bool, err error) {
	if w.unsettled != nil {
		if over, err = w.move(ctx, *w.unsettled); over || err != nil || w.unsettled != nil {
			return over, err
		}
	}
	switch {
	case w.state.Step%w.m.Milestone == 0 && w.state.Step < w.m.Steps:
		return w.advance(ctx)
	case time.Since(w.renewed) >= w.lease().RenewAfter():
		return w.judge(w.h.Renew(ctx, w.progress(), w.lease()))
	}
	return false, nil
}

// advance uploads a milestone and moves the pointer. An upload that fails costs the milestone, not the run.
func (w *worker) advance(ctx context.Context) (over bool, err error) {
	rec := w.h.Seen().Record
	w.milestone++
	prefix := record.MilestonePrefix(rec.Work, rec.Attempt, w.milestone)
	m := record.Manifest{Protocol: record.Protocol, Work: rec.Work, Attempt: rec.Attempt, Milestone: w.milestone, Step: w.state.Step, Parent: rec.Resume, Sums: w.sums()}
	sum, err := w.upload(ctx, prefix, record.MilestoneManifestKey(rec.Work, rec.Attempt, w.milestone), &m, map[string]any{StateFile: w.state})
	if err != nil {
		return false, ctx.Err()
	}
	w.events.add(`{"event":"milestone","step":%d,"milestone":%d}`, w.state.Step, w.milestone)
	w.flush(ctx)
	to := record.Pointer{Attempt: rec.Attempt, Milestone: w.milestone, Step: w.state.Step,
		Manifest: record.MilestoneManifestKey(rec.Work, rec.Attempt, w.milestone), SHA256: sum}
	return w.move(ctx, to)
}

// move moves the pointer, and remembers it while there is no verdict.
func (w *worker) move(ctx context.Context, to record.Pointer) (over bool, err error) {
	v := w.h.Advance(ctx, to, w.progress(), w.lease())
	w.unsettled = nil
	if v.Outcome == witness.Unknown {
		w.unsettled = &to
	}
	return w.judge(v)
}

// judge reads a verdict: over when the lease is lost. An unknown one costs nothing: the next call settles it first.
func (w *worker) judge(v witness.Verdict) (over bool, err error) {
	if v.Outcome == witness.Won {
		w.renewed = time.Now()
	}
	if v.Outcome == witness.Refused && !v.Over() {
		return false, v.Err
	}
	return v.Over(), nil
}

// finish uploads the result and ends the work. Without a verdict it asks again; it never gives up a result.
func (w *worker) finish(ctx context.Context) (end string, err error) {
	rec := w.h.Seen().Record
	m := record.Manifest{Protocol: record.Protocol, Work: rec.Work, Attempt: rec.Attempt, Step: w.state.Step, Parent: rec.Resume, Sums: w.sums()}
	files := map[string]any{StateFile: w.state}
	if len(w.in.job.Spec.Metrics) > 0 {
		files[MetricsFile] = w.metrics()
	}
	key := record.ResultManifestKey(rec.Work, rec.Attempt)
	sum := ""
	for {
		if sum, err = w.upload(ctx, record.ResultPrefix(rec.Work, rec.Attempt), key, &m, files); err == nil {
			break
		}
		if !sleep(ctx, time.Second) {
			return "killed", nil
		}
	}
	w.flush(ctx)
	for {
		v := w.h.Finish(ctx, witness.FinishedPointer{Attempt: rec.Attempt, Manifest: key, SHA256: sum}, w.progress())
		if v.Outcome == witness.Won {
			w.account(ctx, "finished", 0, "") // as the real worker does: end.json says it only when it is so
			return "finished", nil
		}
		if over, err := w.judge(v); err != nil || over {
			return "deposed", err
		}
		if !sleep(ctx, time.Second) {
			return "killed", nil
		}
	}
}

// metrics gives every metric that the spec asks for a value between 0 and 1 that follows from the work.
func (w *worker) metrics() map[string]float64 {
	out := map[string]float64{}
	for name := range w.in.job.Spec.Metrics {
		out[name] = w.state.Metric(name)
	}
	return out
}

// leave writes the attempt's own account of its end and gives the lease back.
func (w *worker) leave(ctx context.Context, class string, code int, text string) error {
	w.account(ctx, class, code, text)
	v := w.h.Yield(ctx, class+": "+text)
	if v.Outcome == witness.Won || v.Over() {
		return nil
	}
	return v.Err
}

// account flushes the log and writes end.json; both are lost when the store does not take them.
func (w *worker) account(ctx context.Context, class string, code int, text string) {
	rec := w.h.Seen().Record
	w.events.add(`{"event":"end","step":%d,"class":%q}`, w.state.Step, class)
	w.flush(ctx)
	end := record.End{Protocol: record.Protocol, Work: rec.Work, Attempt: rec.Attempt, Class: class, ExitCode: code,
		Step: w.state.Step, Text: text, RanS: time.Since(w.began).Seconds(), Sums: w.sums(), Time: stamp()}
	if class == "user_code" {
		end.Error, end.Policy = text, w.match(text)
		if slices.Contains(w.in.job.Claim.Terms.RetryCodes, code) {
			end.Class = "retryable"
		}
	}
	if b, err := record.Encode(end); err == nil {
		_ = w.put(ctx, record.EndKey(rec.Work, rec.Attempt), b)
	}
}

func (w *worker) lease() witness.Lease {
	return witness.LeaseFor(w.in.job.Claim.Terms.LeaseK, w.m.Step, w.m.LeaseFloor)
}

func (w *worker) progress() witness.Progress {
	return witness.Progress{Step: w.state.Step, Work: float64(w.state.Step) * w.in.job.Claim.Terms.FLOPsPerStep}
}

func stamp() string { return time.Now().UTC().Format(time.RFC3339) }

// upload puts the files and then the manifest; sum is the manifest's sha256.
func (w *worker) upload(ctx context.Context, prefix, manifest string, m *record.Manifest, files map[string]any) (sum string, err error) {
	if !sleep(ctx, w.m.Upload) {
		return "", ctx.Err()
	}
	m.Files = nil
	for _, name := range []string{MetricsFile, StateFile} {
		v, ok := files[name]
		if !ok {
			continue
		}
		b, err := json.Marshal(v)
		if err != nil {
			return "", err
		}
		if err := w.put(ctx, prefix+name, b); err != nil {
			return "", err
		}
		m.Files = append(m.Files, record.File{Path: name, Size: int64(len(b)), SHA256: record.Hash(b)})
	}
	b, err := record.Encode(m)
	if err != nil {
		return "", err
	}
	return record.Hash(b), w.put(ctx, manifest, b)
}

// put creates an object under the attempt's own prefix. It has one writer, so what is there already is ours.
func (w *worker) put(ctx context.Context, key string, b []byte) (err error) {
	for try := range 6 {
		if try > 0 && !sleep(ctx, time.Second<<try) {
			return ctx.Err()
		}
		if _, err = w.b.Put(ctx, key, bytes.NewReader(b), bucket.IfAbsent()); err == nil || bucket.Is(err, bucket.Condition) {
			return nil
		}
	}
	return err
}

func (w *worker) get(ctx context.Context, key string) (b []byte, err error) {
	for try := range 6 {
		if try > 0 && !sleep(ctx, time.Second<<try) {
			return nil, ctx.Err()
		}
		var o *bucket.Object
		if o, err = w.b.Get(ctx, key, bucket.Range{}); err != nil {
			continue
		}
		b, err = io.ReadAll(io.LimitReader(o.Body, record.MaxManifest))
		_ = o.Body.Close()
		if err == nil && int64(len(b)) == o.Size {
			return b, nil
		}
	}
	return nil, fmt.Errorf("get %s: %w", key, err)
}

// segments gathers lines and writes them as immutable segments.
type segments struct {
	prefix string
	offset int64
	sent   []byte // a segment that the store has not acknowledged: sent again with the same bytes
	buf    bytes.Buffer
}

func (s *segments) add(format string, args ...any) { fmt.Fprintf(&s.buf, format+"\n", args...) }

// flush writes what the log and the events have gathered; what the store does not take stays for the next time.
func (w *worker) flush(ctx context.Context) {
	for _, s := range []*segments{&w.log, &w.events} {
		for len(s.sent) > 0 || s.buf.Len() > 0 {
			if len(s.sent) == 0 {
				s.sent = bytes.Clone(s.buf.Bytes())
				s.buf.Reset()
			}
			if w.put(ctx, record.SegmentKey(s.prefix, s.offset), s.sent) != nil {
				break
			}
			s.offset += int64(len(s.sent))
			s.sent = nil
		}
	}
}
