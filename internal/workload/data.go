package workload

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/strictjson"
)

// Target is the place for backups that the operator gives.
type Target struct {
	// URL of the place.
	URL string `json:"url"`
	// Username and Password with which it is used; empty if it needs none.
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
	// CA are the certificates, in PEM, that verify the place; empty means those of the image.
	CA string `json:"ca,omitempty"`
	// Addresses of the place, as CIDRs, to which the pods of hooks may connect. Without any, they connect
	// where pods may anyway.
	Addresses []string `json:"addresses,omitempty"`
}

// ParseTarget reads a target from YAML, strictly.
func ParseTarget(document []byte) (*Target, error) {
	t := &Target{}
	if err := strictjson.DecodeYAML(document, t); err != nil { // quotes no password
		return nil, err
	}
	if at, err := url.Parse(t.URL); err != nil || at.Scheme == "" || at.Host == "" {
		return nil, errors.New("url: want SCHEME://HOST, with a path or without")
	}
	for i, address := range t.Addresses {
		if _, err := netip.ParsePrefix(address); err != nil {
			return nil, fmt.Errorf("addresses[%d]: %w", i, err)
		}
	}
	return t, nil
}

// variable is the target as expressions see it.
func (t *Target) variable() map[string]any {
	return map[string]any{"url": t.URL, "username": t.Username, "password": t.Password, "ca": t.CA}
}

// Data is a step with the content of a workload's volumes while the workload is stopped.
type Data struct {
	Step v1alpha1.DataStep
	// Backup is its ID, letters and digits, and Run the end of the hooks' names.
	Backup, Run string
	// Expired are the IDs of backups that are no longer kept once this one is complete.
	Expired []string
	Target  *Target
}

// sampleData stands for a backup that is not made.
var sampleData = Data{Backup: "b01234567", Run: "b01234567", Expired: []string{"b00000000"}, Target: &Target{URL: "https://target.example"}}

// Copying returns the objects of the hooks of a step, for each container that has volumes a Job and what
// its pod needs. The error is a *RefusedError.
func (o *Order) Copying(d *Data, cluster Cluster, namespace string) ([]*unstructured.Unstructured, error) {
	addresses, err := o.Addresses(inside, nowhere)
	if err != nil {
		return nil, err
	}
	e := o.expressions(addresses)
	e.variables[varCluster] = o.variable(cluster)
	e.variables[varBackup], e.variables[varTarget] = map[string]any{"id": d.Backup, "expired": d.Expired}, d.Target.variable()
	e.hide = append(e.hide, d.Target.Password)
	var objects []*unstructured.Unstructured
	for i := range o.Plan.Components {
		c := &o.Plan.Components[i]
		if c.Container == nil || c.Container.Backup == nil {
			continue
		}
		kind, hook := "backup", c.Container.Backup
		if d.Step == v1alpha1.StepRestore {
			kind, hook = "restore", c.Container.Restore
		}
		r := &rendering{
			order: o, expressions: e, component: c.Name + "-" + kind + "-" + d.Run, volumesOf: c.Name, namespace: namespace,
			path: field.NewPath("components").Key(c.Name).Child("container", kind),
		}
		r.hookJob(hook, r.hookPods(hook, c.Container.Volumes), 0)
		if len(d.Target.Addresses) > 0 {
			r.add(networkingv1ac.NetworkPolicy(r.component, namespace).WithLabels(r.labels()).WithSpec(networkingv1ac.NetworkPolicySpec().
				WithPolicyTypes(networkingv1.PolicyTypeEgress).WithPodSelector(metav1ac.LabelSelector().WithMatchLabels(r.labels())).
				WithEgress(networkingv1ac.NetworkPolicyEgressRule().WithTo(Ranges(d.Target.Addresses)...))))
		}
		rendered, err := r.hookObjects()
		if err != nil {
			return nil, err
		}
		objects = append(objects, rendered...)
	}
	return objects, nil
}

// moving returns the objects of the hooks of each step, for what they take.
func (o *Order) moving(d Data) (steps [][]*unstructured.Unstructured, err error) {
	for _, d.Step = range []v1alpha1.DataStep{v1alpha1.StepBackup, v1alpha1.StepRestore} {
		objects, err := o.Copying(&d, Cluster{}, "sluice-sample")
		if err != nil {
			return nil, err
		}
		steps = append(steps, objects)
	}
	return steps, nil
}

// Stopped returns the objects of a workload as they are while nothing of it runs: no pods, and no Jobs and
// autoscalers that would make some. What the namespace has of those stays as it is.
func Stopped(objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	var stopped []*unstructured.Unstructured
	for _, o := range objects {
		o = o.DeepCopy()
		var err error
		switch o.GetKind() {
		case "Job", "HorizontalPodAutoscaler":
			continue
		case "Deployment", "StatefulSet":
			err = unstructured.SetNestedField(o.Object, int64(0), "spec", "replicas")
		case "CronJob":
			err = unstructured.SetNestedField(o.Object, true, "spec", "suspend")
		}
		if err != nil {
			return nil, refused("%s: %v", describeObject(o), err)
		}
		stopped = append(stopped, o)
	}
	return stopped, nil
}
