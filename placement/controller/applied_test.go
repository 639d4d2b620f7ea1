package controller

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/delivery"
)

func TestWhatIsAppliedIsKnownUntilItChanges(t *testing.T) {
	on := func(cluster string) delivery.Delivery {
		return delivery.Delivery{
			Instance:  &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Name: "si-1"}},
			Placement: v1alpha1.Placement{Cluster: cluster},
		}
	}
	starts := &delivery.PendingError{Applied: "all of it"}
	var known applied
	want := func(cluster, said string) {
		t.Helper()
		if got := known.of(on(cluster)); got != said {
			t.Errorf("of %s %q is known, want %q", cluster, got, said)
		}
	}
	want("a", "")
	known.record(on("a"), starts)
	want("a", "all of it")
	want("b", "")
	known.record(on("b"), &delivery.PendingError{})
	want("a", "all of it")

	known.forget("si-1")
	known.record(on("a"), starts) // it changed while it was being applied
	want("a", "")
	known.record(on("a"), starts)
	known.record(on("a"), nil) // it works
	if len(known.said) > 0 {
		t.Errorf("%v is kept", known.said)
	}
}
