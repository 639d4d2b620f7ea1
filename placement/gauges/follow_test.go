package gauges

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }

var _ manager.LeaderElectionRunnable = (*Gauges)(nil)

// TestFollow: on a replica that does not lead, what is on the hub is counted, from the start on and as it changes.
func TestFollow(t *testing.T) {
	t.Parallel()
	if newGauges().NeedLeaderElection() {
		t.Fatal("only the leader would count")
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	config, namespace := hubtest.Start(t).Config, hubtest.Namespace(t)
	hub, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	order := func(name string) *v1alpha1.ServiceInstance {
		i := instance(name, "small-id", func(i *v1alpha1.ServiceInstance) {
			i.Namespace, i.Spec.Platform, i.Spec.InstanceID = namespace, "cf", name
		})
		if err := hub.Create(t.Context(), i); err != nil {
			t.Fatal(err)
		}
		return i
	}
	first := order("first")

	followed, err := cache.New(config, cache.Options{Scheme: scheme, DefaultNamespaces: map[string]cache.Config{namespace: {}}})
	if err != nil {
		t.Fatal(err)
	}
	g := New(followed, newGauges().names, clock.RealClock{})
	for _, start := range []func(context.Context) error{followed.Start, g.Start} {
		go func() { _ = start(t.Context()) }()
	}
	until := func(what string, holds func() bool) {
		t.Helper()
		err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			return holds(), nil
		})
		if err != nil {
			t.Fatalf("%s: %v; instances %v", what, err, g.instances)
		}
	}
	small := plan{"compute-id", "small-id"}
	until("one that was there before", func() bool { return g.instances[group{small, stateInProgress}] == 1 })
	order("second")
	until("one that was ordered later", func() bool { return g.instances[group{small, stateInProgress}] == 2 })
	waiting(time.Now())(first)
	first.Status.Conditions[0].LastTransitionTime = metav1.Now()
	if err := hub.Status().Update(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	until("one that waits", func() bool {
		return g.instances[group{small, stateInProgress}] == 1 && g.instances[group{small, stateWaiting}] == 1 && len(g.waiting) == 1
	})
	if n := testutil.CollectAndCount(g, "sluice_instances_waiting_since_timestamp_seconds"); n != 1 {
		t.Errorf("%d plans have waiting instances", n)
	}
	if err := hub.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	until("one that is gone", func() bool { return len(g.instances) == 1 && len(g.waiting) == 0 })
}
