package reader

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

// Objects that are refused after they were read do not count as they were then. They count again once they are read.
func TestWhatIsRefusedLaterCountsNoMore(t *testing.T) {
	for _, refuses := range []error{apierrors.NewForbidden(schema.GroupResource{}, "", nil), apierrors.NewNotFound(schema.GroupResource{}, "")} {
		synctest.Test(t, func(t *testing.T) { isRefusedLater(t, refuses) })
	}
}

func isRefusedLater(t *testing.T, devicesWith error) {
	kube := fake.NewClientset(placementtest.Node("a", nil), deviceClass("every", ""), published("a", gpu("0", "80Gi")), quotaOf("other", "si-9", "theirs", "requests.cpu=2"))
	var refused atomic.Bool
	with := map[string]error{
		"resourcequotas": apierrors.NewForbidden(schema.GroupResource{}, "", nil),
		"deviceclasses":  devicesWith, "resourceslices": devicesWith, "resourceclaims": devicesWith,
	}
	var mu sync.Mutex
	var watches []*watch.RaceFreeFakeWatcher
	kube.PrependReactor("list", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		err := with[action.GetResource().Resource]
		return err != nil && refused.Load(), nil, err
	})
	kube.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		err := with[action.GetResource().Resource]
		if err == nil || refused.Load() {
			return err != nil, nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		watches = append(watches, watch.NewRaceFreeFake())
		return true, watches[len(watches)-1], nil
	})
	var changes atomic.Int32
	n := NewNodes(t.Context(), NodesOptions{
		Kube: kube, Cluster: "c", HubID: "hub", Inventory: placement.NewInventory(), Changed: func() { changes.Add(1) },
	})
	defer n.Close(false)
	n.Wait(t.Context())
	want := func(when, devices, foreign string) {
		t.Helper()
		r, err := n.Read(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if got := []string{byClass(r.Allocatable), r.Foreign.Cpu().String()}; !slices.Equal(got, []string{devices, foreign}) {
			t.Errorf("%s: devices and foreign cpu are %q, want %s and %s", when, got, devices, foreign)
		}
	}
	time.Sleep(time.Minute)
	want("at first", "every=1", "2")

	before := changes.Load()
	refused.Store(true)
	mu.Lock()
	for _, w := range watches {
		w.Stop()
	}
	mu.Unlock()
	time.Sleep(time.Second)
	want("refused", "", "0")
	if got := changes.Load() - before; got != int32(len(with)) {
		t.Errorf("%d changes are told, want one for each resource", got)
	}
	time.Sleep(time.Hour)
	want("refused for an hour", "", "0")

	refused.Store(false)
	quota := quotaOf("other", "si-9", "theirs", "requests.cpu=3")
	if _, err := kube.CoreV1().ResourceQuotas("theirs").Update(t.Context(), quota, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(refusalLasts / 2) // until each has been asked for once more
	want("changed since", "", "3")
	time.Sleep(refusalLasts)
	want("read again", "every=1", "3")
}
