package liqo

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/pages"
	"github.com/sluice-dev/sluice/internal/podrules"
)

// agreement has the rules for the pods that an instance runs at a provider over a virtual node.
type agreement struct {
	instance, holder, provider string
	// namespace on the hub through which the instance is reached; empty if the consumer's own cluster has the node.
	namespace string
	rules     []v1alpha1.WorkloadRules
}

// agreements of all instances.
type agreements []agreement

// with returns the agreements with those of an instance as it is.
func (all agreements) with(instance *v1alpha1.ServiceInstance) agreements {
	return slices.DeleteFunc(all, func(a agreement) bool { return a.instance == instance.Name }).add(instance)
}

// add adds those of an instance.
func (all agreements) add(instance *v1alpha1.ServiceInstance) agreements {
	for _, p := range instance.Status.Everywhere() {
		if p.Peering == nil || p.Peering.Node == "" || p.Peering.Hub == "" && len(p.Workloads) == 0 {
			continue
		}
		a := agreement{instance: instance.Name, holder: nodeHolder(p.Peering), provider: p.Cluster, rules: p.Workloads}
		if p.Peering.Hub != "" {
			a.namespace = v1alpha1.MemberNamespace(instance.Name)
		}
		all = append(all, a)
	}
	return all
}

// annotations returns the annotations with the rules for a namespace that Liqo has made at a provider for another one,
// original, of the holder of virtual nodes there; original is empty if Liqo does not say it. In a hub's cluster Sluice
// makes the namespaces, so each has the rules of its instance. In its own cluster a consumer names and extends namespaces
// as it likes, and its pods do not prove by which order they run. So the rules of all of its orders hold.
func (all agreements) annotations(holder, provider, original string) map[string]string {
	var rules, ofInstance []v1alpha1.WorkloadRules
	extended := false
	for _, a := range all {
		switch {
		case a.holder != holder || a.provider != provider:
		case a.namespace != "" && a.namespace == original:
			ofInstance, extended = append(ofInstance, a.rules...), true
		case a.namespace == "" || original == "":
			rules = append(rules, a.rules...)
		}
	}
	if extended {
		rules = ofInstance
	}
	return podrules.Annotations(rules...)
}

// isolating says how namespaces are isolated.
type isolating struct {
	// internet lets pods reach the internet.
	internet bool
	// agreed returns the agreements of all instances; live means without a cache.
	agreed func(ctx context.Context, live bool) (agreements, error)
	// narrows means that no namespace loses a rule.
	narrows bool
}

// isolation returns how the driver isolates: with the rules of the instance as it is, and with those of others at least.
// What a namespace does not need any more is left to the Judge.
func (r *route) isolation() isolating {
	return isolating{r.Namespaces.InternetEgress, func(ctx context.Context, _ bool) (agreements, error) {
		others, err := cachedAgreements(ctx, r.Client, r.Instance.Namespace)
		return others.with(r.Instance), err
	}, true}
}

// cachedAgreements reads all instances from a cache.
func cachedAgreements(ctx context.Context, cache client.Client, namespace string) (all agreements, err error) {
	var cached v1alpha1.ServiceInstanceList // only read, so not copied
	if err := cache.List(ctx, &cached, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list service instances: %w", err)
	}
	for i := range cached.Items {
		all = all.add(&cached.Items[i])
	}
	return all, nil
}

// liveAgreements reads all instances without a cache.
func liveAgreements(ctx context.Context, hub client.Reader, namespace string) (all agreements, err error) {
	err = pages.Each(ctx, hub, &v1alpha1.ServiceInstanceList{}, func(o client.Object) error {
		all = all.add(o.(*v1alpha1.ServiceInstance))
		return nil
	}, client.InNamespace(namespace))
	return all, err
}
