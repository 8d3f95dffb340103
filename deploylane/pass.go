package deploylane

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/headway-run/headway/deploylane/tag"
)

// codeFrozen is the word of a release that rests on a key which was revoked since.
const codeFrozen = "Frozen"

// Pass brings everything that the tags ask for as far as it goes now: releases that an accepted tag asks for are begun, those
// that have begun go on under the tag object that they began with, and stage tags of released versions move the pointer. What takes
// a model off its releases comes before the versions that were asked for after it. What
// stands in one model's way keeps no other waiting: it is in trouble.
func (l *Lane) Pass(ctx context.Context, look *tag.Look) (out []Standing, trouble []error) {
	for _, m := range look.Models {
		trouble = append(trouble, m.Trouble...)
		s, t := l.model(ctx, m, look.Policy, look.Tip)
		out, trouble = append(out, s...), append(trouble, t...)
		if ctx.Err() != nil {
			return out, append(trouble, ctx.Err())
		}
	}
	return out, trouble
}

func (l *Lane) model(ctx context.Context, m tag.Model, p *tag.Policy, tip string) (out []Standing, trouble []error) {
	say := func(what string, err error) { trouble = append(trouble, fmt.Errorf("%s: %w", what, err)) }
	if err := l.upright(ctx, m.Name); err != nil {
		say(m.Name, err)
	} else if h, is := l.held[m.Name]; is {
		if err := l.sound(ctx, m.Name, h.current); err != nil {
			say(m.Name, err)
		}
	}
	began := map[string]bool{}
	versions, err := l.Versions(ctx, m.Name)
	if err != nil {
		say(m.Name, err)
		return nil, trouble
	}
	for _, v := range versions {
		if _, began[v] = l.over[m.Name+" "+v]; !began[v] {
			_, there, err := l.read(ctx, key(m.Name, v, Candidate))
			began[v] = there || err != nil // anything else that lies there is no beginning
		}
	}
	for _, e := range m.Entries {
		o, ok := OrderOf(e)
		if !ok || began[o.Version] {
			continue
		}
		if why := tag.Frozen(m.Entries, p, o.Version); why != "" {
			continue
		}
		if s, err := l.Begin(ctx, o); err != nil {
			say(o.Tag, err)
		} else if s.Code == string(tag.TagMoved) {
			out = append(out, s)
		} else {
			began[o.Version] = true
			if !slices.Contains(versions, o.Version) {
				versions = append(versions, o.Version)
			}
		}
	}
	if l.over == nil {
		l.over, l.moved = map[string]Standing{}, map[string]bool{}
	}
	t := stageTags{l: l, m: m, b: Book{m.Entries, p, tip}, tried: map[string]bool{}}
	for _, v := range versions {
		t.downBefore(ctx, v)
		if !began[v] {
			say(m.Name+" "+v, &Broken{key(m.Name, v, Candidate), "is missing, and other records of it are there"})
			continue
		}
		s, over := l.over[m.Name+" "+v]
		if !over {
			if s, err = l.Advance(ctx, m.Name, v, t.b); err != nil {
				say(m.Name+" "+v, err)
				continue // where it stands is not known
			}
			if s.Done && s.Code != codeFrozen {
				l.over[m.Name+" "+v] = s
			}
		}
		out = append(out, s)
	}
	for _, e := range m.Entries {
		t.do(ctx, e)
	}
	return append(out, t.out...), append(trouble, t.trouble...)
}

// stageTags does what the stage tags of one model ask for, each once a pass.
type stageTags struct {
	l       *Lane
	m       tag.Model
	b       Book
	tried   map[string]bool // tag object → in this pass
	out     []Standing
	trouble []error
}

// downBefore does what takes the model off its releases and was asked for before a version was, so that no target is given the version
// while it still has, and could go back to, what a lane that died had not taken away everywhere.
func (t *stageTags) downBefore(ctx context.Context, version string) {
	for _, e := range t.m.Entries {
		if o, ok := OrderOf(e); ok && o.Version == version {
			return
		}
		if versionOf(e) == tag.None {
			t.do(ctx, e)
		}
	}
}

func (t *stageTags) do(ctx context.Context, e tag.Entry) {
	l := t.l
	if s, over := l.over[t.m.Name+" "+versionOf(e)]; t.tried[e.Object] || l.moved[e.Object] || over && s.Refused {
		return
	}
	t.tried[e.Object] = true
	why, err := l.Move(ctx, e, t.b)
	no, stopped := errors.AsType[*Stop](err)
	wait, waits := errors.AsType[*Wait](err)
	parked, stands := errors.AsType[*Parked](err)
	switch name := e.Name().String(); {
	case stopped && no.Code == codeFrozen:
		t.out = append(t.out, Standing{Model: t.m.Name, Version: name, Stage: "stage", Done: true, Code: codeFrozen, Text: no.Text})
	case waits:
		t.out = append(t.out, Standing{Model: t.m.Name, Version: name, Stage: TargetRing, Text: wait.Text, After: wait.After})
	case stands:
		t.out = append(t.out, Standing{Model: t.m.Name, Version: name, Stage: "target", Text: parked.Text})
	case err != nil:
		t.trouble = append(t.trouble, fmt.Errorf("%s: %w", name, err))
	case why != "":
		l.moved[e.Object] = true
		l.log().Info("a stage tag", "tag", name, "came to", why)
	}
}

// versionOf is the version that a tag is about; "" of one that was refused.
func versionOf(e tag.Entry) string {
	if e.Message == nil {
		return ""
	}
	return e.Message.Version
}
