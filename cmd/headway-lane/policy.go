package main

import (
	"encoding/json"
	"errors"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/deploylane/access"
)

func newPolicy(e env) *cobra.Command {
	var research, own string
	c := &cobra.Command{Use: "policy RESEARCH LANE", Short: "the buckets' policies that keep research and the lane apart", Args: cobra.ExactArgs(2),
		Long: "Prints, for each bucket, the policy that lets RESEARCH write research alone and LANE write the lane alone. The two are\n" +
			"principals as the server calls them: ARNs on AWS, access keys elsewhere. Nothing is put in force.",
		Example: "  headway-lane policy --research s3://acme/team-a --store s3://acme-lane/team-a arn:aws:iam::1:role/research arn:aws:iam::1:role/lane",
		RunE: func(_ *cobra.Command, args []string) error {
			if research == "" || own == "" {
				return &exit{code: exitError, err: errors.New("--research and --store are needed"), hint: "the two URLs of lane/lane.yaml"}
			}
			at, err := access.At(research)
			if err != nil {
				return err
			}
			place, err := access.At(own)
			if err != nil {
				return err
			}
			p, err := access.Separate(args[0], args[1], at, place)
			if err != nil {
				return err
			}
			enc := json.NewEncoder(e.stdout)
			enc.SetIndent("", "  ")
			return enc.Encode(p)
		}}
	c.Flags().StringVar(&research, "research", "", "URL of research's store")
	c.Flags().StringVar(&own, "store", "", "URL of the lane's store")
	return c
}
