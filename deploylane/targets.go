package deploylane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/headway-run/headway/deploylane/attest"
	"github.com/headway-run/headway/deploylane/preflight"
	"github.com/headway-run/headway/deploylane/tag"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// TargetAnswer is lane/<model>/<version>/target-<name>.json: what a target answered.
type TargetAnswer struct {
	Target    string            `json:"target"`
	Kind      string            `json:"kind"`
	Key       string            `json:"key"` // idempotency key: the same at every try
	Text      string            `json:"text"`
	Preflight *preflight.Report `json:"preflight,omitempty"` // of a ring that refused: everything that was found
}

// PointerHistory is lane/<model>/history/<n>.json: the pointer's n-th place. The history is the truth; lane/<model>/current is
// swapped to its last record.
type PointerHistory struct {
	N       int64  `json:"n"` // from 1, without a gap
	Before  string `json:"before,omitempty"`
	Version string `json:"version"` // or none: nothing is released any more
	Release string `json:"release"` // sha256 of the release's record
	Cause   string `json:"cause"`   // tag object that asked for it: each moves the pointer once
	Tag     string `json:"tag"`
	Reason  string `json:"reason,omitempty"`
}

// Current is lane/<model>/current: what is live. It is the one object of the lane that is swapped. With the version none it
// names no release, no attestation and no artifact.
type Current struct {
	N           int64       `json:"n"`
	Version     string      `json:"version"`
	Release     attest.Link `json:"release,omitzero"`
	Attestation attest.Link `json:"attestation,omitzero"`
	Artifact    attest.Link `json:"artifact,omitzero"`
	History     attest.Link `json:"history"`
}

// CurrentKey is where the pointer of a model lies.
func CurrentKey(model string) string { return "lane/" + model + "/current" }

// stageKey is where the record of a stage tag lies that was acted on.
func stageKey(model, object string) string { return "lane/" + model + "/stage/" + object + ".json" }

// historyOf is where the places of a model's pointer lie.
func historyOf(model string) string { return "lane/" + model + "/history/" }

// targets hands a release to each of its targets, in their order. A lane that died between the release and a target does it
// at its next start; one whose answer was written down is not asked again.
func (l *Lane) targets(ctx context.Context, r *release, s Standing) (Standing, error) {
	rel := r.chain[len(r.chain)-1]
	for _, t := range r.c.Model.Targets {
		k := key(s.Model, s.Version, "target-"+t.Name)
		told, found, err := l.read(ctx, k)
		if err != nil {
			return s, err
		}
		if found {
			why := told.Record.ident().follows(ident{"target", s.Model, s.Version, rel.SHA256, rel.Record.Object})
			if a := told.Record.Answer; why == "" && (a == nil || a.Target != t.Name) {
				why = "is of another target"
			}
			if why != "" {
				return s, &Broken{k, why}
			}
			continue
		}
		if why, err := l.overtaken(ctx, r, rel, t); err != nil {
			return s, err
		} else if why != "" {
			a := Record{Stage: "target", Model: s.Model, Version: s.Version, Object: rel.Record.Object, Before: rel.SHA256, Code: "Overtaken", Answer: &TargetAnswer{Target: t.Name, Kind: t.Kind, Key: rel.SHA256},
				Reason: t.Name + " was not told: " + why}
			if _, err := l.create(ctx, k, a); err != nil {
				return s, err
			}
			continue
		}
		a, err := l.tell(ctx, r, rel, t)
		if w, waits := errors.AsType[*Wait](err); waits {
			s.Stage, s.Text, s.After = TargetRing, w.Text, w.After
			return s, nil
		}
		if err != nil {
			s.Stage, s.Code, s.Text, s.After = "target", t.Name, fmt.Sprintf("target %s: %s", t.Name, shown(err.Error(), 4000)), 6*l.poll()
			if _, parked := errors.AsType[*Parked](err); parked {
				s.After = 0
			}
			return s, nil // said in the standing, and tried again
		}
		a.Stage, a.Model, a.Version, a.Object, a.Before = "target", s.Model, s.Version, rel.Record.Object, rel.SHA256
		if _, err := l.create(ctx, k, a); err != nil {
			return s, err
		}
	}
	s.Done = true
	return s, nil
}

// overtaken says why telling a target now would bring an older version back: it took a newer one already, asked for later, or the
// model was taken away. "": nothing is in the way.
func (l *Lane) overtaken(ctx context.Context, r *release, rel Link, t Target) (string, error) {
	if by, err := l.takenAway(ctx, r, rel); err != nil || by != "" {
		return by + " took the model away when this release was there already; a stage tag moves it back", err
	}
	later := false
	for _, e := range r.book.Entries {
		o, ok := OrderOf(e)
		switch {
		case !ok || !t.outward(): // the others have a history of their own
		case o.Object == r.c.Order.Object:
			later = true
		case later && newer(o.Version, r.c.Order.Version):
			if k, found, err := l.read(ctx, key(o.Model, o.Version, "target-"+t.Name)); err != nil || found && k.Record.Passed {
				return "it has " + o.Version + ", which is newer and was asked for later", err
			}
		}
	}
	return "", nil
}

// tell tells a target and gives its record. The targets are those of the tagged commit, and no record can be changed: so one that
// does not take the release, and may be mistyped there, is told as the newest lane.yaml has it.
func (l *Lane) tell(ctx context.Context, r *release, rel Link, t Target) (Record, error) {
	took := func(t Target, text, as string) Record {
		return Record{Passed: true, Reason: t.Name + " took it" + as, Answer: &TargetAnswer{Target: t.Name, Kind: t.Kind, Key: rel.SHA256, Text: shown(text, 2000)}}
	}
	text, err := l.target(ctx, r, rel, t)
	_, waits := errors.AsType[*Wait](err)
	switch {
	case err == nil:
		return took(t, text, ""), nil
	case t.Kind == TargetRing && !waits:
		return Record{}, fmt.Errorf("%w; its plan is frozen with the release: what is wrong in it takes a new version", err)
	case waits || !t.outward():
		return Record{}, err
	}
	now, there, why := l.corrected(ctx, r, t)
	as := fmt.Sprintf("as %s of commit %s has it", File, short(r.book.Tip))
	switch {
	case now != nil:
		if text, err = l.target(ctx, r, rel, *now); err == nil {
			return took(*now, text, ", "+as), nil
		}
		return Record{}, fmt.Errorf("%w (%s)", err, as)
	case !there:
		return Record{Code: "Dropped", Reason: fmt.Sprintf("%s was not told: %s of commit %s has no target of this name any more", t.Name, File, short(r.book.Tip)),
			Answer: &TargetAnswer{Target: t.Name, Kind: t.Kind, Key: rel.SHA256}}, nil
	}
	return Record{}, fmt.Errorf("%w; it is told again at each look; if it is wrong in %s, mend or remove it there, in a commit that a root key signs: for a target that has not taken a release the newest one counts%s", err, File, why)
}

// outward: it is told by the lane and has no records of its own.
func (t Target) outward() bool { return t.Kind == TargetExec || t.Kind == TargetWebhook }

// corrected is a target as the newest lane.yaml has it; nil: the same, or not known, and why says what is in the way. there is false where
// the model has no such target any more.
func (l *Lane) corrected(ctx context.Context, r *release, t Target) (now *Target, there bool, why string) {
	if r.book.Tip == "" {
		return nil, true, ""
	}
	conf, err := l.Git.Lane(ctx, r.book.Tip)
	m, known := conf.Models[r.c.Model.Name]
	if err != nil {
		return nil, true, fmt.Sprintf("; that of commit %s does not: %v", short(r.book.Tip), err)
	}
	if !known {
		return nil, true, ""
	}
	i := slices.IndexFunc(m.Targets, func(o Target) bool { return o.Name == t.Name })
	switch {
	case i < 0:
		return nil, false, ""
	case !m.Targets[i].outward() || m.Targets[i].Kind == t.Kind && m.Targets[i].Secret == t.Secret && slices.Equal(m.Targets[i].Argv, t.Argv):
		return nil, true, ""
	}
	return &m.Targets[i], true, ""
}

// target does one: at least once, with the same key each time.
func (l *Lane) target(ctx context.Context, r *release, rel Link, t Target) (string, error) {
	place := PointerHistory{Version: rel.Record.Version, Release: rel.SHA256, Cause: r.c.Order.Object, Tag: r.c.Order.Tag, Reason: "released"}
	switch {
	case t.Kind == TargetPointer:
		return l.point(ctx, r.c.Model.Name, place, byItself(place.Version))
	case t.Kind == TargetRing && t.Ring != nil:
		return l.load(ctx, rel, t, place, byItself(place.Version))
	}
	body, err := l.attestation(ctx, rel.Record.Release)
	if err != nil {
		return "", err
	}
	switch {
	case t.Kind == TargetExec && l.Exec != nil:
		return l.Exec(ctx, t.Argv, rel.SHA256, body)
	case t.Kind == TargetWebhook && l.Hook != nil:
		return l.Hook(ctx, t.Secret, rel.SHA256, body)
	}
	return "", fmt.Errorf("this build has no target of kind %s", t.Kind)
}

// Move points the pointer of a model at a version that was released before: what a stage tag asks for. Nothing is trained. The
// release is checked as it was when it was made: its chain, its attestation, every byte of its files. A version none takes the
// pointer off every release. What rests on a key that was revoked since moves nothing: a *Stop.
func (l *Lane) Move(ctx context.Context, e tag.Entry, b Book) (string, error) {
	n := e.Name()
	if e.Code != tag.Accepted || n.Stage == "" || e.Message == nil {
		return "", nil
	}
	version := e.Message.Version
	done := stageKey(n.Model, e.Object)
	if k, found, err := l.read(ctx, done); err != nil || found {
		if why := k.Record.ident().follows(ident{"stage", n.Model, version, k.Record.Before, e.Object}); err == nil && why != "" {
			err = &Broken{done, why}
		}
		return k.Record.Reason, err
	}
	if version == tag.None {
		return l.unrelease(ctx, e, b, done)
	}
	chain, err := l.Chain(ctx, n.Model, version)
	if err != nil {
		return "", err
	}
	if len(chain) < len(Stages()) || !chain[len(chain)-1].Record.Passed {
		return "", nil // it approves what is under way
	}
	rel := chain[len(chain)-1]
	rec := Record{Stage: "stage", Model: n.Model, Version: version, Object: e.Object, Before: rel.SHA256, Passed: true}
	if chain[len(chain)-2].Record.approvedBy(e.Object) {
		rec.Reason = n.String() + " approved the release of " + version
	} else {
		if why := b.frozen(e); why != "" {
			return "", stop(codeFrozen, "%s", why)
		}
		rec, err = gated(rec, l.intact(ctx, chain))
		if err != nil {
			return "", err
		}
		if rec.Passed {
			h := PointerHistory{Version: version, Release: rel.SHA256, Cause: e.Object, Tag: n.String(), Reason: shown(e.Message.Reason, 500)}
			if rec.Reason, err = l.point(ctx, n.Model, h, b.late(e.Object)); err != nil {
				return "", err
			}
			for _, t := range chain[0].Record.Candidate.Model.Targets {
				if t.Kind != TargetRing || t.Ring == nil {
					continue
				}
				said, err := l.load(ctx, rel, t, h, b.late(e.Object))
				if err != nil {
					return "", fmt.Errorf("target %s: %w", t.Name, err)
				}
				rec.Reason += "; " + said
			}
		}
	}
	k, err := l.create(ctx, done, rec)
	return k.Record.Reason, err
}

func (r Record) approvedBy(object string) bool {
	for _, t := range r.Approval {
		if t.Object == object {
			return true
		}
	}
	return false
}

// intact checks a whole release as it lies in the store.
func (l *Lane) intact(ctx context.Context, chain []Link) error {
	c, rel := chain[0].Record.Candidate, chain[len(chain)-1].Record.Release
	if c == nil || rel == nil {
		return &Broken{chain[0].Key, "holds no candidate of a release"}
	}
	r := &release{c: c, chain: chain}
	res, err := l.still(ctx, r, Retrain, c.Retrain, c.Model.metrics())
	if err != nil {
		return err
	}
	if err := whole(ctx, l.Store, res, c.Retrain.Job); err != nil {
		return err
	}
	b, err := l.attestation(ctx, rel)
	if err != nil {
		return err
	}
	if l.Attester != nil {
		if _, err := attest.Verify(b, []attest.Key{l.Attester.Key()}); err != nil {
			return stop("Attestation", "%v", err)
		}
	}
	return nil
}

// newer says that version a is above b.
func newer(a, b string) bool {
	v, errA := tag.ParseVersion(a)
	w, errB := tag.ParseVersion(b)
	return errA == nil && errB == nil && v.Compare(w) > 0
}

// point gives the pointer one more place and swaps current to the last place. A lane that died between the two finishes the
// swap here.
func (l *Lane) point(ctx context.Context, model string, h PointerHistory, late tooLate) (string, error) {
	for range 20 { // others write it at the same time
		all, err := l.place(ctx, "pointer", model, historyOf(model), h, late)
		if err != nil {
			return "", err
		}
		last := all[len(all)-1].Record.Moved
		if !slices.ContainsFunc(all, func(k Link) bool { return k.Record.Moved.Cause == h.Cause }) {
			return fmt.Sprintf("%s stays at %s: %s", CurrentKey(model), last.Version, late(all)), nil
		}
		done, err := l.swap(ctx, model, all[len(all)-1])
		if err != nil || done {
			return fmt.Sprintf("%s is at %s", CurrentKey(model), last.Version), err
		}
	}
	return "", errors.New("others moved the pointer again and again meanwhile")
}

// tooLate says why something that was asked for takes no place behind those that are there; "": it takes one.
type tooLate func(all []Link) string

// byItself: a release takes no place behind a newer version, also where that one was taken away. Going back takes a stage tag.
func byItself(version string) tooLate {
	return func(all []Link) string {
		if newer(lastNamed(all), version) {
			return "a newer version was there; a stage tag moves it back"
		}
		return ""
	}
}

// late: a stage tag takes no place behind what a later tag asked for, as when both are seen at one look.
func (b Book) late(object string) tooLate {
	return func(all []Link) string {
		at := func(o string) int {
			return slices.IndexFunc(b.Entries, func(e tag.Entry) bool { return e.Code == tag.Accepted && e.Object == o })
		}
		for _, k := range all {
			if m := k.Record.Moved; at(m.Cause) > at(object) && at(object) >= 0 {
				return m.Tag + " was tagged later"
			}
		}
		return ""
	}
}

// place gives a target one more place in its history, once per cause and unless it is late, and reads all of them: the last one counts.
func (l *Lane) place(ctx context.Context, stage, model, dir string, h PointerHistory, late tooLate) ([]Link, error) {
	for range 20 { // others write it at the same time
		all, err := l.places(ctx, model, dir)
		if err != nil {
			return nil, err
		}
		n := len(all)
		if slices.ContainsFunc(all, func(k Link) bool { return k.Record.Moved.Cause == h.Cause }) ||
			late(all) != "" {
			return all, nil
		}
		h.N, h.Before = int64(n)+1, ""
		if n > 0 {
			h.Before = all[n-1].SHA256
		}
		moved := h
		r := Record{Stage: stage, Model: model, Version: h.Version, Object: h.Cause, Before: h.Before, Passed: true, Reason: h.Tag + " points at " + h.Version, Moved: &moved}
		if _, err := l.create(ctx, placeKey(dir, h.N), r); err != nil { // somebody else may have this place: look again
			return nil, err
		}
	}
	return nil, fmt.Errorf("others wrote %s again and again meanwhile", dir)
}

// lastNamed is the version of the last place that is not none; "" for none at all.
func lastNamed(all []Link) string {
	for _, k := range slices.Backward(all) {
		if k.Record.Moved.Version != tag.None {
			return k.Record.Moved.Version
		}
	}
	return ""
}

func placeKey(dir string, n int64) string { return fmt.Sprintf("%s%08d.json", dir, n) }

// History reads the places of a model's pointer, oldest first, and holds each against the one before.
func (l *Lane) History(ctx context.Context, model string) ([]Link, error) {
	return l.places(ctx, model, historyOf(model))
}

func (l *Lane) places(ctx context.Context, model, dir string) (out []Link, err error) {
	before := ""
	for n := int64(1); ; n++ {
		k, found, err := l.read(ctx, placeKey(dir, n))
		if err != nil || !found {
			return out, err
		}
		m := k.Record.Moved
		if m == nil || m.N != n || m.Before != before || k.Record.Model != model {
			return out, &Broken{k.Key, "does not follow the place before it"}
		}
		before = k.SHA256
		out = append(out, k)
	}
}

// swap moves current to a place, unless it is there already or ahead. false: somebody else moved it meanwhile.
func (l *Lane) swap(ctx context.Context, model string, last Link) (bool, error) {
	m := last.Record.Moved
	want, err := l.currentOf(ctx, model, last)
	if err != nil {
		return false, err
	}
	cur, version, err := l.current(ctx, model)
	if err != nil {
		return false, err
	}
	if cur != nil && cur.N >= m.N {
		return cur.N > m.N || cur.History.SHA256 == last.SHA256, nil
	}
	body, err := canonical(want)
	if err != nil {
		return false, err
	}
	cond := bucket.IfAbsent()
	if cur != nil {
		cond = bucket.IfIs(version)
	}
	_, err = l.Store.Put(ctx, CurrentKey(model), bytes.NewReader(body), cond)
	switch {
	case err == nil:
		return true, nil
	case bucket.Is(err, bucket.Condition), bucket.Is(err, bucket.Raced), bucket.Is(err, bucket.Unknown):
		return false, nil // look again: it may be ours
	}
	return false, err
}

// current reads the pointer; nil: there is none yet.
func (l *Lane) current(ctx context.Context, model string) (*Current, bucket.Version, error) {
	b, info, err := get(ctx, l.Store, CurrentKey(model), record.MaxRecord)
	if bucket.Is(err, bucket.NotFound) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	var c Current
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, "", &Broken{CurrentKey(model), "cannot be read"}
	}
	return &c, info.Version, nil
}
