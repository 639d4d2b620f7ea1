package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/test/hosted"
)

func (c *catalogued) registered(string) {
	plans, err := c.names(c.Context(), "ClusterServicePlan")
	if err != nil || len(plans) != 2 {
		c.Errorf("Service Catalog offers the plans %v, %v", plans, err)
	}
}

// beside are the instances that are ordered in a namespace of that name.
var beside = []string{"impossible", "refused", "second", "unheard"}

func (c *catalogued) orderBeside() {
	err := hosted.Apply(c.Context(), c.platform, fmt.Appendf(nil, `
apiVersion: v1
kind: Namespace
metadata: {name: beside}
---
apiVersion: v1
kind: Secret
metadata: {name: sluice, namespace: beside}
stringData: {username: second, password: second-password}
---
apiVersion: servicecatalog.k8s.io/v1beta1
kind: ServiceBroker
metadata: {name: sluice, namespace: beside}
spec: {url: %q, caBundle: %q, authInfo: {basic: {secretRef: {name: sluice}}}}
---
apiVersion: servicecatalog.k8s.io/v1beta1
kind: ServiceInstance
metadata: {name: unheard, namespace: beside}
spec: {externalID: unheard, clusterServiceClassExternalName: kubernetes-resources, clusterServicePlanExternalName: small}
---
apiVersion: servicecatalog.k8s.io/v1beta1
kind: ServiceInstance
metadata: {name: refused, namespace: beside}
spec: {clusterServiceClassExternalName: kubernetes-resources, clusterServicePlanExternalName: small, parameters: {colour: blue}}
---
apiVersion: servicecatalog.k8s.io/v1beta1
kind: ServiceInstance
metadata: {name: impossible, namespace: beside}
spec:
  externalID: impossible
  clusterServiceClassExternalName: kubernetes-resources
  clusterServicePlanExternalName: small
  parameters: {selector: {topology.kubernetes.io/region: nowhere}}
---
apiVersion: servicecatalog.k8s.io/v1beta1
kind: ServiceInstance
metadata: {name: second, namespace: beside}
spec: {serviceClassExternalName: kubernetes-resources, servicePlanExternalName: small}
`, c.at, base64.StdEncoding.EncodeToString(c.authority)))
	if err != nil {
		c.Fatal(err)
	}
}

// room returns the page's instance as Sluice has it.
func (c *catalogued) room() *v1alpha1.ServiceInstance {
	c.Helper()
	o, err := c.find(c.Context(), "ServiceInstance", "shop", "room")
	if err != nil {
		c.Fatal(err)
	}
	id, _, _ := unstructured.NestedString(o.Object, "spec", "externalID")
	known := &v1alpha1.ServiceInstance{}
	if err := c.hub.Get(c.Context(), client.ObjectKey{Namespace: "sluice", Name: v1alpha1.InstanceName("first", id)}, known); err != nil {
		c.Fatal(err)
	}
	return known
}

// ordered checks what Sluice knows of the order, and how those beside it end: what failed is corrected.
func (c *catalogued) ordered(string) {
	known := c.room().Spec
	var id corev1.ConfigMap
	var shop corev1.Namespace
	err := errors.Join(
		c.platform.Get(c.Context(), client.ObjectKey{Namespace: "default", Name: "cluster-info"}, &id),
		c.platform.Get(c.Context(), client.ObjectKey{Name: "shop"}, &shop),
	)
	if err != nil || known.OrganizationGUID != id.Data["id"] || known.SpaceGUID != string(shop.UID) || known.SpaceGUID == "" || known.OrganizationGUID == "" {
		c.Errorf("Sluice knows the instance of organization %q and space %q, want %v and %s, %v", known.OrganizationGUID, known.SpaceGUID, id.Data, shop.UID, err)
	}
	if out := c.must("events", known.InstanceID, "-o", "wide"); !regexp.MustCompile(`Ordered +provision .* admin `).MatchString(out) {
		c.Errorf("who ordered is not told:\n%s", out)
	}
	for name, why := range map[string]string{"refused": "colour", "impossible": "LabelMismatch"} {
		if said := c.becomes("beside", name, "Failed"); !strings.Contains(said, why) {
			c.Errorf("the failure of %s says %q, want %s", name, said, why)
		}
		c.until(name+" is corrected", func(ctx context.Context) error { // not before what may be left was deleted
			return c.patch(ctx, "beside", name, `{"spec": {"parameters": null}}`)
		})
	}
	for _, name := range beside {
		c.becomes("beside", name, "Ready")
	}
	wantEvents(c.T, "unheard", c.must("events", "unheard"), strings.Join([]string{
		"unheard - Ordered provision", "unheard - Placed provision", "unheard - Delivered provision", "unheard - Ordered deprovision", "unheard - Removed deprovision",
		"unheard - Ordered provision", "unheard - Placed provision", "unheard - Delivered provision",
	}, ", "))
}

// bound works with what the Secret has.
func (c *catalogued) bound(said string) {
	if !strings.Contains(said, "limits.cpu: 0/300m") {
		c.Errorf("the quota is not shown with the binding's kubeconfig:\n%s", said)
	}
	file := filepath.Join(c.folder, "room.kubeconfig")
	c.consumer = c.clientOf(file)
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		c.Fatal(err)
	}
	c.namespace = config.Contexts[config.CurrentContext].Namespace
	made := &corev1.ConfigMap{}
	made.Name, made.Namespace = "made", c.namespace
	if err := c.consumer.Create(c.Context(), made); err != nil {
		c.Errorf("the binding's kubeconfig cannot be used: %v", err)
	}
	if err := c.consumer.List(c.Context(), &corev1.SecretList{}, client.InNamespace("shop")); !apierrors.IsForbidden(err) {
		c.Errorf("read the Secrets of another namespace: %v, want forbidden", err)
	}
}

// changed checks that the instance has the other plan.
func (c *catalogued) changed(string) {
	var quotas corev1.ResourceQuotaList
	if err := c.consumer.List(c.Context(), &quotas, client.InNamespace(c.namespace)); err != nil {
		c.Fatal(err)
	}
	for _, quota := range quotas.Items {
		if cpu, limited := quota.Spec.Hard[corev1.ResourceLimitsCPU]; limited && cpu.String() != "1" {
			c.Errorf("the quota is still %v", quota.Spec.Hard)
		}
	}
	state := c.room().StateInForce()
	if state.PlanID != "0c2b9d52-8a3c-4a0e-8b0f-7f5c3f0f9a02" || state.Parameters == nil || string(state.Parameters.Raw) != `{"clusters":1}` || len(quotas.Items) == 0 {
		c.Errorf("Sluice has plan %s with parameters %s, and %d quotas", state.PlanID, state.Parameters, len(quotas.Items))
	}
}

// refuseChange changes the plan without the parameters, which do not suit it. That is 422, which Service Catalog repeats
// for days, and it lets nobody change the instance meanwhile. It can be deleted all the same.
func (c *catalogued) refuseChange() {
	if err := c.patch(c.Context(), "shop", "room", `{"spec": {"clusterServicePlanExternalName": "small"}}`); err != nil {
		c.Fatal(err)
	}
	c.until("the change is refused", func(ctx context.Context) error {
		o, err := c.find(ctx, "ServiceInstance", "shop", "room")
		if conditions := fmt.Sprint(o.Object["status"]); err == nil && !strings.Contains(conditions, "do not suit plan small") {
			err = fmt.Errorf("the instance is %s", conditions)
		}
		return err
	})
	if err := c.patch(c.Context(), "shop", "room", `{"spec": {"parameters": null}}`); err == nil || !strings.Contains(err.Error(), "Another update for this service instance is in progress") {
		c.Errorf("the correction: %v, want it forbidden", err)
	}
}

// patch changes a ServiceInstance.
func (c *catalogued) patch(ctx context.Context, namespace, name, patch string) error {
	o, err := c.find(ctx, "ServiceInstance", namespace, name)
	if err != nil {
		return err
	}
	return c.platform.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(patch)))
}

// sellMore adds a plan.
func (c *catalogued) sellMore() {
	offering, err := os.ReadFile(filepath.Join("..", "..", "docs", "examples", "offering.yaml"))
	if err != nil {
		c.Fatal(err)
	}
	file := filepath.Join(c.folder, "offering.yaml")
	offering = append(offering, "    - {id: medium, name: medium, description: Between both, kind: resources, resources: {limits: {cpu: 600m}}}\n"...)
	if err := os.WriteFile(file, offering, 0o600); err != nil {
		c.Fatal(err)
	}
	c.must("catalog", "apply", "-f", file)
}

func (c *catalogued) relisted(string) {
	c.until("the new plan is offered", func(ctx context.Context) error {
		plans, err := c.names(ctx, "ClusterServicePlan")
		if err == nil && len(plans) != 3 {
			err = fmt.Errorf("Service Catalog offers the plans %v", plans)
		}
		return err
	})
}

// deleteBeside asks for the end of what the page does not order, and leaves the page an instance that cannot be updated.
func (c *catalogued) deleteBeside() {
	c.refuseChange()
	c.delete("ServiceInstance", beside...)
}

// delete asks for the end of objects in the namespace beside.
func (c *catalogued) delete(kind string, names ...string) {
	c.Helper()
	for _, name := range names {
		o, err := c.find(c.Context(), kind, "beside", name)
		if err == nil {
			err = c.platform.Delete(c.Context(), o)
		}
		if err != nil {
			c.Fatal(err)
		}
	}
}

// gone waits for that end.
func (c *catalogued) gone(kind string, names ...string) {
	c.Helper()
	for _, name := range names {
		c.until(name+" is gone", func(ctx context.Context) error {
			o, err := c.find(ctx, kind, "beside", name)
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("it has the status %v, %v", o.Object["status"], err)
		})
	}
}

// deleted checks that nothing is left, on either side.
func (c *catalogued) deleted(string) {
	c.gone("ServiceInstance", beside...)
	c.delete("ServiceBroker", "sluice")
	c.gone("ServiceBroker", "sluice")
	for _, kind := range []string{"ClusterServicePlan", "ClusterServiceClass", "ServicePlan", "ServiceClass", "ServiceInstance", "ServiceBinding", "ClusterServiceBroker"} {
		if left, err := c.names(c.Context(), kind); err != nil || len(left) > 0 {
			c.Errorf("Service Catalog still has %s %v, %v", kind, left, err)
		}
	}
	var instances v1alpha1.ServiceInstanceList
	var bindings v1alpha1.ServiceBindingList
	var namespaces corev1.NamespaceList
	err := errors.Join(
		c.hub.List(c.Context(), &instances), c.hub.List(c.Context(), &bindings),
		c.platform.List(c.Context(), &namespaces, client.HasLabels{v1alpha1.LabelInstance}),
	)
	if err != nil || len(instances.Items)+len(bindings.Items)+len(namespaces.Items) > 0 {
		c.Errorf("Sluice still has %d instances, %d bindings and %d namespaces, %v", len(instances.Items), len(bindings.Items), len(namespaces.Items), err)
	}
	if err := c.platform.Get(c.Context(), client.ObjectKey{Namespace: "shop", Name: "room"}, &corev1.Secret{}); !apierrors.IsNotFound(err) {
		c.Errorf("the Secret of the binding is still there: %v", err)
	}
	c.until("the token is refused", func(ctx context.Context) error {
		err := c.consumer.List(ctx, &corev1.ConfigMapList{}, client.InNamespace(c.namespace))
		if apierrors.IsUnauthorized(err) {
			return nil
		}
		return fmt.Errorf("it is answered %v", err)
	})
}
