package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/reconcile"
)

// platformRow is one platform of `platforms --json` and of `status --json`.
type platformRow struct {
	Platform string  `json:"platform"`
	Runner   string  `json:"runner"`
	State    string  `json:"state"` // open, parked, closed
	ParkedS  float64 `json:"parked_s,omitempty"`
	Class    string  `json:"class,omitempty"`
	Series   int     `json:"series,omitempty"` // failures in a row
	Live     int     `json:"live"`             // launches that run there or are on their way; `platforms` does not count them
	Why      string  `json:"why,omitempty"`
}

type platformsDoc struct {
	FormatVersion string        `json:"format_version"`
	Platforms     []platformRow `json:"platforms"`
}

// platformRows puts how platforms stand beside what headway.yaml says of them.
func (p *project) platformRows(states []reconcile.PlatformState) []platformRow {
	out := make([]platformRow, 0, len(states))
	for _, s := range states {
		row := platformRow{Platform: s.Name, Runner: p.plan.Config.Platforms[s.Name].Runner, State: "open", ParkedS: s.Parked.Seconds(),
			Class: s.Class, Series: s.Series, Live: s.Live, Why: s.Why}
		switch {
		case s.Closed:
			row.State = "closed"
		case s.Parked > 0:
			row.State = "parked"
		}
		out = append(out, row)
	}
	return out
}

// line is one sentence about a platform that takes no launches; "" for one that does.
func (r platformRow) line() string {
	switch r.State {
	case "closed":
		return fmt.Sprintf("platform %s is closed until a person looks (then: headway reopen %s): %s", r.Platform, r.Platform, clean(r.Why))
	case "parked":
		return fmt.Sprintf("platform %s is parked for %s, after %s in a row: %s", r.Platform, ago(time.Duration(r.ParkedS*float64(time.Second))), count(r.Series, "failure"), clean(r.Why))
	}
	return ""
}

func newPlatforms(e env) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{Use: "platforms", Short: "how each platform stands, for every dispatcher of the store", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			p, err := readProject(c.Context(), e.at(c), "")
			if err != nil {
				return err
			}
			r, _, err := p.reader(c.Context())
			if err != nil {
				return err
			}
			states, err := r.Platforms(c.Context(), p.plan.Config.Platforms)
			if err != nil {
				return err
			}
			doc := platformsDoc{FormatVersion: "1.0", Platforms: p.platformRows(states)}
			if asJSON {
				return printJSON(e.stdout, doc)
			}
			rows := [][]string{{"PLATFORM", "RUNNER", "STATE", "FOR", "IN A ROW", "WHY"}}
			for _, r := range doc.Platforms {
				rest, series := "", ""
				if r.State == "parked" {
					rest = ago(time.Duration(r.ParkedS * float64(time.Second)))
				}
				if r.Series > 0 {
					series = strconv.Itoa(r.Series)
				}
				rows = append(rows, []string{r.Platform, r.Runner, r.State, rest, series, r.Why})
			}
			return table(e.stdout, rows)
		}}
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON document")
	return c
}

func newReopen(e env) *cobra.Command {
	return &cobra.Command{Use: "reopen PLATFORM", Short: "a person has looked: a closed or parked platform is tried again", Args: cobra.ExactArgs(1),
		Long: "Ends a platform's series of failures, for every dispatcher of the store: one that was closed because its answers\nmade no sense, or one that is parked. The next pass tries it again.",
		RunE: func(c *cobra.Command, args []string) error {
			p, err := readProject(c.Context(), e.at(c), "")
			if err != nil {
				return err
			}
			conf, ok := p.plan.Config.Platforms[args[0]]
			if !ok {
				return &exit{code: exitError, err: fmt.Errorf("headway.yaml names no platform %q", args[0]),
					hint: "it names: " + strings.Join(slices.Sorted(maps.Keys(p.plan.Config.Platforms)), ", ")}
			}
			b, _, err := p.openStore(c.Context(), true)
			if err != nil {
				return err
			}
			r, err := reconcile.New(reconcile.Config{Bucket: b, ID: "reopen"})
			if err != nil {
				return err
			}
			was, err := r.Reopen(c.Context(), conf)
			if err != nil {
				return err
			}
			if was.Series == 0 && !was.Closed {
				fmt.Fprintf(e.stdout, "%s is open: there was nothing to end\n", conf.Name)
				return nil
			}
			fmt.Fprintf(e.stdout, "%s is open: the next pass tries it again; it was left alone after %s in a row: %s\n", conf.Name, count(was.Series, "failure"), clean(was.Why))
			return nil
		}}
}
