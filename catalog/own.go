package catalog

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Own returns an instance of the plan that Sluice orders itself, for what it makes or measures. Its name follows from the
// id, so that ordering it again makes no second one. The labels say what it is for; nil parameters are none.
func (p *Plan) Own(namespace, id string, labels map[string]string, parameters json.RawMessage) *v1alpha1.ServiceInstance {
	instance := &v1alpha1.ServiceInstance{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: v1alpha1.InstanceName(v1alpha1.PlatformSelf, id),
			Labels: labels, Finalizers: []string{v1alpha1.Finalizer},
		},
		Spec: v1alpha1.ServiceInstanceSpec{
			Platform: v1alpha1.PlatformSelf, InstanceID: id, ServiceID: p.Offering.ID,
			Desired: v1alpha1.InstanceState{PlanID: p.ID},
		},
	}
	if parameters != nil {
		instance.Spec.Desired.Parameters = &runtime.RawExtension{Raw: parameters}
	}
	if info := p.MaintenanceInfo; info != nil {
		instance.Spec.Desired.MaintenanceVersion = info.Version
	}
	return instance
}
