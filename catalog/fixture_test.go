package catalog

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// edit changes a valid offering.
type edit func(*v1alpha1.ServiceOffering)

// offering returns a valid offering. Its resource and service have the same name; its plans
// are <name>-small and <name>-large.
func offering(name string, edits ...edit) v1alpha1.ServiceOffering {
	o := v1alpha1.ServiceOffering{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(2, 0))}}
	o.Spec = v1alpha1.ServiceOfferingSpec{
		ID: name + "-id", Name: name, Description: "test", Bindable: true, PlanUpdateable: true, BindingRotatable: true,
		Plans: []v1alpha1.Plan{plan(name + "-small"), plan(name + "-large")},
	}
	for _, e := range edits {
		e(&o)
	}
	return o
}

// plan is a valid plan; its id is its name.
func plan(id string) v1alpha1.Plan {
	return v1alpha1.Plan{
		ID: id, Name: id, Description: "test", Kind: v1alpha1.PlanKindResources,
		Resources: &v1alpha1.ResourcesPlan{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}, Clusters: 1},
	}
}

// served makes an offering's spec the served one.
func served(o *v1alpha1.ServiceOffering) { o.Status.Accepted = o.Spec.DeepCopy() }

// deleted marks an offering as being deleted.
func deleted(o *v1alpha1.ServiceOffering) { o.DeletionTimestamp = &metav1.Time{} }

// selectable lets consumers choose clusters and regions of the first plan.
func selectable(o *v1alpha1.ServiceOffering) {
	o.Spec.Plans[0].Resources.MaxClusters = 3
	o.Spec.Plans[0].Resources.Selectable = []string{"topology.kubernetes.io/region"}
}

// schemas gives the operator's schemas to the first plan.
func schemas(create, update, bind string) edit {
	raw := func(text string) *runtime.RawExtension {
		if text == "" {
			return nil
		}
		return &runtime.RawExtension{Raw: []byte(text)}
	}
	return func(o *v1alpha1.ServiceOffering) {
		o.Spec.Plans[0].Schemas = &v1alpha1.PlanSchemas{InstanceCreate: raw(create), InstanceUpdate: raw(update), BindingCreate: raw(bind)}
	}
}

// firstPlan compiles an offering and returns its first plan.
func firstPlan(t testing.TB, edits ...edit) *Plan {
	t.Helper()
	o := offering("test", edits...)
	built, err := newOffering(&o.Spec, known{}, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	return built.Plans[0]
}

func contains(t testing.TB, text, part string) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Errorf("%q does not say %q", text, part)
	}
}

// ValidateUpdate checks the parameters of an update that replaces all of them.
func (p *Plan) ValidateUpdate(parameters json.RawMessage) error {
	return p.validateInstance(p.update, parameters, nil)
}
