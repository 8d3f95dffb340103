package deploylane

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headway-run/headway/deploylane/ring"
	"github.com/headway-run/headway/deploylane/tag"
)

// unrelease takes a model's pointer off every release, and its rings down: what a stage tag with the version none asks for. It is one more place in
// the history, once per tag, so a stage tag can point at a release again and a later release moves the pointer as ever.
func (l *Lane) unrelease(ctx context.Context, e tag.Entry, b Book, done string) (string, error) {
	if why := b.frozen(e); why != "" {
		return "", stop(codeFrozen, "%s", why)
	}
	n := e.Name()
	all, err := l.History(ctx, n.Model)
	if err != nil {
		return "", err
	}
	rings, err := l.rings(ctx, n.Model)
	if err != nil {
		return "", err
	}
	rec := Record{Stage: "stage", Model: n.Model, Version: tag.None, Object: e.Object, Passed: true, Reason: CurrentKey(n.Model) + " names no release: there is nothing to take away"}
	h := PointerHistory{Version: tag.None, Cause: e.Object, Tag: n.String(), Reason: shown(e.Message.Reason, 500)}
	if len(all) > 0 {
		if rec.Reason, err = l.point(ctx, n.Model, h, b.late(e.Object)); err != nil {
			return "", err
		}
	}
	for _, name := range rings {
		said, err := l.takeDown(ctx, n.Model, name, h, b.late(e.Object))
		if err != nil {
			return "", fmt.Errorf("ring %s: %w", name, err)
		}
		rec.Reason += "; " + said
	}
	k, err := l.create(ctx, done, rec)
	return k.Record.Reason, err
}

// rings are the rings that a model was ever asked for on.
func (l *Lane) rings(ctx context.Context, model string) (out []string, err error) {
	root := "lane/" + model + "/ring/"
	for after := ""; ; {
		page, err := l.Store.List(ctx, root, after, 1)
		if err != nil || len(page.Items) == 0 {
			return out, err
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(page.Items[0].Key, root), "/")
		after = root + name + "0" // just behind it
		if asked, err := l.places(ctx, model, askedOf(model, name)); err != nil {
			return nil, err
		} else if len(asked) > 0 {
			out = append(out, name)
		}
	}
}

// takenAway names the stage tag with the version none that was acted on, or began to be, when a release was there already; "": none
// was. Such a release does not come back by the targets that it had left; one that was made afterwards is newer.
func (l *Lane) takenAway(ctx context.Context, r *release, rel Link) (string, error) {
	model := rel.Record.Model
	rings, err := l.rings(ctx, model)
	if err != nil {
		return "", err
	}
	dirs := []string{historyOf(model)}
	for _, name := range rings {
		dirs = append(dirs, askedOf(model, name))
	}
	began := map[string]Link{} // tag object → its first place
	for _, dir := range dirs {
		all, err := l.places(ctx, model, dir)
		if err != nil {
			return "", err
		}
		for _, k := range all {
			m := k.Record.Moved
			if first, there := began[m.Cause]; m.Version == tag.None && (!there || k.At.Before(first.At)) {
				began[m.Cause] = k
			}
		}
	}
	for _, cause := range slices.Sorted(maps.Keys(began)) {
		k := began[cause]
		if k.At.After(rel.At) { // both are stamps of the store
			return k.Record.Moved.Tag, nil
		}
	}
	for _, e := range r.book.Entries { // where there was nothing to take away, only its record says when
		if _, there := began[e.Object]; there { // its record may be much later: a ring could not be reached
			continue
		}
		if n := e.Name(); e.Code == tag.Accepted && n.Stage != "" && e.Message != nil && e.Message.Version == tag.None {
			if k, found, err := l.read(ctx, stageKey(n.Model, e.Object)); err != nil || found && k.At.After(rel.At) {
				return n.String(), err
			}
		}
	}
	return "", nil
}

// takeDown asks a ring for no release any more, and empties it. As with load, the last thing that it was asked for is done.
func (l *Lane) takeDown(ctx context.Context, model, name string, h PointerHistory, late tooLate) (string, error) {
	all, err := l.place(ctx, "ring", model, askedOf(model, name), h, late)
	if err != nil {
		return "", err
	}
	if m := all[len(all)-1].Record.Moved; m.Cause != h.Cause {
		return fmt.Sprintf("ring %s was asked for %s by %s: it is not taken down", name, m.Version, m.Tag), nil
	}
	asked, err := l.Asked(ctx, model, name)
	if err != nil {
		return "", err
	}
	loader, done, err := l.RingOf(ctx, model, asked.Plan)
	if err != nil {
		return "", err
	}
	defer done()
	if err := loader.Empty(ctx, asked.Plan); err != nil {
		return "", l.parked(ctx, Link{}, Target{}, name, err)
	}
	return fmt.Sprintf("ring %s is taken down", name), nil
}

// RecoverRing finishes or takes back what a lane that died left on a ring. One that a stage tag took down is loaded with nothing.
func (l *Lane) RecoverRing(ctx context.Context, model string, p *ring.Plan) (ring.Outcome, error) {
	asked, err := l.Asked(ctx, model, p.Ring)
	if err != nil {
		return ring.Outcome{}, err
	}
	loader, done, err := l.RingOf(ctx, model, p)
	if err != nil {
		return ring.Outcome{}, err
	}
	defer done()
	if asked != nil && asked.Version == tag.None {
		return ring.Outcome{Why: asked.Tag + " took it down"}, loader.Empty(ctx, p)
	}
	return loader.Recover(ctx, p)
}
