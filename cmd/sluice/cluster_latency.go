package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func newClusterLatencyCommand(hub *hubFlags) *cobra.Command {
	var from string
	var median time.Duration
	cmd := &cobra.Command{
		Use:   "latency NAME --from VANTAGE --median DURATION",
		Short: "Report the latency of a member cluster as measured from elsewhere",
		Long: `Report the round-trip time to a member cluster's API server as measured from a vantage, for instance a consumer's
cluster. Plans limit it (maxLatency.from) and prefer clusters by it. Sluice itself measures only from where it runs.`,
		Example: "  sluice cluster latency eu-1 --from stockholm --median 12ms",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			measured := v1alpha1.MeasuredLatency{From: from, Median: metav1.Duration{Duration: median}, MeasuredAt: metav1.Now()}
			err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
				cluster := &v1alpha1.MemberCluster{}
				if err := c.Get(cmd.Context(), client.ObjectKey{Namespace: hub.namespace, Name: args[0]}, cluster); err != nil {
					return err
				}
				others := slices.DeleteFunc(cluster.Spec.Latencies, func(l v1alpha1.MeasuredLatency) bool { return l.From == from })
				cluster.Spec.Latencies = append(others, measured)
				return c.Update(cmd.Context(), cluster, client.FieldOwner(fieldOwner))
			})
			if err != nil {
				return fmt.Errorf("cluster %s: %w", args[0], err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "cluster %s: %s from %s\n", args[0], median, from)
			return err
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "vantage")
	cmd.Flags().DurationVar(&median, "median", 0, "median of the measurements")
	_ = cmd.MarkFlagRequired("from")
	_ = cmd.MarkFlagRequired("median")
	return cmd
}
