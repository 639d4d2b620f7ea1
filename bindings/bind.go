package bindings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/lists"
)

// bind creates the accounts and stores the credentials, or records what it waits for.
func (c *Controller) bind(ctx context.Context, b *v1alpha1.ServiceBinding) (reconcile.Result, error) {
	instance, err := c.boundInstance(ctx, b)
	if lost := (*unboundError)(nil); errors.As(err, &lost) {
		return c.unbound(ctx, b, lost)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := c.nameClusters(ctx, b, instance); err != nil {
		return reconcile.Result{}, err
	}
	if u := b.Status.Upstream; u != nil && u.Failure != "" {
		return c.failUpstream(ctx, b, instance, u.Failure)
	}
	before := b.Status.Upstream.DeepCopy()
	issued, found, err := c.issueAndFind(ctx, b, instance)
	overdue := c.age(b) > c.patience(instance)
	if pending := pendingIn(err); pending != nil && !overdue {
		return c.waitBound(ctx, b, before, pending)
	}
	if refused := (*upstreamRefusedError)(nil); errors.As(err, &refused) {
		log.FromContext(ctx).Info("another broker does not bind", "binding", b.Name, "reason", refused.Error())
		return c.failUpstream(ctx, b, instance, refused.public())
	}
	if err != nil && b.Status.Upstream != nil && overdue {
		return c.failUpstream(ctx, b, instance, "the provider did not bind the instance in time")
	}
	if failed := finalError(nil); errors.As(err, &failed) {
		log.FromContext(ctx).Info("bind failed", "binding", b.Name, "reason", failed.Error())
		return reconcile.Result{}, c.fail(ctx, b, failed.public())
	}
	if err != nil {
		if overdue {
			return reconcile.Result{}, c.fail(ctx, b, "credentials could not be issued in time: "+publicReason(err))
		}
		return reconcile.Result{}, errors.Join(err, c.wait(ctx, b, v1alpha1.OperationBind, publicReason(err)))
	}
	return c.succeed(ctx, b, instance, issued, found)
}

// finalError is an error that ends a bind. public returns the part that end users may read.
type finalError interface {
	error
	public() string
}

// unboundError is the reason why an instance cannot be bound.
type unboundError struct {
	reason string
	// final reports that the instance can never be bound.
	final bool
}

func (e *unboundError) Error() string { return e.reason }

// boundInstance reads the instance: from the cache if that shows it as delivered, otherwise
// without a cache. The broker accepted the bind by a read without a cache, so the cache may
// be behind.
func (c *Controller) boundInstance(ctx context.Context, b *v1alpha1.ServiceBinding) (*v1alpha1.ServiceInstance, error) {
	var instance v1alpha1.ServiceInstance
	key := client.ObjectKey{Namespace: b.Namespace, Name: b.Spec.InstanceName}
	err := c.Client.Get(ctx, key, &instance)
	if err == nil && usable(&instance) == nil {
		return &instance, nil
	}
	instance = v1alpha1.ServiceInstance{}
	err = c.Live.Get(ctx, key, &instance)
	if apierrors.IsNotFound(err) {
		return nil, &unboundError{reason: "the service instance is gone", final: true}
	}
	if err != nil {
		return nil, fmt.Errorf("read instance %s: %w", b.Spec.InstanceName, err)
	}
	if err := usable(&instance); err != nil {
		return nil, err
	}
	return &instance, nil
}

func usable(instance *v1alpha1.ServiceInstance) error {
	switch {
	case !instance.DeletionTimestamp.IsZero():
		return &unboundError{reason: "the service instance is being deprovisioned", final: true}
	case len(placementsOf(instance)) == 0:
		return &unboundError{reason: "the service instance is not delivered yet"}
	default:
		return nil
	}
}

func (c *Controller) unbound(ctx context.Context, b *v1alpha1.ServiceBinding, why *unboundError) (reconcile.Result, error) {
	if why.final || c.age(b) > c.Patience {
		return reconcile.Result{RequeueAfter: c.Patience}, c.fail(ctx, b, why.reason)
	}
	if err := c.wait(ctx, b, v1alpha1.OperationBind, why.reason); err != nil {
		return reconcile.Result{}, err
	}
	// The instance's watch triggers earlier; this is for the deadline.
	return reconcile.Result{RequeueAfter: c.Patience - c.age(b) + time.Second}, nil
}

func (c *Controller) age(b *v1alpha1.ServiceBinding) time.Duration {
	return c.Clock.Since(v1alpha1.CreatedOf(b).Time)
}

// patience returns how long a bind is tried: at a broker, at least as long as its plan allows to poll; on a pool, until the
// pool has given up.
func (c *Controller) patience(instance *v1alpha1.ServiceInstance) time.Duration {
	if poolOf(instance) != nil {
		return c.Patience + 2*slowestRetry
	}
	if p := upstreamOf(instance); p != nil {
		return max(c.Patience, time.Duration(p.Upstream.PollingSeconds)*time.Second)
	}
	return c.Patience
}

// nameClusters writes the clusters of accounts and addresses, and the secrets of a workload, to
// status before anything is created there.
func (c *Controller) nameClusters(ctx context.Context, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance) error {
	if !controllerutil.ContainsFinalizer(b, v1alpha1.Finalizer) {
		// The broker creates bindings with the finalizer; those made by hand get it here.
		before := b.DeepCopy()
		controllerutil.AddFinalizer(b, v1alpha1.Finalizer)
		if err := c.Client.Patch(ctx, b, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return fmt.Errorf("add finalizer: %w", err)
		}
	}
	secured, err := c.secureBinding(b, instance)
	if err != nil {
		return err
	}
	named, addressed := lists.Union(b.Status.Clusters, clustersOf(instance)), lists.Union(b.Status.AddressClusters, addressedOf(instance))
	ordered := c.nameUpstream(b, instance) || namePool(b, instance)
	if !secured && !ordered && len(named) == len(b.Status.Clusters) && len(addressed) == len(b.Status.AddressClusters) {
		return nil
	}
	b.Status.Clusters, b.Status.AddressClusters = named, addressed
	c.begin(b, v1alpha1.OperationBind)
	return c.writeStatus(ctx, b)
}

// waitBound records what a bind waits for, with the operation that another broker has accepted since before.
func (c *Controller) waitBound(ctx context.Context, b *v1alpha1.ServiceBinding, before *v1alpha1.BindingUpstream, pending *pendingError) (reconcile.Result, error) {
	again := reconcile.Result{RequeueAfter: pending.pause}
	news := !finished(b) && c.recordWaiting(b, v1alpha1.OperationBind, pending.detail) // a renewal leaves the operation as it ended
	if !news && equality.Semantic.DeepEqual(before, b.Status.Upstream) {
		return again, nil
	}
	return again, c.writeStatus(ctx, b)
}

// issueAndFind issues credentials and collects endpoints, concurrently if neither must wait
// for the other. For a young bind without its addresses it returns *pendingError before any token is
// issued, so that the answer contains the endpoints: many platforms never fetch a binding.
func (c *Controller) issueAndFind(ctx context.Context, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance) (all []issued, found findings, err error) {
	if p := poolOf(instance); p != nil {
		all, err := c.bindPool(ctx, b, p)
		return all, found, err
	}
	if isPeered(instance) {
		found = c.findEndpoints(ctx, b, instance)
		if found.pending && !finished(b) && c.age(b) < addressPatience {
			return nil, found, &pendingError{sentence(found.absent), addressCheck}
		}
		if component := unaddressed(instance, found); component != "" && c.age(b) < c.Patience {
			return nil, found, &pendingError{"component " + component + " has no address in the consumer's cluster yet", addressCheck}
		}
		all, err = c.issueAll(ctx, b, instance)
		return all, found, err
	}
	var group errgroup.Group
	group.Go(func() error { found = c.findEndpoints(ctx, b, instance); return nil })
	group.Go(func() (err error) { all, err = c.issueAll(ctx, b, instance); return err })
	err = group.Wait()
	return all, found, err
}

// issueAll issues credentials on all clusters concurrently; the result has the clusters'
// order.
func (c *Controller) issueAll(ctx context.Context, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance) ([]issued, error) {
	clusters := clustersOf(instance)
	all := make([]issued, len(clusters))
	group, ctx := errgroup.WithContext(ctx)
	for i, cluster := range clusters {
		group.Go(func() error {
			err := c.on(cluster, b, func() error {
				one, err := c.issue(ctx, b, instance, cluster)
				if err == nil {
					all[i] = *one
				}
				return err
			})
			if err != nil {
				return &clusterError{cluster: cluster, shown: shownAs(instance, cluster), doing: "issue credentials", err: err}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return all, nil
}

// succeed seals the credentials and writes the complete status in one write. It returns the delay until the next look.
//
// A kill between the issue of a token and this write loses the token. The next try requests
// another one. The lost token was never handed out; it ends with the ServiceAccount.
func (c *Controller) succeed(ctx context.Context, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance, all []issued, found findings) (reconcile.Result, error) {
	var credentials Credentials
	var servers []string
	var expires *metav1.Time // stays nil without accounts: what else bindings return does not expire
	for _, one := range all {
		if !hasAccount(b, instance) {
			continue
		}
		credentials, servers = append(credentials, one.credentials), append(servers, one.credentials.Server)
		if expires == nil || one.expires.Before(expires.Time) {
			expires = &metav1.Time{Time: one.expires}
		}
	}
	if err := c.keepResults(b, all); err != nil {
		return reconcile.Result{}, err
	}
	object, err := c.reveal(ctx, b, instance, all, credentials, found)
	if err != nil {
		return reconcile.Result{}, err
	}
	isFirst := b.Status.SealedCredentials == nil
	b.Status.SealedCredentials, err = c.Keys.Seal(object, sealedFor(b))
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("seal credentials: %w", err)
	}
	if workloadOf(instance) != nil {
		servers = nil // see refresh
	}
	if _, err := recordEndpoints(b, servers, found, isPeered(instance)); err != nil {
		return reconcile.Result{}, err
	}
	b.Status.Nodes = nodesOf(instance)
	b.Status.Issued, b.Status.Accounts = nil, nil
	for _, one := range all {
		b.Status.Issued = append(b.Status.Issued, one.credentials.Cluster)
		if one.account == "" {
			continue
		}
		if b.Status.Accounts == nil {
			b.Status.Accounts = map[string]string{}
		}
		b.Status.Accounts[one.credentials.Cluster] = string(one.account)
	}
	b.Status.IssuedAt, b.Status.ExpiresAt, b.Status.RenewBefore = nil, expires, nil
	if now := c.Clock.Now(); expires != nil {
		b.Status.IssuedAt = &metav1.Time{Time: now}
		b.Status.RenewBefore = &metav1.Time{Time: renewBefore(now, expires.Time, b.Spec.Credentials)}
	}
	if handed := handedOf(all); handed != nil {
		handed.record(&b.Status)
	}
	c.begin(b, v1alpha1.OperationBind)
	issuing := v1alpha1.Event{Type: v1alpha1.EventReissued, Clusters: b.Status.Issued}
	if isFirst {
		issuing.Type, issuing.After = v1alpha1.EventBound, c.since(b)
	}
	if ends := b.Status.ExpiresAt; ends != nil {
		issuing.Message = "until " + ends.UTC().Format(time.RFC3339)
	}
	c.happened(b, issuing)
	c.finish(b, v1alpha1.StateSucceeded, "")
	c.recordExpiry(b)
	next := c.nextCheck(b, instance, found) // as recorded, however long the write takes
	if err := c.writeStatus(ctx, b); err != nil {
		return reconcile.Result{}, err
	}
	c.endBindHooks(ctx, b, instance)
	return next, nil
}

// reveal returns the JSON to seal: credentials for clusters; for an instance of virtual nodes in
// the consumer's own cluster, the names of the nodes; and for a workload, what its plan says.
func (c *Controller) reveal(ctx context.Context, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance, all []issued, credentials Credentials, found findings) (json.RawMessage, error) {
	if handed := handedOf(all); handed != nil {
		return handed.credentials.Reveal(), nil
	}
	if workloadOf(instance) != nil {
		return c.revealWorkload(ctx, b, instance, credentials, found)
	}
	if placements := onNodes(instance); len(credentials) == 0 && len(placements) > 0 {
		return nodesFor(b.Spec.InstanceName, placements).reveal()
	}
	return credentials.Reveal()
}

// renewBefore returns the time for rotation: the policy's time before the expiry, by
// default a fifth of the lifetime. If a cluster has shortened the lifetime below the
// policy's time, it is half of the lifetime.
func renewBefore(now, expires time.Time, policy v1alpha1.CredentialsPolicy) time.Time {
	if policy.RenewBeforeSeconds == 0 {
		return expires.Add(-expires.Sub(now) / 5)
	}
	if at := expires.Add(-time.Duration(policy.RenewBeforeSeconds) * time.Second); at.After(now) {
		return at
	}
	return now.Add(expires.Sub(now) / 2)
}

// clusterError is a failure on one cluster. Its text is only for the log.
type clusterError struct {
	// cluster, and the name by which the consumer knows it.
	cluster, shown string
	doing          string
	err            error
}

func (e *clusterError) Error() string { return fmt.Sprintf("%s on %s: %v", e.doing, e.cluster, e.err) }

func (e *clusterError) Unwrap() error { return e.err }

// publicReason returns the part of an error that end users may read: the cluster and the
// action, without addresses and without the text of other organisations' API servers.
func publicReason(err error) string {
	if pending := pendingIn(err); pending != nil {
		return pending.detail
	}
	var hookFailed *hookError
	if errors.As(err, &hookFailed) {
		return hookFailed.public()
	}
	var failed *clusterError
	if errors.As(err, &failed) {
		return fmt.Sprintf("waiting for cluster %s to %s", failed.shown, failed.doing)
	}
	return "waiting"
}
