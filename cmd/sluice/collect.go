package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

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
service accounts, role bindings. Without --remove nothing is changed. On a hub that was restored from a backup, nothing is
removed before "sluice hub release".`,
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
			collector := &kube.Collector{Live: c, Connections: connections, Namespace: flags.namespace, Hub: id, Hold: holdOf(config)}
			report, err := collector.Collect(cmd.Context(), remove)
			t := table{header: []string{"CLUSTER", "KIND", "NAMESPACE", "NAME", "LOST OWNER", "AGE", "REMOVED"}}
			for _, r := range report.Remnants {
				owner := r.Owner
				if r.Elsewhere {
					owner += " (is on other clusters)"
				}
				t.rows = append(t.rows, []string{r.Cluster, r.Kind, orDash(r.Namespace), r.Name, owner, age(r.Created), fmt.Sprint(r.Removed)})
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

// holdOf returns a function whose error says why nothing may be removed that the hub does not know.
func holdOf(config *rest.Config) func(context.Context) error {
	return func(ctx context.Context) error {
		mark, err := hub.Restored(ctx, config)
		if mark == nil || err != nil {
			return err
		}
		return fmt.Errorf("the hub was %s, and does not know what was made since: nothing is removed before `sluice hub release`", mark)
	}
}

// holdCheck is how often it is looked whether the operator has released a restored hub.
const holdCheck = 2 * time.Second

// cached returns a check that is made at most once in a while; between, the last result counts.
func cached(check func(context.Context) error, while time.Duration) func(context.Context) error {
	var (
		mu   sync.Mutex
		at   time.Time
		last error
	)
	return func(ctx context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(at) >= while {
			last, at = check(ctx), time.Now()
		}
		return last
	}
}
