package bindings

import (
	"context"
	"fmt"
	"net/netip"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
)

// returns reports whether the hook returns results.
func (h *hook) returns() bool { return h.kind == workload.HookBind && h.order.ResultsName() != "" }

// results reads what a hook that has ended well returned; nil if it returns nothing. The error is a
// *hookError if that is not what the plan says.
func (h *hook) results(ctx context.Context) (map[string]string, error) {
	if !h.returns() {
		return nil, nil
	}
	var secret corev1.Secret
	err := h.client.Get(ctx, client.ObjectKey{Namespace: h.namespace, Name: h.order.ResultsName()}, &secret)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read the results of the %s hook: %w", h.kind, err)
	}
	results, err := h.order.Results(secret.Data)
	if err != nil {
		return nil, &hookError{kind: h.kind, reason: err.Error()}
	}
	return results, nil
}

// awaitRight waits until the API server's authorizer sees that the hook may write its results.
func (h *hook) awaitRight(ctx context.Context) error {
	return awaitRight(ctx, h.client, h.namespace, h.order.HookName(h.kind), authorizationv1.ResourceAttributes{
		Namespace: h.namespace, Verb: "patch", Resource: "secrets", Name: h.order.ResultsName(),
	})
}

// apiServer returns where pods of the cluster reach the API server: the address of its Service, and those
// behind it, because a NetworkPolicy is applied to the one or the others. On a cluster that was registered
// before Sluice had the right to see them there are none; hooks then reach the API server only if nothing
// enforces the policies.
func (h *hook) apiServer(ctx context.Context) (api workload.APIServer, err error) {
	const name = "kubernetes" // Kubernetes' own, in every cluster
	var services corev1.ServiceList
	if err := h.list(ctx, &services, client.MatchingFields{metav1.ObjectNameField: name}); err != nil {
		return api, err
	}
	for _, s := range services.Items {
		for _, address := range s.Spec.ClusterIPs {
			api.Addresses = append(api.Addresses, only(address))
		}
		for _, p := range s.Spec.Ports {
			api.Ports = append(api.Ports, p.Port)
		}
	}
	var endpoints discoveryv1.EndpointSliceList
	if err := h.list(ctx, &endpoints, client.MatchingLabels{discoveryv1.LabelServiceName: name}); err != nil {
		return api, err
	}
	for _, s := range endpoints.Items {
		for _, e := range s.Endpoints {
			for _, address := range e.Addresses {
				api.Addresses = append(api.Addresses, only(address))
			}
		}
		for _, p := range s.Ports {
			if p.Port != nil {
				api.Ports = append(api.Ports, *p.Port)
			}
		}
	}
	return api, nil
}

// list lists objects of the namespace default. Without the right to, there are none.
func (h *hook) list(ctx context.Context, list client.ObjectList, which client.ListOption) error {
	err := h.client.List(ctx, list, client.InNamespace(metav1.NamespaceDefault), which)
	if err != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("look where pods reach the API server: %w", err)
	}
	return nil
}

// only returns the CIDR of one address.
func only(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return address // the API server refuses it
	}
	return netip.PrefixFrom(ip, ip.BitLen()).String()
}

// suspended returns the Job, which runs or does not.
func suspended(job *unstructured.Unstructured, is bool) *unstructured.Unstructured {
	_ = unstructured.SetNestedField(job.Object, is, "spec", "suspend") // a Job has a spec
	return job
}

// keepResults puts what bind hooks returned into the binding's status, sealed: that of the first cluster
// whose hook returned anything.
func (c *Controller) keepResults(b *v1alpha1.ServiceBinding, all []issued) error {
	for _, one := range all {
		if one.results == nil {
			continue
		}
		secrets, err := workload.UnsealBinding(b, c.Keys)
		if err != nil {
			return err
		}
		b.Status.SealedSecrets, err = secrets.WithResults(one.results).SealBinding(b, c.Keys)
		return err
	}
	return nil
}
