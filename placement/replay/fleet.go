package replay

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/charts/store"
	"github.com/sluice-dev/sluice/internal/pages"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement"
)

// Fleet is everything of a hub that decisions depend on.
type Fleet struct {
	Offerings []v1alpha1.ServiceOfferingSpec
	Clusters  []v1alpha1.MemberCluster
	Instances []v1alpha1.ServiceInstance
	Policies  []v1alpha1.PlacementPolicy
	Consumers []v1alpha1.Consumer
	charts    workload.Charts
}

// ReadFleet reads the fleet of a hub. The reader must be live, not a cache.
func ReadFleet(ctx context.Context, reader client.Reader, namespace string) (*Fleet, error) {
	f := &Fleet{charts: &store.Hub{Reader: reader, Namespace: namespace}}
	err := errors.Join(
		pages.Each(ctx, reader, &v1alpha1.ServiceOfferingList{}, func(o client.Object) error {
			if accepted := o.(*v1alpha1.ServiceOffering).Status.Accepted; accepted != nil {
				f.Offerings = append(f.Offerings, *accepted)
			}
			return nil
		}, client.InNamespace(namespace)),
		pages.Each(ctx, reader, &v1alpha1.MemberClusterList{}, func(o client.Object) error {
			f.Clusters = append(f.Clusters, *o.(*v1alpha1.MemberCluster))
			return nil
		}, client.InNamespace(namespace)),
		pages.Each(ctx, reader, &v1alpha1.ServiceInstanceList{}, func(o client.Object) error {
			f.Instances = append(f.Instances, *o.(*v1alpha1.ServiceInstance))
			return nil
		}, client.InNamespace(namespace)),
		pages.Each(ctx, reader, &v1alpha1.PlacementPolicyList{}, func(o client.Object) error {
			f.Policies = append(f.Policies, *o.(*v1alpha1.PlacementPolicy))
			return nil
		}, client.InNamespace(namespace)),
		pages.Each(ctx, reader, &v1alpha1.ConsumerList{}, func(o client.Object) error {
			f.Consumers = append(f.Consumers, *o.(*v1alpha1.Consumer))
			return nil
		}, client.InNamespace(namespace)),
	)
	return f, err
}

// Fleet returns the fleet of a recording, which has one offering.
func (r *Recording) Fleet() *Fleet {
	return &Fleet{
		Offerings: []v1alpha1.ServiceOfferingSpec{r.Offering}, Clusters: r.Clusters, Instances: r.Instances, Policies: r.Policies, Consumers: r.Consumers, charts: recorded(r.Charts),
	}
}

// ParseFleet reads a fleet that is described by documents of the kinds MemberCluster, ServiceOffering,
// PlacementPolicy and Consumer, YAML or JSON. A cluster whose status has no conditions counts as one that answers and is admitted;
// what it has is in status.allocatable. An offering counts as accepted. Unknown fields are errors, as are two resources of
// one kind and name, amounts and prices that are none, and policies that do not compile.
func ParseFleet(data []byte) (*Fleet, error) {
	f := &Fleet{charts: recorded(nil)}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	described := map[string]int{}
	for n := 1; ; n++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		var of metav1.PartialObjectMetadata
		if err == nil && len(bytes.TrimSpace(document)) > 0 {
			if err = yaml.Unmarshal(document, &of); err == nil {
				err = f.add(of.Kind, document)
			}
		}
		if named := of.Kind + " " + of.Name; err == nil && of.Kind != "" {
			if first := described[named]; first != 0 {
				err = fmt.Errorf("%s is described in document %d too", named, first)
			} else if of.Name == "" {
				err = fmt.Errorf("%s: metadata.name is missing", of.Kind)
			}
			described[named] = n
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
	}
}

// add adds what a document of a kind describes.
func (f *Fleet) add(kind string, document []byte) error {
	switch kind {
	case "MemberCluster":
		var one v1alpha1.MemberCluster
		if err := strictly(document, &one); err != nil {
			return err
		}
		if len(one.Status.Conditions) == 0 {
			for _, condition := range []string{v1alpha1.ConditionReachable, v1alpha1.ConditionAccessVerified, v1alpha1.ConditionAdmitted} {
				v1alpha1.SetCondition(&one.Status.Conditions, 1, condition, metav1.ConditionTrue, "Described", "as described")
			}
		}
		if err := checkCluster(&one); err != nil {
			return fmt.Errorf("MemberCluster %s: %w", one.Name, err)
		}
		f.Clusters = append(f.Clusters, one)
	case "ServiceOffering":
		var one v1alpha1.ServiceOffering
		if err := strictly(document, &one); err != nil {
			return err
		}
		f.Offerings = append(f.Offerings, one.Spec)
	case "PlacementPolicy":
		var one v1alpha1.PlacementPolicy
		if err := strictly(document, &one); err != nil {
			return err
		}
		if _, err := placement.CompilePolicy(&one); err != nil {
			return fmt.Errorf("PlacementPolicy %s: %w", one.Name, err)
		}
		f.Policies = append(f.Policies, one)
	case "Consumer":
		var one v1alpha1.Consumer
		if err := strictly(document, &one); err != nil {
			return err
		}
		f.Consumers = append(f.Consumers, one)
	default:
		return fmt.Errorf("kind %q: want MemberCluster, ServiceOffering, PlacementPolicy or Consumer", kind)
	}
	return nil
}

// checkCluster checks the amounts and prices of a cluster. A real one's may have resources by names that no reservation has.
func checkCluster(m *v1alpha1.MemberCluster) error {
	if err := m.Spec.Prices.Check(); err != nil {
		return fmt.Errorf("spec.prices.%w", err)
	}
	if err := m.Spec.Sell.Check(); err != nil {
		return fmt.Errorf("spec.sell.%w", err)
	}
	for of, amounts := range map[string]corev1.ResourceList{"spec.capacity": m.Spec.Capacity, "status.allocatable": m.Status.Allocatable, "status.foreignUse": m.Status.ForeignUse} {
		for name, amount := range amounts {
			if amount.Sign() < 0 {
				return fmt.Errorf("%s: %s is negative", of, name)
			}
		}
	}
	return nil
}

// strictly reads one resource.
func strictly(document []byte, into runtime.Object) error {
	if err := yaml.UnmarshalStrict(document, into); err != nil {
		return fmt.Errorf("%T: %w", into, err)
	}
	return nil
}

// inventory returns the fleet as placement sees it at a time.
func (f *Fleet) inventory(at time.Time) *placement.Inventory {
	inventory := placement.NewInventory()
	inventory.SetPolicies(placement.CompilePolicies(f.Policies))
	inventory.SetProofs(placement.ProofsOf(f.Consumers, at))
	for i := range f.Clusters {
		inventory.UpsertCluster(placement.ClusterOf(&f.Clusters[i], at))
	}
	var held []placement.Holding
	for i := range f.Instances {
		held = append(held, placement.HoldingOf(&f.Instances[i]))
	}
	inventory.ReserveAll(held)
	return inventory
}

// catalog returns the catalog of the fleet's offerings.
func (f *Fleet) catalog() (*catalog.Snapshot, error) {
	offerings := make([]v1alpha1.ServiceOffering, len(f.Offerings))
	for i := range f.Offerings {
		offerings[i].Name, offerings[i].Status.Accepted = f.Offerings[i].Name, &f.Offerings[i]
	}
	return catalog.Build(offerings, f.Clusters, f.charts, nil)
}
