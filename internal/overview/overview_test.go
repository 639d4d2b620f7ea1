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
