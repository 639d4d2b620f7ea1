package overview

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// What is new since before the hub has moved is said to be as old as it is.
func TestSinceTheFirstHome(t *testing.T) {
	const first = "2026-01-02T03:04:05Z"
	sink := &v1alpha1.EventSink{ObjectMeta: metav1.ObjectMeta{
		Name: "audit", CreationTimestamp: metav1.Now(), Annotations: map[string]string{v1alpha1.AnnotationCreated: first},
	}}
	o, err := Look(t.Context(), func(_ context.Context, list client.ObjectList, each func(client.Object) error) error {
		if _, ok := list.(*v1alpha1.EventSinkList); ok {
			return each(sink)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Changing) != 1 || o.Changing[0].Since.UTC().Format(time.RFC3339) != first {
		t.Errorf("there are %+v, want one since %s", o.Changing, first)
	}
}

// TestWhatMemberClustersStandFor: clusters, brokers and pools are counted apart, and named as their commands are.
func TestWhatMemberClustersStandFor(t *testing.T) {
	o, err := Look(t.Context(), func(_ context.Context, list client.ObjectList, each func(client.Object) error) error {
		if _, ok := list.(*v1alpha1.MemberClusterList); !ok {
			return nil
		}
		for _, driver := range []string{"", v1alpha1.DriverLiqo, v1alpha1.DriverCAPI, v1alpha1.DriverOSB, v1alpha1.DriverPool} {
			if err := each(&v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: "with-" + driver}, Spec: v1alpha1.MemberClusterSpec{Driver: driver}}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]int{}
	for _, r := range o.Resources {
		counted[r.What] = r.All
	}
	if counted["cluster"] != 3 || counted["broker"] != 1 || counted["pool"] != 1 {
		t.Errorf("counted are %v", counted)
	}
	for _, one := range o.Changing {
		if want := map[string]string{"with-osb": "broker", "with-pool": "pool"}[one.Name]; want != "" && one.What != want {
			t.Errorf("%s is called %s", one.Name, one.What)
		}
	}
}
