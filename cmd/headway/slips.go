package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/plan"
)

// forgiving makes every slip in a command line answer with what it would take: the verb's usage line, the nearest verb.
func forgiving(root *cobra.Command) {
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &exit{code: exitError, err: err, hint: usage(c)}
	})
	for _, c := range root.Commands() {
		takes := c.Args
		if takes == nil {
			continue
		}
		c.Args = func(c *cobra.Command, args []string) error {
			err := takes(c, args)
			if _, ours := errors.AsType[*exit](err); err == nil || ours {
				return err
			}
			_, what, _ := strings.Cut(c.Use, " ")
			if what == "" {
				what = "no arguments"
			}
			got := "nothing"
			if len(args) > 0 {
				got = fmt.Sprintf("%d: %s", len(args), clean(strings.Join(args, " ")))
			}
			return &exit{code: exitError, err: fmt.Errorf("%s takes %s and got %s", c.Name(), what, got), hint: usage(c)}
		}
	}
}

func usage(c *cobra.Command) string {
	if !c.HasParent() {
		return c.CommandPath() + " --help lists all verbs"
	}
	return fmt.Sprintf("it is: %s; %s --help says more", c.UseLine(), c.CommandPath())
}

// unknownVerb is cobra's error for a verb that does not exist, with the nearest that does, and for flags that exclude each
// other, in words; any other error as it is.
func unknownVerb(root *cobra.Command, err error) error {
	if m := regexp.MustCompile(`^if any flags in the group \[.*\] are set none of the others can be; \[(.*)\] were all set$`).FindStringSubmatch(err.Error()); m != nil {
		return &exit{code: exitError, err: fmt.Errorf("--%s cannot be given together", strings.ReplaceAll(m[1], " ", " and --")), hint: "leave one of them out"}
	}
	var word string
	if n, _ := fmt.Sscanf(err.Error(), "unknown command %q", &word); n != 1 {
		return err
	}
	var known []string
	for _, c := range root.Commands() {
		if !c.Hidden {
			known = append(known, c.Name())
		}
	}
	hint := usage(root)
	near := byOtherName(word)
	if near == "" {
		near = plan.Nearest(word, known)
	}
	if near != "" {
		hint = fmt.Sprintf("did you mean headway %s? %s", near, hint)
	}
	return &exit{code: exitError, err: fmt.Errorf("unknown command %q", word), hint: hint}
}

// byOtherName is the verb here for what other tools of this sort call otherwise; "" where there is none.
func byOtherName(word string) string {
	switch word {
	case "diff", "show":
		return "plan"
	case "ls", "list", "ps", "queue", "jobs":
		return "status"
	case "stop", "kill", "down", "destroy", "delete":
		return "cancel"
	case "up", "sync", "reconcile":
		return "apply"
	case "run", "start", "submit", "retry":
		return "launch"
	case "history":
		return "timeline"
	case "describe", "why":
		return "explain"
	case "version":
		return "--version"
	}
	return ""
}
