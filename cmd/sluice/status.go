package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/internal/hub"
	"github.com/sluice-dev/sluice/internal/overview"
	"github.com/sluice-dev/sluice/internal/pages"
)

func newStatusCommand(flags *hubFlags) *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Count what there is, and list what is not ready, and why",
		Long: `Count the clusters, brokers, pools, credentials of providers, policies, offerings, peerings, instances, bindings and
event sinks, and list each that is not ready, with the reason: the one that has been so for longest comes first. What
is being changed at the moment is listed as well with -o wide.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.client(cmd)
			if err != nil {
				return err
			}
			seen, err := look(cmd.Context(), c, flags.namespace)
			if err != nil {
				return err
			}
			o := &state{Overview: seen}
			config, err := flags.config(cmd)
			if err != nil {
				return err
			}
			if o.Restored, err = hub.Restored(cmd.Context(), config); err != nil && !apierrors.IsForbidden(err) {
				return err
			}
			if !output.forPeople() {
				return output.print(cmd.OutOrStdout(), o, table{})
			}
			return o.write(cmd.OutOrStdout(), &output)
		},
	}
	flags.bind(cmd)
	output.bind(cmd)
	return cmd
}

// state is the state of a marketplace.
type state struct {
	// Restored is the mark of a hub that was restored from a backup and has not been released; nil if there is none.
	Restored *hub.RestoredMark `json:"restored,omitempty"`
	*overview.Overview
}

// look reads the hub page by page.
func look(ctx context.Context, c client.Client, namespace string) (*overview.Overview, error) {
	return overview.Look(ctx, func(ctx context.Context, list client.ObjectList, do func(client.Object) error) error {
		return pages.Each(ctx, c, list, do, client.InNamespace(namespace))
	})
}

// write prints the overview for people.
func (o *state) write(w io.Writer, output *outputFlag) error {
	t := table{header: []string{"WHAT", "ALL", "READY", "CHANGING", "NOT READY"}}
	for _, r := range o.Resources {
		t.rows = append(t.rows, []string{r.What, fmt.Sprint(r.All), fmt.Sprint(r.Ready), fmt.Sprint(r.Changing), fmt.Sprint(r.NotReady)})
	}
	if err := t.write(w, output); err != nil {
		return err
	}
	troubles := o.NotReady
	if output.format == outputWide {
		troubles = append(troubles, o.Changing...)
	}
	if o.Restored != nil {
		fmt.Fprintf(w, "\nThe hub was %s. `sluice collect` lists what was made since; nothing of it is removed before `sluice hub release`.\n", o.Restored)
	} else if len(troubles) == 0 {
		_, err := fmt.Fprintln(w, "\nNothing needs attention.")
		return err
	}
	if len(troubles) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t = table{header: []string{"WHAT", "NAME", "FOR", "REASON", "MESSAGE"}}
	for _, one := range troubles {
		t.rows = append(t.rows, []string{one.What, one.Name, age(one.Since), one.Reason, orDash(one.Message)})
	}
	return t.write(w, output)
}
