package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/plan"
)

// problemDoc is `validate --json`.
type problemDoc struct {
	FormatVersion string         `json:"format_version"`
	OK            bool           `json:"ok"`
	Jobs          int            `json:"jobs"`
	Files         int            `json:"files"`
	Problems      []plan.Problem `json:"problems"`
}

func newValidate(e env) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{Use: "validate", Short: "checks the files, offline: all problems of all files", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			p, err := readProject(c.Context(), e.at(c), "")
			if err != nil {
				return err
			}
			if asJSON {
				ok := !slices.ContainsFunc(p.problems, func(q plan.Problem) bool { return q.Severity == plan.Error })
				doc := problemDoc{FormatVersion: "1.0", OK: ok, Jobs: len(p.plan.Jobs), Files: len(p.plan.Files), Problems: p.problems}
				if doc.Problems == nil {
					doc.Problems = []plan.Problem{}
				}
				if err := printJSON(e.stdout, doc); err != nil || doc.OK {
					return err
				}
				return &exit{code: exitError}
			}
			if p.printProblems() {
				return &exit{code: exitError}
			}
			warnOfPlaces(p.env, p.plan.Config.Notify, false)
			fmt.Fprintf(e.stdout, "ok: %s in %s\n", count(len(p.plan.Jobs), "job"), count(len(p.plan.Files), "file"))
			return nil
		}}
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON document")
	return c
}

func newSchema(e env) *cobra.Command {
	return &cobra.Command{Use: "schema [plan|config|fields]", Short: "the JSON Schema of plan files, for editors", Args: cobra.MaximumNArgs(1),
		ValidArgs: []string{"plan", "config", "fields"},
		RunE: func(_ *cobra.Command, args []string) error {
			what := "plan"
			if len(args) == 1 {
				what = args[0]
			}
			var err error
			switch what {
			case "plan":
				_, err = e.stdout.Write(plan.Schema())
			case "config":
				_, err = e.stdout.Write(plan.ConfigSchema())
			case "fields":
				_, err = fmt.Fprint(e.stdout, plan.FieldsMarkdown())
			default:
				return &exit{code: exitError, err: fmt.Errorf("there is no schema of %q", what), hint: "one of: plan, config, fields"}
			}
			return err
		}}
}

// count says "1 job", "2 jobs".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if strings.HasSuffix(what, "s") {
		return fmt.Sprintf("%d %ses", n, what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}
