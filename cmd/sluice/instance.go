package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/journal"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement"
)

func newInstanceCommand(hub *hubFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "instance",
		Short: "Show service instances, move them, and restore their data",
	}
	hub.bind(cmd)
	cmd.AddCommand(newInstanceListCommand(hub), newInstanceDescribeCommand(hub), newInstanceContractCommand(hub), newInstanceMoveCommand(hub), newInstanceRestoreCommand(hub))
	return cmd
}

func newInstanceListCommand(hub *hubFlags) *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List service instances",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			var instances v1alpha1.ServiceInstanceList
			if err := c.List(cmd.Context(), &instances, client.InNamespace(hub.namespace)); err != nil {
				return fmt.Errorf("list service instances: %w", err)
			}
			plans, err := namePlans(cmd.Context(), c, hub.namespace)
			if err != nil {
				return err
			}
			t := table{header: []string{"PLATFORM", "INSTANCE", "PLAN", "OPERATION", "STATE", "CLUSTERS", "AGE"}}
			for _, instance := range instances.Items {
				operation, state := "-", "-"
				if op := instance.Status.Operation; op != nil {
					operation, state = string(op.Type), string(op.State)
				}
				t.rows = append(t.rows, []string{
					instance.Spec.Platform, instance.Spec.InstanceID, plans.of(&instance),
					operation, state, orDash(strings.Join(instance.Status.Decision.Clusters(), ",")), age(v1alpha1.CreatedOf(&instance)),
				})
			}
			return output.print(cmd.OutOrStdout(), instances.Items, t)
		},
	}
	output.bind(cmd)
	return cmd
}

func newInstanceDescribeCommand(hub *hubFlags) *cobra.Command {
	var output outputFlag
	var platform string
	cmd := &cobra.Command{
		Use:   "describe INSTANCE",
		Short: "Show one instance: its operation, its decision, why other clusters were rejected, and its events",
		Long:  "Show one instance, given by its OSB instance id or by the name of its ServiceInstance.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			instance, err := findInstance(cmd.Context(), c, hub.namespace, platform, args[0])
			if err != nil {
				return err
			}
			if output.forPeople() {
				plans, err := namePlans(cmd.Context(), c, hub.namespace)
				if err != nil {
					return err
				}
				events, err := journal.Of(cmd.Context(), c, instance)
				if err != nil {
					return fmt.Errorf("read the journal: %w", err)
				}
				return describeInstance(cmd.OutOrStdout(), instance, events, plans)
			}
			return output.print(cmd.OutOrStdout(), *instance, table{})
		},
	}
	output.bind(cmd)
	bindPlatform(cmd, &platform)
	return cmd
}

func bindPlatform(cmd *cobra.Command, platform *string) {
	cmd.Flags().StringVar(platform, "platform", "", "platform that owns the instance, where the id alone is ambiguous")
}

// findInstance finds one instance by its OSB instance id, or by the name of its ServiceInstance. An empty
// platform means any.
func findInstance(ctx context.Context, c client.Client, namespace, platform, id string) (*v1alpha1.ServiceInstance, error) {
	var instances v1alpha1.ServiceInstanceList
	if err := c.List(ctx, &instances, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list service instances: %w", err)
	}
	var found []v1alpha1.ServiceInstance
	for _, instance := range instances.Items {
		if isNamed(instance.Subject(), platform, id) {
			found = append(found, instance)
		}
	}
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("no instance %q; `sluice instance list` shows them all, and `sluice events` what happened to one that is gone", id)
	case len(found) > 1:
		return nil, fmt.Errorf("%d platforms have an instance %q: choose one with --platform", len(found), id)
	}
	return &found[0], nil
}

// restsOn returns the clusters that an instance is on, as long as nothing is being done with it. Otherwise the error says
// what.
func restsOn(instance *v1alpha1.ServiceInstance) (clusters []string, err error) {
	status := &instance.Status
	clusters = status.DeliveredDecision().Clusters()
	switch {
	case !instance.DeletionTimestamp.IsZero():
		return nil, errors.New("it is being deprovisioned")
	case len(clusters) == 0:
		return nil, errors.New("it is not delivered")
	case !status.IsFinished() || status.IsMoving():
		return nil, errors.New("an operation or a move is in progress; try again when it has ended")
	}
	return clusters, nil
}

// isNamed reports whether an id names an instance, as for findInstance.
func isNamed(instance v1alpha1.EventSubject, platform, id string) bool {
	return (instance.Name == id || instance.InstanceID == id) && (platform == "" || platform == instance.Platform)
}

// planNames maps service and plan ids to names, because people do not know the ids.
type planNames map[string]string

// namePlans reads the names of all plans in specs and in last accepted specs.
func namePlans(ctx context.Context, c client.Client, namespace string) (planNames, error) {
	var offerings v1alpha1.ServiceOfferingList
	if err := c.List(ctx, &offerings, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list service offerings: %w", err)
	}
	named := planNames{}
	for i := range offerings.Items {
		offering := &offerings.Items[i]
		for _, spec := range []*v1alpha1.ServiceOfferingSpec{&offering.Spec, offering.Status.Accepted} {
			if spec == nil {
				continue
			}
			for _, plan := range spec.Plans {
				named[spec.ID+" "+plan.ID] = spec.Name + "/" + plan.Name
			}
		}
	}
	return named, nil
}

// of returns an instance's plan as service/plan, with ids for a plan that is no longer
// offered.
func (n planNames) of(instance *v1alpha1.ServiceInstance) string {
	return n.named(instance.Spec.ServiceID, instance.Spec.Desired.PlanID)
}

// named returns a plan as service/plan, with ids for one that is no longer offered.
func (n planNames) named(service, plan string) string {
	if name, ok := n[service+" "+plan]; ok {
		return name
	}
	return service + "/" + plan
}

// split returns the names of a service and a plan, or the ids of one that is no longer offered.
func (n planNames) split(serviceID, planID string) (service, plan string) {
	name, found := n[serviceID+" "+planID]
	if !found {
		return serviceID, planID
	}
	service, plan, _ = strings.Cut(name, "/")
	return service, plan
}

// describeInstance prints all that is known of an instance, each sentence once, and then its events.
func describeInstance(w io.Writer, instance *v1alpha1.ServiceInstance, events []v1alpha1.Event, plans planNames) error {
	d := newDetails(w)
	d.line("Instance", "%s", instance.Spec.InstanceID)
	d.line("Resource", "%s", instance.Name)
	d.line("Platform", "%s", instance.Spec.Platform)
	if via := instance.Spec.Via; len(via) > 0 {
		d.line("Via", "the hubs %s", strings.Join(via, ", "))
	}
	d.line("Plan", "%s", plans.of(instance))
	if order := instance.Spec.Pool; order != nil {
		d.line("For", "instance %s of %s, which is ordered from pool %s", order.Instance, order.Platform, order.Pool)
	}
	placed := instance.Status.InForce()
	if i := slices.IndexFunc(placed, func(p *v1alpha1.Placement) bool { return p.Pool != nil }); i >= 0 {
		d.line("Ordered", "from pool %s, whose own order is the instance %s", placed[i].Cluster, placed[i].Pool.Instance)
	} else if i := slices.IndexFunc(placed, func(p *v1alpha1.Placement) bool { return p.Upstream != nil }); i >= 0 {
		d.line("Ordered", "%s from %s", placed[i].Upstream.Name(), placed[i].Cluster)
		if at := placed[i].Upstream.Dashboard; at != nil {
			d.line("Dashboard", "%s", cmp.Or(at.URL, "none"))
			if at.Ignored != "" {
				d.line("", "the last dashboard_url of the broker is ignored: %s", at.Ignored)
			}
		}
	} else {
		d.line("Namespace", "%s on every cluster below", v1alpha1.MemberNamespace(instance.Name))
	}
	said := map[string]bool{"": true}
	if op := instance.Status.Operation; op != nil {
		d.line("Operation", "%s: %s, started %s ago", op.Type, op.State, age(op.StartedAt))
		if op.Description != "" {
			said[op.Description] = true
			d.line("", "%s", op.Description)
		}
		for i := range op.Refusals {
			d.line("Refused", "by %s, %s ago: %s", op.Refusals[i].Cluster, age(op.Refusals[i].At), op.Refusals[i].Description)
		}
	}
	for _, condition := range instance.Status.Conditions {
		text := fmt.Sprintf("%s (%s)", condition.Status, condition.Reason)
		if !said[condition.Message] {
			said[condition.Message] = true
			text += " " + condition.Message
		}
		d.line(condition.Type, "%s", text)
	}
	for _, c := range instance.Status.Copies {
		state := "ready"
		if !c.Ready {
			state = "not ready"
		}
		d.line("Copy", "of %s on %s: %s for %s", orDash(c.In()), c.Cluster, state, age(c.Since))
	}
	describeBackups(d, &instance.Status)
	describeRoom(d, "Makes room", instance.Status.Preemption)
	if instance.Status.Decision != nil {
		describeDecision(d, instance.Status.Decision)
	}
	describeEvents(d, events)
	return d.flush()
}

func describeEvents(d *details, events []v1alpha1.Event) {
	list(d, "Events", events, func(e v1alpha1.Event) string {
		text := fmt.Sprintf("%s  %s", e.At.Local().Format(time.DateTime), e.Type)
		if len(e.Clusters) > 0 {
			text += " on " + strings.Join(e.Clusters, ", ")
		}
		if by := journal.User(e.By); by != "" {
			text += " by " + by
		}
		if e.After != nil {
			text += fmt.Sprintf(" after %s", e.After.Duration)
		}
		if e.Message != "" {
			text += ": " + e.Message
		}
		return text
	})
}

func describeDecision(d *details, decision *v1alpha1.Decision) {
	if decision.Workload != nil {
		d.line("Workload", "%s", buysWorkload(decision.Workload))
	}
	for _, p := range workload.Exposed(decision) {
		d.line("Public", "%s, port %d", p.Name, p.Port)
	}
	d.line("Considered", "%s", count(int(decision.Considered), "cluster"))
	for _, p := range decision.Placements {
		price := ""
		if p.PricePerHour != nil {
			price = ", " + placement.Price{Currency: p.Currency, NanoPerHour: p.PricePerHour.ScaledValue(resource.Nano)}.String()
		}
		replicas := ""
		if p.Replicas > 0 {
			replicas = fmt.Sprintf(", %d of %d replicas", p.Replicas, decision.Replicas())
		}
		grown := ""
		if len(p.Grown) > 0 {
			grown = ", and " + quantities(p.Grown) + " that volumes keep of a failed update"
		}
		d.line("Placed on", "%s%s, score %d, reserved %s%s%s", p.Cluster, replicas, p.Score, quantities(p.Reserved), grown, price)
	}
	for _, left := range decision.Displaced {
		d.line("Displaced from", "%s, %s ago: %s", left.Cluster, age(left.At), left.Reason)
	}
	describeRoom(d, "Displaced", decision.Preemption)
	for _, rejection := range decision.Rejections {
		d.line("Rejected", "%d × %s", rejection.Count, rejection.Reason)
		for _, example := range rejection.Examples {
			d.line("", "%s: %s", example.Cluster, example.Message)
		}
	}
}

// describeBackups prints the backups of the instance's volumes, the newest first, and the last restore.
func describeBackups(d *details, status *v1alpha1.ServiceInstanceStatus) {
	for _, b := range slices.Backward(status.Backups) {
		if b.IsComplete() {
			d.line("Backup", "%s of %s, %s ago, at %s", b.ID, b.Cluster, age(*b.At), b.Target)
		}
		if b.FailedAt != nil {
			d.line("Backup failed", "%s of %s, %s ago: %s", b.ID, b.Cluster, age(*b.FailedAt), b.Failure)
		}
	}
	switch r := status.Restored; {
	case r == nil:
	case r.At != nil:
		d.line("Restored", "backup %s on %s, %s ago", r.Backup, r.Cluster, age(*r.At))
	default:
		d.line("Not restored", "%s ago: %s", age(*r.FailedAt), r.Failure)
	}
}

// describeRoom prints the instances that leave a cluster, or have left it, for the
// instance.
func describeRoom(d *details, key string, p *v1alpha1.Preemption) {
	if p == nil {
		return
	}
	for i, room := range p.Rooms() {
		if i > 0 {
			key = ""
		}
		if p.Moves() {
			d.line(key, "on %s by moves: %s", room.Cluster, room.Message)
		} else {
			d.line(key, "on %s for class %s (%d): %s", room.Cluster, p.PriorityClass, p.Priority, room.Message)
		}
		for _, v := range room.Victims {
			if len(v.To) > 0 {
				d.line("", "%s to %s, %s", v.Instance, strings.Join(v.To, ", "), quantities(v.Reserved))
				continue
			}
			d.line("", "%s of class %s (%d), %s", v.Instance, v.PriorityClass, v.Priority, quantities(v.Reserved))
		}
	}
}
