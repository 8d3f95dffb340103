package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/deploylane"
	"github.com/headway-run/headway/deploylane/tag"
)

func newRun(e env) *cobra.Command {
	w := where{}
	var once, all bool
	c := &cobra.Command{Use: "run [REPOSITORY]", Short: "goes on until nothing changes by itself", Args: cobra.MaximumNArgs(1),
		Long: "Judges the tags, begins what they ask for, and goes on with what has begun, until every release is over or waits for a person.\nIt ends with 0 when all of them are released, with 100 when one was refused, with 3 when a tag was refused at this first sight of it, with\n104 when one waits for a person, with 1 when something is broken.",
		RunE: func(c *cobra.Command, args []string) error {
			e := e.at(c)
			o, err := w.open(c.Context(), e, args, true)
			if err != nil {
				return err
			}
			defer func() { _ = o.git.Close() }()
			return o.run(c.Context(), e, once, all)
		}}
	w.flags(c)
	c.Flags().BoolVar(&w.create, "create-store", false, "make the lane's store, where it is a folder that is not there yet")
	c.Flags().BoolVar(&once, "once", false, "make one pass and do not wait for what is under way")
	c.Flags().BoolVar(&all, "all", false, "say also of releases that were over before where they stand")
	return c
}

func newWatch(e env) *cobra.Command {
	w := where{}
	every := 30 * time.Second
	c := &cobra.Command{Use: "watch [REPOSITORY]", Short: "the same for ever, from a Git branch", Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			e := e.at(c)
			for said := (said{}); ; {
				o, err := w.open(c.Context(), e, args, true)
				if err == nil {
					err = o.follow(c.Context(), e, every, said)
					_ = o.git.Close()
				}
				if c.Context().Err() != nil {
					return c.Context().Err()
				}
				said.say(e, "the lane", err.Error())
				if err := pause(c.Context(), every); err != nil {
					return err
				}
			}
		}}
	w.flags(c)
	c.Flags().DurationVar(&every, "every", every, "how often the tags are looked at")
	return c
}

// said keeps what was said of each thing, so that it is said once.
type said map[string]string

func (s said) say(e env, what, text string) {
	if s[what] != text {
		s[what] = text
		fmt.Fprintf(e.stdout, "%s: %s\n", what, clean(text))
	}
}

// troubles says each trouble once, and again when it was away meanwhile.
func (s said) troubles(e env, all []error) {
	now := map[string]bool{}
	for _, t := range all {
		text := t.Error()
		if u, ok := errors.AsType[*deploylane.Broken](t); ok {
			text = u.Error()
		}
		if now[text] = true; s["trouble "+text] == "" {
			s["trouble "+text] = text
			fmt.Fprintf(e.stdout, "trouble: %s\n", clean(text))
		}
	}
	for k, text := range s {
		if strings.HasPrefix(k, "trouble ") && !now[text] {
			delete(s, k)
		}
	}
}

// frozen is the code of a release that rests on a key which was revoked since.
const frozen = "Frozen"

// standing says where a release stands.
func (s said) standing(e env, x deploylane.Standing) {
	word := x.Stage
	switch {
	case x.Refused:
		word += ": refused"
	case x.Code == frozen:
		word = "frozen"
	case x.Done:
		word = "released"
	case x.After == 0:
		word += ": waits for a person"
	}
	s.say(e, x.Model+" "+x.Version, word+": "+x.Text)
}

// pass looks at the tags and brings everything as far as it goes now. next is when to ask again; 0: nothing changes by itself.
// quiet are releases of which nothing is said while nothing is to be done for them.
func (o *opened) pass(ctx context.Context, e env, s said, quiet map[string]bool) (all []deploylane.Standing, next time.Duration, err error) {
	look, err := o.watch.Look(ctx, time.Now())
	if err != nil {
		s.troubles(e, []error{err})
		return nil, 0, err
	}
	for _, m := range look.Models {
		for _, n := range m.New {
			s.say(e, n.Ref, string(n.Code)+": "+n.Text)
			o.refused = o.refused || n.Code != tag.Accepted && n.Code != tag.TagDeleted
		}
	}
	all, trouble := o.lane.Pass(ctx, look)
	for _, x := range all {
		if !x.Done || x.Code == frozen || !quiet[x.Model+" "+x.Version] {
			s.standing(e, x)
		}
		if x.After > 0 && (next == 0 || x.After < next) {
			next = x.After
		}
	}
	s.troubles(e, trouble)
	return all, next, errors.Join(trouble...)
}

// maxDeaf is how often run tells a target that does not take a release; watch goes on for ever.
const maxDeaf = 3

// run makes passes until nothing changes by itself. What was over before says nothing of how this run ends.
func (o *opened) run(ctx context.Context, e env, once, whole bool) error {
	over, err := o.over(ctx)
	if err != nil {
		return err
	}
	quiet := map[string]bool{}
	for k, done := range over {
		quiet[k] = done && !whole
	}
	s := said{}
	for tries, deaf := 0, 0; ; {
		all, next, err := o.pass(ctx, e, s, quiet)
		u, untrusted := errors.AsType[*tag.Untrusted](err)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case untrusted:
			return &exit{code: exitRefused, err: u, hint: "name the root key's fingerprint with --root or HEADWAY_LANE_ROOTS, and sign the last change of both files with it"}
		case err != nil:
			if tries++; tries > 3 || once {
				return &exit{code: exitError, err: err}
			}
			next = max(next, 2*time.Second)
		default:
			tries = 0
		}
		if i := deafest(all, once); i >= 0 && err == nil {
			if deaf++; deaf >= maxDeaf || once {
				o.sayLive(ctx, e, s, all)
				return &exit{code: exitError, err: fmt.Errorf("%s %s is released, but %s", all[i].Model, all[i].Version, all[i].Text), hint: "mend it and run again: it gets the same key"}
			}
		}
		if once || next == 0 {
			o.sayLive(ctx, e, s, all)
			return verdict(all, over, o.refused)
		}
		if err := pause(ctx, next); err != nil {
			return err
		}
	}
}

// deafest is a release that a target did not take, where nothing but such targets is asked again (or once, anyway); -1: there is
// none. What waits for a person at a target is not asked again either.
func deafest(all []deploylane.Standing, once bool) int {
	if !once && slices.ContainsFunc(all, func(x deploylane.Standing) bool { return x.After > 0 && x.Stage != "target" }) {
		return -1
	}
	return slices.IndexFunc(all, func(x deploylane.Standing) bool { return x.After > 0 && x.Stage == "target" })
}

// sayLive says what is live now, and where it stands, also where it was over before. What is wrong with a pointer the pass has said.
func (o *opened) sayLive(ctx context.Context, e env, s said, all []deploylane.Standing) {
	for _, model := range slices.Sorted(maps.Keys(o.conf.Models)) {
		at, text, err := o.live(ctx, model)
		if err != nil || at == nil {
			continue
		}
		if i := slices.IndexFunc(all, func(x deploylane.Standing) bool { return x.Model == model && x.Version == at.Version }); i >= 0 {
			s.standing(e, all[i])
		}
		s.say(e, model, text)
	}
}

// live is what the pointer of a model names, and a sentence of it; nil: nothing was ever released.
func (o *opened) live(ctx context.Context, model string) (at *deploylane.Current, text string, err error) {
	at, err = o.lane.Live(ctx, model)
	if err != nil || at == nil || at.Version != tag.None {
		if at != nil {
			text = at.Version + " is live"
		}
		return at, text, err
	}
	places, err := o.lane.History(ctx, model)
	if err != nil || at.N > int64(len(places)) {
		return at, "nothing is live", err
	}
	return at, "nothing is live: " + places[at.N-1].Record.Moved.Tag + " took it away", nil
}

// over are the releases that are done already, as model and version.
func (o *opened) over(ctx context.Context) (map[string]bool, error) {
	out := map[string]bool{}
	for model := range o.conf.Models {
		versions, err := o.lane.Versions(ctx, model)
		if err != nil {
			return nil, err
		}
		for _, v := range versions {
			s, err := o.lane.Look(ctx, model, v)
			if _, broken := errors.AsType[*deploylane.Broken](err); broken {
				continue // the pass says so, and goes on with the others
			}
			if err != nil {
				return nil, err
			}
			done := s.Refused
			if s.Stage == deploylane.Release && !s.Refused { // one that a target has not taken yet goes on in this run
				waits, err := o.lane.Waiting(ctx, model, v, deploylane.Book{})
				if err != nil {
					return nil, err
				}
				done = waits == ""
			}
			out[model+" "+v] = done
		}
	}
	return out, nil
}

// verdict is how run ends: a release that was refused, a tag that was, somebody who is waited for, in this order.
func verdict(all []deploylane.Standing, over map[string]bool, refused bool) error {
	code := exitOK
	if refused {
		code = exitRefused
	}
	for _, x := range all {
		switch {
		case over[x.Model+" "+x.Version]:
		case x.Refused || x.Code == frozen:
			code = exitFailed
		case !x.Done && code == exitOK:
			code = exitParked
		}
	}
	if code == exitOK {
		return nil
	}
	return &exit{code: code}
}

// follow makes passes for ever. It ends when lane.yaml at the tip of the branch changed: stores and platforms are opened anew.
func (o *opened) follow(ctx context.Context, e env, every time.Duration, s said) error {
	began, err := tags{o.git}.Tip(ctx)
	if err != nil {
		return err
	}
	for {
		_, next, _ := o.pass(ctx, e, s, nil) // what is in its way was said
		if next == 0 || next > every {
			next = every
		}
		if err := pause(ctx, next); err != nil {
			return err
		}
		if tip, err := (tags{o.git}).Tip(ctx); err == nil && tip != began {
			return errors.New("the branch has moved on: " + short(tip))
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
