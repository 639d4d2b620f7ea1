package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/internal/hub"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/placement/kube"
)

func newCollectCommand(flags *hubFlags) *cobra.Command {
	var output outputFlag
	var remove bool
	cmd := &cobra.Command{
		Use:   "collect",
		Short: "Find objects of Sluice on member clusters that no instance or binding owns",
		Long: `Find objects on member clusters that this hub's Sluice created and that no instance or binding owns: namespaces,
service accounts, role bindings. Without --remove nothing is changed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.client(cmd)
			if err != nil {
				return err
			}
			config, err := flags.config(cmd)
			if err != nil {
				return err
			}
			id, err := hub.Identity(cmd.Context(), config)
			if err != nil {
				return err
			}
			connections := &member.Connections{Reader: c, Namespace: flags.namespace}
			if flags.embedded() {
				if connections.Keys, err = seal.Open(flags.keysetPath()); err != nil {
					return err
				}
			}
			collector := &kube.Collector{Live: c, Connections: connections, Namespace: flags.namespace, Hub: id}
			report, err := collector.Collect(cmd.Context(), remove)
			t := table{header: []string{"CLUSTER", "KIND", "NAMESPACE", "NAME", "LOST OWNER", "AGE", "REMOVED"}}
			for _, r := range report.Remnants {
				t.rows = append(t.rows, []string{r.Cluster, r.Kind, orDash(r.Namespace), r.Name, r.Owner, age(r.Created), fmt.Sprint(r.Removed)})
			}
			if printed := output.print(cmd.OutOrStdout(), report, t); printed != nil {
				return printed
			}
			return err
		},
	}
	flags.bind(cmd)
	output.bind(cmd)
	cmd.Flags().BoolVar(&remove, "remove", false, "remove the objects that are found")
	return cmd
}
