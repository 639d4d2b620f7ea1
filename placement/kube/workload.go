package kube

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// render returns the workload's objects as they are applied; none if the instance runs nothing. It
// refuses a workload that takes more than is reserved here, and makes room in the quota for as many claims as it has.
func (t *target) render() ([]*unstructured.Unstructured, error) {
	if t.of.Workload == nil {
		return nil, nil
	}
	objects, err := t.of.Workload.Render(t.Charts, t.facts, t.Namespace)
	if refused := (*workload.RefusedError)(nil); errors.As(err, &refused) {
		return nil, &delivery.RefusedError{Reason: "the workload cannot run on " + t.Connection.Cluster + ": " + refused.Reason, Consumer: refused.Reason}
	}
	if err != nil {
		return nil, err
	}
	taken, err := workload.Taken(objects)
	if err != nil {
		return nil, &delivery.RefusedError{Reason: err.Error(), Consumer: err.Error()}
	}
	if over := workload.Exceeds(taken, t.of.Placement.Reserved); over != "" {
		return nil, &delivery.RefusedError{
			Reason: fmt.Sprintf("the workload on %s %s: its resources must not depend on the cluster", t.Connection.Cluster, over),
			Remedy: "the plan's author has to change its expressions",
		}
	}
	claims, err := workload.ClaimCount(objects)
	if err != nil {
		return nil, err
	}
	t.hard = withRoom(t.hard, corev1.ResourceList{countOfClaims: *resource.NewQuantity(claims, resource.DecimalSI)})
	return t.ofSet(objects), retain(objects)
}

// renderFormer returns the objects of the workload in force, as its plan has them.
func (t *target) renderFormer(ctx context.Context) ([]*unstructured.Unstructured, error) {
	if err := t.exposeElsewhere(ctx, t.of.Former); err != nil {
		return nil, err
	}
	objects, err := t.of.Former.Render(t.Charts, t.facts, t.Namespace)
	if err != nil {
		return nil, fmt.Errorf("render the workload in force: %w", err)
	}
	return objects, nil
}

// ofSet labels objects as the instance's, and those of its set.
func (t *target) ofSet(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	labels := t.Labels()
	labels[labelPartOf] = t.setID()
	for _, o := range objects {
		all := o.GetLabels()
		for name, value := range labels {
			all[name] = value
		}
		o.SetLabels(all)
		o.SetGroupVersionKind(t.served(o.GroupVersionKind()))
	}
	return objects
}

// served returns a kind in the version in which the cluster serves it, if that can differ.
func (t *target) served(kind schema.GroupVersionKind) schema.GroupVersionKind {
	if kind == workload.TLSRoutes {
		if mapping, err := t.Connection.Client.RESTMapper().RESTMapping(kind.GroupKind()); err == nil {
			return mapping.GroupVersionKind
		}
	}
	return kind
}

// exposeElsewhere fills in the exposures of the other clusters of an order, for addresses of public
// components there. A cluster that left the inventory has none.
func (d *Driver) exposeElsewhere(ctx context.Context, order *workload.Order) error {
	if order == nil || order.Share == nil || !order.Plan.IsPublic() {
		return nil
	}
	for name, remote := range order.Share.Elsewhere {
		cluster, err := d.Connections.Cluster(ctx, remote.Cluster)
		switch {
		case member.IsUnknown(err):
		case err != nil:
			return err
		default:
			remote.Exposure = cluster.Spec.Exposure
			order.Share.Elsewhere[name] = remote
		}
	}
	return nil
}

// run applies the objects of the order and the quota that they need, and deletes those of an earlier version, except
// volumes. Known are the kinds that these may have.
func (t *target) run(ctx context.Context, objects []*unstructured.Unstructured, hard corev1.ResourceList, known []string) error {
	group, inner := errgroup.WithContext(ctx)
	group.Go(func() error { return t.applyAll(inner, t.limits()) })
	group.Go(func() error {
		if err := t.announce(inner, known, objects); err != nil {
			return err
		}
		// Not before: where there is a quota, the cluster writes its status for each object that it counts.
		group.Go(func() error { return t.enforceQuota(inner, hard) })
		return t.applyThose(inner, objects, comesFirst)
	})
	if err := group.Wait(); err != nil || t.of.Preparing {
		return err
	}
	if err := t.applyThose(ctx, objects, comesLast); err != nil {
		return err
	}
	if t.of.Replacing {
		return nil
	}
	return t.prune(ctx, known, objects)
}

// applyWorkloads applies objects in their order, see comesLast.
func (t *target) applyWorkloads(ctx context.Context, objects []*unstructured.Unstructured) error {
	if err := t.applyThose(ctx, objects, comesFirst); err != nil {
		return err
	}
	return t.applyThose(ctx, objects, comesLast)
}

// applyThose applies the objects for which a function returns true.
func (t *target) applyThose(ctx context.Context, objects []*unstructured.Unstructured, is func(*unstructured.Unstructured) bool) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for _, o := range objects {
		if is(o) {
			group.Go(func() error { return t.applyWorkload(ctx, o) })
		}
	}
	return group.Wait()
}

func makesPods(o *unstructured.Unstructured) bool {
	group := o.GroupVersionKind().Group
	return group == "apps" || group == "batch"
}

// comesLast reports whether an object is applied after the others: pods, because the limits are in force then,
// and the objects that they read are there; and names that lead to other clusters, because traffic is let out
// there then.
func comesLast(o *unstructured.Unstructured) bool { return makesPods(o) || workload.IsLink(o) }

func comesFirst(o *unstructured.Unstructured) bool { return !comesLast(o) }

// applyWorkload applies one object, and puts the cluster's answer into it. If the cluster rejects the
// object as invalid, the error is a *delivery.RefusedError.
func (t *target) applyWorkload(ctx context.Context, o *unstructured.Unstructured) error {
	err := tenant.OnceAllowed(ctx, func(ctx context.Context) error {
		if err := t.handOver(ctx, o); err != nil {
			return err
		}
		answer := o.DeepCopy()
		err := t.Connection.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(answer), client.FieldOwner(v1alpha1.FieldManager), client.ForceOwnership)
		if err == nil {
			o.Object = answer.Object
		}
		return err
	})
	if err == nil {
		return nil
	}
	what := fmt.Sprintf("%s %s", o.GetKind(), o.GetName())
	if workload.IsRoute(o) || o.GroupVersionKind() == workload.DNSEndpoints {
		if refused := t.noneTaken(o, err); refused != nil {
			return refused
		}
	}
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return &delivery.RefusedError{
			Reason:   fmt.Sprintf("%s refuses %s: %s", t.Connection.Cluster, what, t.of.Workload.Redacted(err.Error())),
			Consumer: fmt.Sprintf("component %s: %s is refused: %s", componentOf(o), what, apierrors.ReasonForError(err)), Repeatable: true,
		}
	}
	return fmt.Errorf("apply %s: %w", what, workload.RedactedError(err, t.of.Workload.Redacted))
}

// noneTaken returns why a cluster takes none at all of the kinds that make ports public; nil if it takes them, or if that is not
// known.
func (t *target) noneTaken(o *unstructured.Unstructured, err error) error {
	refused := &delivery.RefusedError{Consumer: componentOf(o) + ": its public port cannot be reached on the chosen cluster", Repeatable: true}
	switch {
	case meta.IsNoMatchError(err):
		refused.Reason = t.Connection.Cluster + " lacks the kind " + o.GetKind() + " of " + o.GroupVersionKind().Group
		refused.Remedy = "its operator has to install the Gateway API there, in a release that has it"
		if !workload.IsRoute(o) {
			refused.Remedy = "its operator has to install external-dns there, with its definitions"
		}
	case isUnauthorized(err):
		refused.Reason = fmt.Sprintf("Sluice may not write %ss on %s, which was registered before it had such public ports", o.GetKind(), t.Connection.Cluster)
		refused.Remedy = "its operator has to run `sluice cluster renew " + t.Connection.Cluster + "`"
	default:
		return nil
	}
	return refused
}

// isUnauthorized reports whether a server denies a request for lack of rights, and not an admission policy or webhook, which
// answer with the same code.
func isUnauthorized(err error) bool {
	return apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) && cannot.MatchString(err.Error())
}

// cannot matches what API servers say of a request that nobody has authorized.
var cannot = regexp.MustCompile(` is forbidden: User "[^"]*" cannot [a-z]+ resource "`)

func componentOf(o *unstructured.Unstructured) string { return o.GetLabels()[v1alpha1.LabelComponent] }

// health returns nil if every object works: by kstatus and, for routes, by what the Gateway's controller
// says. It returns *delivery.PendingError with what it waits for, and *delivery.RefusedError if Kubernetes
// has given up.
func (t *target) health(ctx context.Context, objects []*unstructured.Unstructured) error {
	var waiting, detail []string
	for _, o := range objects {
		component := componentOf(o)
		if workload.IsRoute(o) {
			if reason, message := workload.RouteProblem(o); reason != "" {
				short := component + ": the Gateway does not serve its public port: " + reason
				waiting, detail = append(waiting, short), append(detail, strings.TrimSuffix(short+": "+message, ": "))
			}
			continue
		}
		result, err := status.Compute(o)
		if err != nil {
			return fmt.Errorf("read the state of %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		if result.Status == status.CurrentStatus {
			continue
		}
		short, long := component+": "+progress(o, result.Message), ""
		if makesPods(o) {
			why, more, err := t.blocked(ctx, o)
			if err != nil {
				return err
			}
			if why != "" {
				short += ": " + why
				long = short + more
			}
		}
		if long == "" {
			long = short
		}
		if result.Status == status.FailedStatus {
			return &delivery.RefusedError{
				Reason: long + " on " + t.Connection.Cluster, Consumer: short, Repeatable: true,
				Remedy: "it made no progress within its deadline",
			}
		}
		waiting, detail = append(waiting, short), append(detail, long)
	}
	if len(waiting) == 0 {
		return nil
	}
	return &delivery.PendingError{
		Step:   "run the workload on " + t.Connection.Cluster,
		Detail: strings.Join(detail, "; "), Consumer: strings.Join(waiting, "; "),
	}
}

// progress describes the state of an object, for instance "1 of 2 pods ready".
func progress(o *unstructured.Unstructured, message string) string {
	if kind := o.GetKind(); kind != "Deployment" && kind != "StatefulSet" {
		return fmt.Sprintf("%s %s: %s", kind, o.GetName(), message)
	}
	want, found, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
	if !found {
		want = 1
	}
	ready, _, _ := unstructured.NestedInt64(o.Object, "status", "readyReplicas")
	if ready >= want {
		return fmt.Sprintf("%d of %d pods ready, some of them of the previous version", min(ready, want), want)
	}
	return fmt.Sprintf("%d of %d pods ready", ready, want)
}

// renderAsLive is render with volumes that have grown as they are.
func (t *target) renderAsLive(ctx context.Context) ([]*unstructured.Unstructured, error) {
	objects, err := t.render()
	if err != nil {
		return nil, err
	}
	return objects, t.asLive(ctx, objects)
}

// observeWorkload returns an error that names the first of the objects that differs from what was applied, or
// that does not work.
func (t *target) observeWorkload(ctx context.Context, objects []*unstructured.Unstructured) error {
	live := make([]*unstructured.Unstructured, len(objects))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i, o := range objects {
		group.Go(func() (err error) {
			live[i], err = t.LiveAsWanted(groupCtx, o)
			return workload.RedactedError(err, t.of.Workload.Redacted)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return t.health(ctx, live)
}
