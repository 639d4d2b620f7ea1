package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/placement/rebalance"
)

func (w *world) policy(name string, spec v1alpha1.PlacementPolicySpec) {
	w.Helper()
	w.must(w.hub.Create(w.Context(), &v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: spec}))
}

// inForce reports whether a policy is in force by its status.
func (w *world) inForce(name string) bool {
	w.Helper()
	policy := &v1alpha1.PlacementPolicy{}
	w.must(w.hub.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, policy))
	return meta.IsStatusConditionTrue(policy.Status.Conditions, v1alpha1.ConditionReady)
}

func TestAPolicyWhoseStatusIsNotWrittenIsWrittenLaterAndKeepsNoOtherFromIt(t *testing.T) {
	for name, refusal := range map[string]error{
		"conflict": apierrors.NewConflict(schema.GroupResource{Resource: "placementpolicies"}, "a", errors.New("has changed")),
		"failure":  errors.New("the hub does not answer"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.policy("a", v1alpha1.PlacementPolicySpec{})
			w.policy("b", v1alpha1.PlacementPolicySpec{})
			w.onWrite = func(really func() error) error {
				w.onWrite = nil
				return refusal
			}
			r := &policyReconciler{hub: w.hub, namespace: w.namespace, inventory: w.inventory, recovery: w.reconciler.recovery, clock: clock.RealClock{}}
			result, err := r.Reconcile(t.Context(), ctrl.Request{})
			if again := err != nil || result.RequeueAfter > 0; w.inForce("a") || !w.inForce("b") || !again {
				t.Errorf("a is in force: %t, b: %t; result %+v, %v", w.inForce("a"), w.inForce("b"), result, err)
			}
			if _, err := r.Reconcile(t.Context(), ctrl.Request{}); err != nil || !w.inForce("a") {
				t.Errorf("a is in force: %t, %v", w.inForce("a"), err)
			}
		})
	}
}

// TestAPolicySaysThatItConcernsNoPlan: a policy by the name of a plan instead of its id says so, until there is a plan of that id.
func TestAPolicySaysThatItConcernsNoPlan(t *testing.T) {
	w := newWorld(t)
	offering := &v1alpha1.ServiceOffering{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "queue"}, Spec: v1alpha1.ServiceOfferingSpec{
		ID: "q", Name: "queue", Description: "Queues.", Plans: []v1alpha1.Plan{{ID: "q-1", Name: "tiny", Description: "One queue.", Kind: v1alpha1.PlanKindResources, Resources: &v1alpha1.ResourcesPlan{Limits: corev1.ResourceList{"cpu": resource.MustParse("1")}}}},
	}}
	w.must(w.hub.Create(t.Context(), offering))
	w.policy("a", v1alpha1.PlacementPolicySpec{Match: v1alpha1.PolicyMatch{Plans: []string{"tiny"}}})
	r := &policyReconciler{hub: w.hub, namespace: w.namespace, inventory: w.inventory, recovery: w.reconciler.recovery, clock: clock.RealClock{}}
	for _, want := range []string{`in force; match.plans: no plan has the id "tiny", the plan tiny of queue has the id q-1`, "in force"} {
		if _, err := r.Reconcile(t.Context(), ctrl.Request{}); err != nil {
			t.Fatal(err)
		}
		policy := &v1alpha1.PlacementPolicy{}
		w.must(w.hub.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "a"}, policy))
		if got := meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionReady); got.Status != metav1.ConditionTrue || got.Message != want {
			t.Errorf("Ready is %s: %q, want %q", got.Status, got.Message, want)
		}
		offering.Spec.Plans[0].ID = "tiny"
		w.must(w.hub.Update(t.Context(), offering))
	}
}

// A policy fills the inventory, although the hub has no clusters and no instances: elastic clusters wait for that.
func TestAPolicyFillsTheInventory(t *testing.T) {
	w := newWorld(t)
	w.policy("a", v1alpha1.PlacementPolicySpec{})
	filled := 0
	r := &policyReconciler{hub: w.hub, namespace: w.namespace, inventory: w.inventory, clock: clock.RealClock{}}
	r.recovery = &recovery{reader: failingReader{}, namespace: w.namespace, inventory: w.inventory, clock: clock.RealClock{}, filled: func() { filled++ }}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{}); err == nil || filled != 0 || w.inForce("a") {
		t.Errorf("the hub cannot be read: error %v, filled %d times", err, filled)
	}
	r.recovery.reader = w.hub
	for range 2 {
		if _, err := r.Reconcile(t.Context(), ctrl.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	if filled != 1 || !w.inForce("a") {
		t.Errorf("filled %d times, want once", filled)
	}
}

func TestAPolicyThatFailsKeepsNoOtherFromRebalancing(t *testing.T) {
	w := crowded(t)
	for _, name := range []string{"a", "b"} {
		w.policy(name, v1alpha1.PlacementPolicySpec{Rebalance: &v1alpha1.Rebalance{Schedule: "* * * * *", WindowSeconds: 3600, LeastGain: 10, AtMost: 1}})
	}
	patches := 0
	hub := interceptor.NewClient(w.hub.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			if patches++; patches == 1 {
				return errors.New("the hub does not answer")
			}
			return c.Patch(ctx, object, patch, options...)
		},
	})
	served := &catalog.Catalog{}
	served.Replace(testCatalog(t))
	r := &rebalance.Controller{Client: hub, Live: hub, Namespace: w.namespace, Catalog: served, Clock: testclock.NewFakeClock(time.Now())}
	if err := r.Check(t.Context()); err == nil || patches != 2 {
		t.Errorf("%d instances were asked to move, want one for each policy; error %v", patches, err)
	}
}
