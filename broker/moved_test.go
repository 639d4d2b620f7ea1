package broker

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// TestTokensOutliveAMove: platforms poll with the tokens that they got before the hub moved, where generations were counted
// from another number.
func TestTokensOutliveAMove(t *testing.T) {
	instance := func(before string, generation int64) *v1alpha1.ServiceInstance {
		return &v1alpha1.ServiceInstance{
			ObjectMeta: metav1.ObjectMeta{Generation: generation, Annotations: map[string]string{v1alpha1.AnnotationGenerations: before}},
			Status: v1alpha1.ServiceInstanceStatus{
				Operation: &v1alpha1.Operation{Type: v1alpha1.OperationUpdate, Generation: generation, State: v1alpha1.StateFailed},
				Delivered: &v1alpha1.DeliveredState{Decision: v1alpha1.Decision{Generation: generation - 1}},
			},
		}
	}
	former, moved := instance("0", 3), instance("2", 1)
	token := (&server{}).token(former, instanceOperation(former))
	if again := (&server{}).token(moved, instanceOperation(moved)); again != token {
		t.Errorf("the token is %s, was %s", again, token)
	}
	for text, want := range map[string]v1alpha1.OperationState{token: v1alpha1.StateFailed, "update-2": v1alpha1.StateSucceeded, "provision-1": v1alpha1.StateSucceeded} {
		asked, is := v1alpha1.ParseOperationToken(text)
		if !is {
			t.Fatalf("%s is no token", text)
		}
		for where, i := range map[string]*v1alpha1.ServiceInstance{"before": former, "after": moved} {
			if got := instanceOperationAsked(i, asked); got.State != want {
				t.Errorf("%s the move, %s is %s, want %s", where, text, got.State, want)
			}
		}
	}
}
