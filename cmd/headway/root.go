package main

import (
	"path/filepath"

	"github.com/spf13/cobra"
)

// newRoot builds the command tree; nothing is kept at package level.
func newRoot(e env) *cobra.Command {
	root := &cobra.Command{
		Use:   "headway",
		Short: "commit a plan; headway sees it finished, on machines that may vanish",
		Long: "headway reads job plans from a Git repository, holds them against the leases in an object store, and launches,\n" +
			"recovers and stops what they ask for. Start with: headway demo",
		SilenceUsage: true, SilenceErrors: true, Version: version,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.PersistentFlags().StringP("directory", "C", "", "start in this folder instead of the working folder")
	root.AddGroup(&cobra.Group{ID: "files", Title: "Plans:"}, &cobra.Group{ID: "act", Title: "Acting:"}, &cobra.Group{ID: "look", Title: "Looking (these launch and stop nothing):"}, &cobra.Group{ID: "more", Title: "More:"})
	group := func(id string, cs ...*cobra.Command) {
		for _, c := range cs {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	group("files", newInit(e), newValidate(e), newPlan(e), newComment(e), newSchema(e), newWheel(e))
	group("act", newApply(e), newWatch(e), newLaunch(e), newCancel(e), newRevoke(e), newRelease(e), newReopen(e), newGC(e))
	group("look", newStatus(e), newPlatforms(e), newLog(e, true), newLog(e, false), newTimeline(e), newExplain(e), newCosts(e), newFetch(e), newDoctor(e), newPreflight(e))
	group("more", newDemo(e), newAgent(e))
	root.AddCommand(newExample(e))
	return root
}

// at returns the environment with -C applied.
func (e env) at(c *cobra.Command) env {
	if dir, err := c.Flags().GetString("directory"); err == nil && dir != "" {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(e.dir, dir)
		}
		e.dir = filepath.Clean(dir)
	}
	return e
}
