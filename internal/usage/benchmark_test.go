package usage_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/usage"
)

// answers gives pages of instances as a hub does, encoded.
type answers struct {
	client.Reader
	pages [][]byte
}

func (a *answers) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	instances, ok := list.(*v1alpha1.ServiceInstanceList)
	if !ok {
		return nil
	}
	var asked client.ListOptions
	asked.ApplyOptions(options)
	page := 0
	if asked.Continue != "" {
		if _, err := fmt.Sscan(asked.Continue, &page); err != nil {
			return err
		}
	}
	if err := json.Unmarshal(a.pages[page], instances); err != nil {
		return err
	}
	if page+1 < len(a.pages) {
		instances.Continue = fmt.Sprint(page + 1)
	}
	return nil
}

// BenchmarkHour adds up one hour of all instances, by instance and cluster, from the hub's answers on. The hub's own time
// is not in it.
func BenchmarkHour(b *testing.B) {
	for _, many := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprint(many), func(b *testing.B) {
			hub := &answers{}
			for first := 0; first < many; first += 500 {
				var page v1alpha1.ServiceInstanceList
				for n := first; n < first+500; n++ {
					page.Items = append(page.Items, sold(n))
				}
				document, err := json.Marshal(page)
				if err != nil {
					b.Fatal(err)
				}
				hub.pages = append(hub.pages, document)
			}
			hour := usage.Window{From: start.Truncate(time.Hour), To: start.Truncate(time.Hour).Add(time.Hour)}
			q := usage.Query{Window: hour, By: []usage.Dimension{usage.ByInstance, usage.ByCluster}, Per: usage.PerHour, Names: usage.IDs}
			for b.Loop() {
				read, err := usage.Read(b.Context(), hub, "", q)
				if err != nil {
					b.Fatal(err)
				}
				sums, err := usage.Sums(read, q)
				if err != nil || len(sums) != many {
					b.Fatalf("%v: %d sums", err, len(sums))
				}
			}
		})
	}
}

// sold is an instance as it is after a while.
func sold(n int) v1alpha1.ServiceInstance {
	id := fmt.Sprintf("5f1a2b3c-0000-4000-8000-%012d", n)
	i := v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.InstanceName("cf", id), UID: types.UID(id)}}
	i.Spec = v1alpha1.ServiceInstanceSpec{Platform: "cf", InstanceID: id, ServiceID: "s", OrganizationGUID: fmt.Sprint("org-", n%1000), Desired: v1alpha1.InstanceState{PlanID: "small"}}
	i.Status.Delivered = &v1alpha1.DeliveredState{State: i.Spec.Desired, Decision: v1alpha1.Decision{Placements: []v1alpha1.Placement{{
		Cluster: fmt.Sprint("cluster-", n%10_000), PricePerHour: resource.NewScaledQuantity(123_456, resource.Micro), Currency: "EUR",
		Reserved: corev1.ResourceList{
			"cpu": resource.MustParse("2"), "memory": resource.MustParse("4Gi"), "pods": resource.MustParse("20"), "ephemeral-storage": resource.MustParse("10Gi"), "requests.storage": resource.MustParse("50Gi"),
		},
	}}}}
	i.Status.Decision = &i.Status.Delivered.Decision
	i.Status.Usage = usage.Next(nil, nil, i.Status.Delivered, start.Add(-time.Hour), provider)
	for range 6 {
		v1alpha1.AddEvent(&i.Status.Events, v1alpha1.Event{Type: v1alpha1.EventPlaced, Clusters: []string{"cluster"}, Message: "score 77 on cluster, rejected 12 × InsufficientCPU"})
	}
	return i
}
