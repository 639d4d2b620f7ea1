package liqo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	names "github.com/sluice-dev/sluice/internal/liqo"
	"github.com/sluice-dev/sluice/internal/member"
)

// Reasons of the condition Resources of slices.
const (
	reasonReserved = "Reserved"
	// reasonNotReserved: no instance has reserved what the slice requests.
	reasonNotReserved = "NotReserved"
	// reasonConsumerRefused: a policy, the provider's or the operator's, refuses the consumer.
	reasonConsumerRefused = "ConsumerRefused"
)

// verdict is the decision on a slice.
type verdict struct {
	status          authv1beta1.ResourceSliceConditionStatus
	reason, message string
	resources       corev1.ResourceList
	labels          map[string]string
}

// sold returns the verdict on the slice of a placement: accepted up to what is reserved there,
// and denied beyond. The node gets the provider's labels that the instance's plan lets consumers
// select clusters by, so that they can select nodes for its pods by the same labels. If a pool has ordered the instance, the
// node shows the pool instead of the provider.
func sold(slice *authv1beta1.ResourceSlice, p *v1alpha1.Placement, instance *v1alpha1.ServiceInstance, provider *v1alpha1.MemberCluster, selectable []string) verdict {
	reserved := sliceOf(p.Reserved)
	for name, asked := range slice.Spec.Resources {
		if has := reserved[name]; asked.Cmp(has) > 0 {
			return denied(reasonNotReserved, fmt.Sprintf("asks for %s %s, and %s are reserved", &asked, name, &has))
		}
	}
	labels := map[string]string{v1alpha1.LabelInstance: instance.Name, v1alpha1.LabelPeer: v1alpha1.PeerMark(provider)}
	has := provider.SelectorLabels()
	shown := append([]string{v1alpha1.LabelCluster, v1alpha1.LabelRegion, v1alpha1.LabelZone, v1alpha1.LabelProvider, v1alpha1.LabelTier}, selectable...)
	if instance.Spec.Pool != nil {
		has, shown = map[string]string{v1alpha1.LabelCluster: instance.ShownAs(provider.Name)}, []string{v1alpha1.LabelCluster}
	}
	for _, key := range shown {
		if value := has[key]; value != "" && !nodesOwn(key) {
			labels[key] = value
		}
	}
	return verdict{
		authv1beta1.ResourceSliceConditionAccepted, reasonReserved, "reserved for service instance " + instance.Name, reserved, labels,
	}
}

// nodesOwn reports whether a label of a virtual node describes the node itself; Liqo and
// Kubernetes set those.
func nodesOwn(key string) bool {
	domain, _, qualified := strings.Cut(key, "/")
	return key == consts.TypeLabel || key == corev1.LabelHostname || qualified && (domain == "liqo.io" || strings.HasSuffix(domain, ".liqo.io"))
}

// Selectable returns the labels that an instance's plan lets consumers select clusters by; nil
// means none are known.
type Selectable func(instance *v1alpha1.ServiceInstance) []string

func (s Selectable) of(instance *v1alpha1.ServiceInstance) []string {
	if s == nil {
		return nil
	}
	return s(instance)
}

func denied(reason, message string) verdict {
	return verdict{status: authv1beta1.ResourceSliceConditionDenied, reason: reason, message: message}
}

// pronounce writes a verdict unless it is written already.
func (s *side) pronounce(ctx context.Context, slice *authv1beta1.ResourceSlice, v verdict) error {
	now := slice.DeepCopy()
	now.Status.Resources, now.Status.NodeLabels = v.resources, v.labels
	condition := authv1beta1.ResourceSliceCondition{
		Type: authv1beta1.ResourceSliceConditionTypeResources, Status: v.status, Reason: v.reason, Message: v.message,
		LastTransitionTime: metav1.Now(),
	}
	i := slices.IndexFunc(now.Status.Conditions, func(c authv1beta1.ResourceSliceCondition) bool { return c.Type == condition.Type })
	if i < 0 {
		now.Status.Conditions = append(now.Status.Conditions, condition)
	} else {
		if before := now.Status.Conditions[i]; before.Status == condition.Status {
			condition.LastTransitionTime = before.LastTransitionTime
		}
		now.Status.Conditions[i] = condition
	}
	if equality.Semantic.DeepEqual(slice.Status, now.Status) {
		return nil
	}
	err := s.Client.Status().Update(ctx, now) // conflicts if Liqo writes at the same time
	if err != nil {
		return s.failed(fmt.Errorf("judge ResourceSlice %s: %w", slice.Name, err))
	}
	log.FromContext(ctx).Info("judged", "cluster", s.cluster.Name, "slice", slice.Name, "consumer", s.remote.ClusterID, "verdict", v.status, "reason", v.reason, "message", v.message)
	return nil
}

// judgeOne accepts the slice of a placement as soon as it exists at the provider.
func judgeOne(ctx context.Context, provider *side, name string, p *v1alpha1.Placement, instance *v1alpha1.ServiceInstance, selectable []string) error {
	slice := &authv1beta1.ResourceSlice{}
	err := provider.get(ctx, name, slice)
	if apierrors.IsNotFound(err) {
		return provider.pending("ResourceSlice "+name, "Liqo has not replicated it from "+provider.remote.ClusterID+" yet")
	}
	if err != nil {
		return err
	}
	if !equality.Semantic.DeepEqual(slice.Spec.Resources, sliceOf(p.Reserved)) {
		return provider.pending("ResourceSlice "+name, "Liqo has not replicated its new size yet")
	}
	err = provider.pronounce(ctx, slice, sold(slice, p, instance, provider.cluster, selectable))
	if apierrors.IsConflict(err) {
		return provider.pending("ResourceSlice "+name, "Liqo writes it at the same time")
	}
	return err
}

// Judge judges the slices of all peerings periodically, so that a slice that was not bought is
// denied with a reason, and isolates the namespaces of consumers' pods at providers. For its own
// slices the Driver does both at once.
type Judge struct {
	// Client of the hub, from a cache, for peerings; Live reads it without one.
	Client client.Client
	Live   client.Reader
	// Connections to the member clusters.
	Connections *member.Connections
	// Namespace of the hub that holds Sluice's resources.
	Namespace string
	// Hub is the hub's ID, the value of v1alpha1.LabelHub.
	Hub string
	// Refuses returns why policies deny the consumers of another cluster a provider's resources;
	// empty if they do not.
	Refuses func(provider string, consumers []v1alpha1.ConsumerReference) string
	// Selectable labels are copied to virtual nodes.
	Selectable Selectable
	// Hold has the meaning of Peerings.Hold. Meanwhile the slices of instances that the hub does not know stay as they are.
	Hold func(context.Context) error
	// Leadership of this replica; nil if it is the only one.
	Leadership interface {
		Term() string
		Confirm(context.Context) error
	}
	// Every is the time between two passes; zero means three seconds.
	Every time.Duration
	// InternetEgress lets consumers' pods reach the internet, like the field of kube.Driver.
	InternetEgress bool

	// looking holds the peerings that are being judged. told holds the last logged error of
	// each failing one, by name.
	looking, told sync.Map
}

// NeedLeaderElection makes one replica judge.
func (*Judge) NeedLeaderElection() bool { return true }

// Start judges until the context ends, each peering in a goroutine of its own, so that a
// cluster that does not answer delays no other.
func (j *Judge) Start(ctx context.Context) error {
	if j.Every == 0 {
		j.Every = 3 * time.Second
	}
	tick := time.NewTicker(j.Every)
	defer tick.Stop()
	var looks sync.WaitGroup
	defer looks.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			var peerings v1alpha1.PeeringList
			if err := j.Client.List(ctx, &peerings, client.InNamespace(j.Namespace)); err != nil {
				continue // the cache is starting or stopping
			}
			agreed := j.agreed()
			for i := range peerings.Items {
				peering := &peerings.Items[i]
				if _, looking := j.looking.LoadOrStore(peering.Name, true); looking {
					continue
				}
				looks.Go(func() {
					defer j.looking.Delete(peering.Name)
					j.tell(ctx, peering.Name, j.look(ctx, peering, agreed))
				})
			}
		}
	}
}

// agreed returns a function that returns the agreements of all instances. It reads the cache once, for all peerings.
func (j *Judge) agreed() func(ctx context.Context, live bool) (agreements, error) {
	var once sync.Once
	var cached agreements
	var failed error
	return func(ctx context.Context, live bool) (agreements, error) {
		if live {
			return liveAgreements(ctx, j.Live, j.Namespace)
		}
		once.Do(func() { cached, failed = cachedAgreements(ctx, j.Client, j.Namespace) })
		return cached, failed
	}
}

// tell logs the result for a peering if it is new.
func (j *Judge) tell(ctx context.Context, peering string, failed error) {
	if failed == nil {
		j.told.Delete(peering)
		return
	}
	if before, _ := j.told.Swap(peering, failed.Error()); before != failed.Error() {
		log.FromContext(ctx).Info("Not all slices could be judged, or not all namespaces isolated", "peering", peering, "reason", failed.Error())
	}
}

// look judges the slices of one peering. Only its requests are bounded in time: a consumer may have a hundred namespaces,
// and the last of them must be isolated, too.
func (j *Judge) look(ctx context.Context, peering *v1alpha1.Peering, agreed func(ctx context.Context, live bool) (agreements, error)) error {
	if peering.Status.Consumer == nil || peering.Status.Provider == nil || !peering.DeletionTimestamp.IsZero() ||
		!slices.Contains(peering.Spec.Modules, v1alpha1.ModuleAuthentication) {
		return nil
	}
	provider, err := open(ctx, j.Connections, j.Hub, peering.Spec.Provider)
	if err != nil {
		return err
	}
	provider.own, provider.remote = *peering.Status.Provider, *peering.Status.Consumer
	provider.remoteCluster = peering.Spec.Consumer
	if err := provider.isolate(ctx, isolating{j.InternetEgress, agreed, false}); err != nil {
		return err
	}
	var list authv1beta1.ResourceSliceList
	err = provider.List(ctx, &list, inNamespace(provider.namespace()), client.MatchingLabels{consts.ReplicationStatusLabel: "true"})
	if err != nil {
		return provider.failed(fmt.Errorf("list ResourceSlices in %s: %w", provider.namespace(), err))
	}
	for i := range list.Items {
		slice := &list.Items[i]
		if slice.Spec.Class != names.Class || !slice.DeletionTimestamp.IsZero() {
			continue // of another class, which the admission policy rejects, or being deleted
		}
		v, err := j.judge(ctx, peering, provider, slice)
		if err != nil {
			return err
		}
		if v.status == "" {
			continue
		}
		if err := provider.pronounce(ctx, slice, v); err != nil && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}

// judge finds the placement of a slice, by the hub's current state. A verdict without a status
// means that it is not decided yet.
func (j *Judge) judge(ctx context.Context, peering *v1alpha1.Peering, provider *side, slice *authv1beta1.ResourceSlice) (verdict, error) {
	instance := &v1alpha1.ServiceInstance{}
	name := slice.Labels[v1alpha1.LabelInstance]
	if name != "" {
		err := j.Live.Get(ctx, client.ObjectKey{Namespace: j.Namespace, Name: name}, instance)
		if client.IgnoreNotFound(err) != nil {
			return verdict{}, fmt.Errorf("read instance %s: %w", name, err)
		}
		if err != nil && isHeld(ctx, j.Hold) {
			return verdict{}, nil
		}
		if undecided, err := j.undecided(ctx, instance); undecided || err != nil {
			return verdict{}, err
		}
	}
	// While an instance changes its size, both sizes are reserved: the slice is accepted if it
	// fits either.
	var last *verdict
	for _, p := range instance.Status.Everywhere() {
		if p.Cluster != peering.Spec.Provider || p.Peering == nil || p.Peering.Node != slice.Name || nodeHolder(p.Peering) != peering.Spec.Consumer {
			continue
		}
		v := sold(slice, p, instance, provider.cluster, j.Selectable.of(instance))
		if v.status == authv1beta1.ResourceSliceConditionAccepted {
			return v, nil
		}
		last = &v
	}
	if last != nil {
		return *last, nil
	}
	consumer := &v1alpha1.MemberCluster{}
	err := j.Client.Get(ctx, client.ObjectKey{Namespace: j.Namespace, Name: peering.Spec.Consumer}, consumer)
	if client.IgnoreNotFound(err) != nil {
		return verdict{}, err
	}
	if why := j.Refuses(peering.Spec.Provider, consumer.Spec.Consumers); why != "" {
		return denied(reasonConsumerRefused, why), nil
	}
	return denied(reasonNotReserved, "no service instance of "+peering.Spec.Consumer+" has reserved it: order one"), nil
}

// undecided reports whether an instance's decision is another leader's and not delivered, and
// this leader has not confirmed it by deciding anew. It fails if this replica no longer leads.
func (j *Judge) undecided(ctx context.Context, instance *v1alpha1.ServiceInstance) (bool, error) {
	if j.Leadership == nil {
		return false, nil
	}
	if instance.Status.IsOfOtherTerm(j.Leadership.Term()) {
		return true, nil
	}
	return false, j.Leadership.Confirm(ctx)
}

// nodeHolder returns the member cluster that has the virtual node of a placement.
func nodeHolder(p *v1alpha1.PlacementPeering) string {
	if p.Hub != "" {
		return p.Hub
	}
	return p.Consumer
}
