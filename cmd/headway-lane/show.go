package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/deploylane"
	"github.com/headway-run/headway/deploylane/tag"
)

// row is one release in `status --json`.
type row struct {
	Model    string `json:"model"`
	Version  string `json:"version"`
	Stage    string `json:"stage"`
	Released bool   `json:"released"`
	Refused  bool   `json:"refused"`
	Live     bool   `json:"live"`
	Code     string `json:"code,omitempty"`
	Text     string `json:"text"`
	Waits    string `json:"waits,omitempty"` // for whom or what
}

// refusal is a tag that was refused, in `status --json`.
type refusal struct {
	Tag    string `json:"tag"`
	Object string `json:"object"`
	Code   string `json:"code"`
	Text   string `json:"text"`
	Signer string `json:"signer,omitempty"`
	Seen   string `json:"seen"` // first, by the lane's clock
}

func newStatus(e env) *cobra.Command {
	w := where{}
	var asJSON bool
	c := &cobra.Command{Use: "status [REPOSITORY]", Short: "where each release stands, by its records", Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			e := e.at(c)
			o, err := w.open(c.Context(), e, args, false)
			if err != nil {
				return err
			}
			defer func() { _ = o.git.Close() }()
			return o.status(c.Context(), e, asJSON)
		}}
	w.flags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "for programs")
	return c
}

// status prints the releases, and the tags that were refused.
func (o *opened) status(ctx context.Context, e env, asJSON bool) error {
	rows, refused, trouble := o.rows(ctx)
	away := o.takenAway(ctx)
	if asJSON {
		enc := json.NewEncoder(e.stdout)
		enc.SetIndent("", "  ")
		return errors.Join(trouble, enc.Encode(map[string]any{"format_version": "1.2", "releases": rows, "refused_tags": refused, "taken_away": away}))
	}
	if len(rows) == 0 {
		fmt.Fprintln(e.stdout, "no release was begun yet: a signed tag release/MODEL/vX.Y.Z begins one, and headway-lane tag prepare writes its message")
	}
	t := tabwriter.NewWriter(e.stdout, 0, 8, 2, ' ', 0)
	if len(rows) > 0 {
		fmt.Fprintln(t, "MODEL\tVERSION\tSTAGE\tSTATE\t")
	}
	for _, r := range rows {
		state := "under way"
		switch {
		case r.Code == "Broken":
			state = "cannot be read"
		case r.Refused:
			state = "refused: " + r.Code
		case r.Live:
			state = "live"
		case r.Released:
			state = "released"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t\n", r.Model, r.Version, r.Stage, clean(state))
	}
	err := t.Flush()
	for _, model := range slices.Sorted(maps.Keys(away)) {
		fmt.Fprintf(e.stdout, "%s: %s\n", model, clean(away[model]))
	}
	for _, r := range rows {
		if r.Waits != "" {
			fmt.Fprintf(e.stdout, "%s %s waits for: %s\n", r.Model, r.Version, clean(r.Waits))
		}
	}
	for _, r := range refused {
		fmt.Fprintf(e.stdout, "refused %s (%s) %s: %s\n", clean(r.Tag), short(r.Object), r.Code, clean(r.Text))
	}
	return errors.Join(trouble, err)
}

// takenAway says of each model whose pointer names no release on purpose which tag did that.
func (o *opened) takenAway(ctx context.Context) map[string]string {
	out := map[string]string{}
	for model := range o.conf.Models {
		if at, text, err := o.live(ctx, model); err == nil && at != nil && at.Version == tag.None { // what is bad is in trouble
			out[model] = text
		}
	}
	return out
}

// rows are the releases and the refused tags. What cannot be read keeps no other from being shown: it is in trouble, and has the
// code Broken.
func (o *opened) rows(ctx context.Context) (out []row, refused []refusal, trouble error) {
	out, refused = []row{}, []refusal{}
	policy, err := o.policy(ctx)
	trouble = errors.Join(trouble, err)
	known, err := tag.Models(ctx, o.lane.Store)
	trouble = errors.Join(trouble, err)
	models := slices.Sorted(maps.Keys(o.conf.Models))
	for _, m := range known { // of models that lane.yaml has no more, and of names that no model can have
		if !slices.Contains(models, m) {
			models = append(models, m)
		}
	}
	for _, model := range models {
		l := tag.OpenLedger(o.lane.Store, o.watch.Seal, model)
		trouble = errors.Join(trouble, l.Read(ctx))
		for _, e := range l.Entries() {
			if e.Code != tag.Accepted && e.Code != tag.TagDeleted {
				refused = append(refused, refusal{strings.TrimPrefix(e.Ref, "refs/tags/"), e.Object, string(e.Code), e.Text, e.Signer, e.Seen})
			}
		}
		if _, ours := o.conf.Models[model]; !ours {
			continue
		}
		versions, err := o.lane.Versions(ctx, model)
		live, gone := o.lane.Live(ctx, model)
		trouble = errors.Join(trouble, err, gone)
		for _, v := range versions {
			r, err := o.row(ctx, model, v, live, deploylane.Book{Entries: l.Entries(), Policy: policy})
			trouble = errors.Join(trouble, err)
			out = append(out, r)
		}
	}
	return out, refused, trouble
}

func (o *opened) row(ctx context.Context, model, version string, live *deploylane.Current, b deploylane.Book) (row, error) {
	s, err := o.lane.Look(ctx, model, version)
	if err != nil {
		return row{Model: model, Version: version, Stage: "?", Code: "Broken", Text: err.Error()}, err
	}
	r := row{model, version, s.Stage, s.Stage == deploylane.Release && !s.Refused, s.Refused, live != nil && live.Version == version, s.Code, s.Text, ""}
	r.Waits, err = o.lane.Waiting(ctx, model, version, b)
	return r, err
}

func newShow(e env) *cobra.Command {
	w := where{}
	c := &cobra.Command{Use: "show MODEL[@VERSION] [REPOSITORY]", Short: "draws a model's lineage, with the hash of each record", Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			e := e.at(c)
			o, err := w.open(c.Context(), e, args[1:], false)
			if err != nil {
				return err
			}
			defer func() { _ = o.git.Close() }()
			model, version, one := strings.Cut(args[0], "@")
			versions, err := o.lane.Versions(c.Context(), model)
			if err != nil {
				return err
			}
			if one {
				if !slices.Contains(versions, version) {
					return &exit{code: exitError, err: fmt.Errorf("%s has no release %q", clean(model), version), hint: "its releases: " + strings.Join(versions, ", ")}
				}
				versions = []string{version}
			}
			if len(versions) == 0 {
				return &exit{code: exitError, err: fmt.Errorf("nothing of %q was ever asked for", model), hint: "models: " + strings.Join(slices.Sorted(maps.Keys(o.conf.Models)), ", ")}
			}
			return o.show(c.Context(), e.stdout, model, versions)
		}}
	w.flags(c)
	return c
}

// show draws releases and the pointer's places.
func (o *opened) show(ctx context.Context, to io.Writer, model string, versions []string) error {
	live, err := o.lane.Live(ctx, model)
	if err != nil {
		return err
	}
	for _, v := range versions {
		l, err := o.lane.Lineage(ctx, model, v, live)
		if err != nil {
			return err
		}
		state := l.State
		if l.Live {
			state = "live"
		}
		fmt.Fprintf(to, "%s %s  %s\n", model, v, state)
		for i, s := range l.Steps {
			line, mark := "├─", "│"
			if i == len(l.Steps)-1 {
				line, mark = "└─", " "
			}
			fmt.Fprintf(to, "%s %-9s %s  %s  %s\n", line, s.Stage, short(s.SHA256), s.Written.Format(time.RFC3339), s.Outcome())
			for _, text := range s.Lines() {
				fmt.Fprintf(to, "%s    %s\n", mark, clean(text))
			}
		}
	}
	places, err := o.lane.History(ctx, model)
	if err != nil || len(places) == 0 {
		return err
	}
	fmt.Fprintln(to, "pointer")
	for i, k := range places {
		line := "├─"
		if i == len(places)-1 {
			line = "└─"
		}
		m := k.Record.Moved
		fmt.Fprintf(to, "%s %d %s  %s  by %s (%s)\n", line, m.N, m.Version, short(k.SHA256), clean(m.Tag), short(m.Cause))
	}
	return nil
}
