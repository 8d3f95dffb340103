package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/reconcile/timeline"
)

// timelineDoc is `timeline --json`.
type timelineDoc struct {
	FormatVersion string           `json:"format_version"`
	Job           string           `json:"job"`
	Work          string           `json:"work"`
	Earlier       int64            `json:"earlier,omitempty"`
	Gone          bool             `json:"milestones_gone,omitempty"`
	Events        []timeline.Event `json:"events"`
}

func newTimeline(e env) *cobra.Command {
	var asJSON, follow bool
	c := &cobra.Command{Use: "timeline JOB", Short: "what befell a job, in order, each with its time and its reason", Args: cobra.ExactArgs(1),
		Long: "Tells what happened to a job's work: submitted, claimed, launched or refused, captured, milestones, revoked or yielded,\nended, released, finished. Times are the store's own stamps. It is read out of the immutable records in the store.",
		RunE: func(c *cobra.Command, args []string) error {
			if asJSON && follow {
				return &exit{code: exitError, err: errors.New("--json is one document, and --follow never ends"), hint: "take one of the two"}
			}
			op, err := openNamed(c.Context(), e.at(c), args[0])
			if err != nil {
				return err
			}
			r := timeline.New(op.b, string(op.work))
			if follow {
				return followTimeline(c.Context(), e, r)
			}
			t, err := r.Read(c.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(e.stdout, timelineDoc{"1.0", op.job, string(op.work), t.Earlier, t.Gone, t.Events})
			}
			printTimeline(e, t, t.Events)
			return nil
		}}
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON document")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "stay until the work is finished")
	return c
}

// followTimeline prints what is new, until the work is finished. An event is told once: how a lease was lost gets another
// stamp when only the next claim remembers it, where that is of an older version.
func followTimeline(ctx context.Context, e env, r *timeline.Reader) error {
	told := map[string]bool{}
	for {
		t, err := r.Read(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		var news []timeline.Event
		for _, v := range t.Events {
			key := fmt.Sprintf("%s %d %d", v.What, v.Attempt, v.Step)
			if v.Attempt == 0 {
				key = fmt.Sprintf("%s %d %s %s", v.What, v.Dispatch, v.Class, v.Time)
			}
			if !told[key] {
				told[key] = true
				news = append(news, v)
			}
		}
		printTimeline(e, &timeline.Timeline{Events: t.Events}, news)
		if t.Over {
			return nil
		}
		if err := pause(ctx, 2*time.Second); err != nil {
			return nil
		}
	}
}

// printTimeline prints events, one a line.
func printTimeline(e env, t *timeline.Timeline, events []timeline.Event) {
	if len(t.Events) == 0 {
		fmt.Fprintln(e.stdout, "nothing has happened yet: no dispatcher has claimed a launch")
	}
	if t.Earlier > 0 {
		fmt.Fprintf(e.stdout, "%s and attempts before these are not shown\n", count(int(t.Earlier), "launch"))
	}
	if t.Gone {
		fmt.Fprintln(e.stdout, "earlier milestones are not shown: retention let them go, or there are too many")
	}
	for _, v := range events {
		fmt.Fprintln(e.stdout, eventLine(v))
	}
}

// eventLine is an event as people read it.
func eventLine(v timeline.Event) string {
	var s strings.Builder
	at := "-"
	if !v.Time.IsZero() {
		at = v.Time.UTC().Format(time.RFC3339)
	}
	fmt.Fprintf(&s, "%-20s  %-10s", at, v.What)
	if v.Dispatch > 0 && v.Attempt == 0 {
		fmt.Fprintf(&s, "  launch %d", v.Dispatch)
	}
	if v.Attempt > 0 {
		fmt.Fprintf(&s, "  attempt %d", v.Attempt)
	}
	if v.Platform != "" {
		fmt.Fprintf(&s, " on %s", v.Platform)
	}
	if v.Step > 0 && v.What != timeline.Captured {
		fmt.Fprintf(&s, " at step %d", v.Step)
	}
	if v.By != "" {
		fmt.Fprintf(&s, " by %s", v.By)
	}
	text := v.Reason
	if v.Class != "" && text != "" {
		text = v.Class + ": " + text
	} else if text == "" {
		text = v.Class
	}
	switch {
	case text == "":
	case v.Dispatch == 0 && v.Attempt == 0: // of the work as a whole
		fmt.Fprintf(&s, "  %s", text)
	default:
		fmt.Fprintf(&s, ": %s", text)
	}
	return strings.TrimRight(s.String(), " ")
}
