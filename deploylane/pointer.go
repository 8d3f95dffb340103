package deploylane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/headway-run/headway/deploylane/tag"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// pointed is one version of a pointer, and what it says.
type pointed struct {
	version bucket.Version
	current Current
}

// currentOf is what the pointer says when it is at a place.
func (l *Lane) currentOf(ctx context.Context, model string, place Link) (Current, error) {
	m := place.Record.Moved
	if m.Version == tag.None {
		return Current{N: m.N, Version: tag.None, History: place.Link}, nil
	}
	rel, found, err := l.read(ctx, key(model, m.Version, Release))
	if err != nil {
		return Current{}, err
	}
	if !found || rel.SHA256 != m.Release || rel.Record.Release == nil {
		return Current{}, &Broken{place.Key, "names a release that is not there"}
	}
	return Current{N: m.N, Version: m.Version, Release: rel.Link, Attestation: rel.Record.Release.Attestation, Artifact: rel.Record.Release.Artifact, History: place.Link}, nil
}

// upright holds a model's pointer against its history. The pointer carries no signature, so one that is gone or edited is written
// anew from the last signed place, and the error says so once. One that is merely behind, as a lane leaves it that died
// between the two writes, is brought on in silence. A pointer ahead of the history is left alone: then a place is missing, and
// going back would undo whatever it was.
func (l *Lane) upright(ctx context.Context, model string) error {
	body, info, err := get(ctx, l.Store, CurrentKey(model), record.MaxRecord)
	_, unreadable := errors.AsType[*Broken](err)
	absent := bucket.Is(err, bucket.NotFound)
	switch {
	case err != nil && !unreadable && !absent:
		return err
	case err == nil && info.Version == l.held[model].version:
		return nil
	}
	all, err := l.History(ctx, model)
	if err != nil || absent && len(all) == 0 {
		return err
	}
	var cur Current
	if unreadable || json.Unmarshal(body, &cur) != nil {
		cur = Current{}
	}
	n := int64(len(all))
	if cur.N > n || n == 0 {
		if next, found, err := l.read(ctx, placeKey(historyOf(model), n+1)); err != nil || found && next.Record.Moved != nil {
			return err // another lane moves it at this moment
		}
		return &Broken{CurrentKey(model), fmt.Sprintf("is at place %d, and its history ends at %d: bring the missing records of lane/%s/history back, or delete it and it is written anew", cur.N, n, model)}
	}
	want, err := l.currentOf(ctx, model, all[n-1])
	if err != nil {
		return err
	}
	if l.held == nil {
		l.held = map[string]pointed{}
	}
	if cur == want {
		l.held[model] = pointed{info.Version, cur}
		return nil
	}
	return l.setBack(ctx, model, all, cur, want, info.Version)
}

// setBack writes the pointer from its history's last place, if it still is what was read.
func (l *Lane) setBack(ctx context.Context, model string, all []Link, cur, want Current, version bucket.Version) error {
	said := ""
	switch {
	case version == "" && len(all) > 1:
		said = "was gone"
	case cur.N < 1 && version != "":
		said = "could not be read"
	case cur.N > 0:
		was, err := l.currentOf(ctx, model, all[cur.N-1])
		if err != nil {
			return err
		}
		if cur != was {
			said = fmt.Sprintf("was edited by somebody else (%s at place %d)", shown(cur.Version, 100), cur.N)
		}
	}
	body, err := canonical(want)
	if err != nil {
		return err
	}
	cond := bucket.IfAbsent()
	if version != "" {
		cond = bucket.IfIs(version)
	}
	_, err = l.Store.Put(ctx, CurrentKey(model), bytes.NewReader(body), cond)
	switch {
	case bucket.Is(err, bucket.Condition), bucket.Is(err, bucket.Raced), bucket.Is(err, bucket.Unknown):
		return nil // somebody else wrote it: the next look tells
	case err != nil || said == "":
		return err
	}
	return fmt.Errorf("%s %s: it is back at %s, where its signed history ends; look who can write the lane's store", CurrentKey(model), said, want.Version)
}

// Live is what the pointer of a model names; nil: nothing was ever released. Its version none: it was taken away again. A pointer that says something else than its place in
// the history is *Broken, and so is one that is gone while its history stands, and one whose attestation or model was swapped: beside that error stands what it names.
func (l *Lane) Live(ctx context.Context, model string) (*Current, error) {
	c, _, err := l.current(ctx, model)
	if err != nil {
		return nil, err
	}
	all, err := l.History(ctx, model)
	if err != nil {
		return nil, err
	}
	if c == nil {
		switch len(all) {
		case 0:
			return nil, nil
		case 1: // as a lane leaves it that died between the two writes, and for a moment any
			return nil, fmt.Errorf("%s is not there, and its history is at place 1: headway-lane run writes it", CurrentKey(model))
		}
		return nil, &Broken{CurrentKey(model), fmt.Sprintf("is gone, and its history ends at place %d, %s; headway-lane run writes it anew", len(all), all[len(all)-1].Record.Moved.Version)}
	}
	if c.N < 1 || c.N > int64(len(all)) {
		return nil, &Broken{CurrentKey(model), fmt.Sprintf("is at place %d, and its history ends at %d", c.N, len(all))}
	}
	was, err := l.currentOf(ctx, model, all[c.N-1])
	if err == nil && *c != was {
		err = &Broken{CurrentKey(model), fmt.Sprintf("was edited: place %d is %s; headway-lane run sets it back", c.N, was.Version)}
	}
	if err != nil {
		return nil, err
	}
	return c, l.sound(ctx, model, *c)
}
