package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/internal/carried"
	"github.com/sluice-dev/sluice/internal/hub"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/placement/kube"
)

func newCollectCommand(flags *hubFlags) *cobra.Command {
	var output outputFlag
	var remove bool
	var found remnants
	cmd := &cobra.Command{
		Use:   "collect",
		Short: "Find objects of Sluice on member clusters that no instance or binding owns",
		Long: `Find objects on member clusters that this hub's Sluice created and that no instance or binding owns: namespaces, service
accounts, role bindings. Without --remove nothing is changed. On a hub that was restored from a backup, --remove removes
nothing before "sluice hub release"; until then, "sluice remnant adopt" makes the instances known again that were
ordered after the backup, and "sluice remnant remove" removes single objects.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := found.open(cmd, flags); err != nil {
				return err
			}
			report, err := found.collector.Collect(cmd.Context(), remove)
			t := table{header: []string{"CLUSTER", "KIND", "NAMESPACE", "NAME", "LOST OWNER", "SIZE", "AGE", "ORDER", "REMOVED"}}
			for _, r := range report.Remnants {
				owner := r.Owner
				if r.Elsewhere {
					owner += " (is on other clusters)"
				}
				t.rows = append(t.rows, []string{r.Cluster, r.Kind, orDash(r.Namespace), r.Name, owner, sizeOf(r.Size), age(r.Created), found.describe(&r), fmt.Sprint(r.Removed)})
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
	found.bind(cmd)
	return cmd
}

// remnants finds what a hub does not know on its member clusters.
type remnants struct {
	// keyset is the path of the keyset that opens orders.
	keyset string
	// joinAddresses has the ranges in which clusters may be whose addresses others have given, as for sluice serve.
	joinAddresses ranges

	hub       client.Client
	namespace string
	keys      *seal.Keyset // nil if there is none
	collector *kube.Collector
}

func (r *remnants) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.keyset, "keyset", "", "keyset of sluice serve, which opens the orders that namespaces carry (default: the one that a sluice serve with an embedded hub was started with)")
	bindJoinAddresses(cmd.Flags(), &r.joinAddresses)
}

// open connects to the hub.
func (r *remnants) open(cmd *cobra.Command, flags *hubFlags) (err error) {
	if r.hub, err = flags.client(cmd); err != nil {
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
	r.namespace = flags.namespace
	connections := &member.Connections{Reader: r.hub, Namespace: flags.namespace, AllowAddresses: r.joinAddresses}
	switch {
	case r.keyset != "":
		r.keys, err = seal.Load(r.keyset)
	case flags.embedded():
		if r.keys, err = seal.Load(flags.keysetPath()); errors.Is(err, fs.ErrNotExist) {
			err = nil // nothing is sealed yet
		}
	}
	if err != nil {
		return err
	}
	connections.Keys = r.keys
	r.collector = &kube.Collector{Live: r.hub, Connections: connections, Namespace: flags.namespace, Hub: id, Hold: holdOf(config)}
	return nil
}

// order returns the order that a namespace carries.
func (r *remnants) order(namespace *kube.Remnant) (*carried.Order, error) {
	if r.keys == nil {
		return nil, errors.New("its order cannot be opened: name the keyset of sluice serve with --keyset")
	}
	order, err := carried.Open(namespace.Order(), r.keys, r.namespace, namespace.Owner)
	if err == nil {
		err = order.Adoptable()
	}
	return order, err
}

// describe returns who ordered a namespace's instance; a dash if that is not known.
func (r *remnants) describe(found *kube.Remnant) string {
	if found.Kind != "Namespace" {
		return "-"
	}
	order, err := r.order(found)
	if err != nil {
		return "-"
	}
	return fmt.Sprintf("%s of %s", order.Spec.InstanceID, order.Spec.Platform)
}

// sizeOf prints what the quotas of a namespace allow.
func sizeOf(size corev1.ResourceList) string {
	var parts []string
	for _, of := range []struct {
		name corev1.ResourceName
		unit string
	}{{corev1.ResourceRequestsCPU, "cpu"}, {corev1.ResourceRequestsMemory, "memory"}, {corev1.ResourceRequestsStorage, "storage"}} {
		if amount, has := size[of.name]; has && !amount.IsZero() {
			parts = append(parts, amount.String()+" "+of.unit)
		}
	}
	return orDash(strings.Join(parts, ", "))
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
