package main

import (
	"encoding/json"
	"reflect"
	"runtime"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// storedInstance is a delivered instance as the hub has it.
const storedInstance = `{
  "metadata": {"name": "i", "namespace": "sluice", "managedFields": [{"manager": "sluice"}]},
  "spec": {"platform": "p", "instanceID": "i", "serviceID": "s", "desired": {"planID": "small", "context": {"platform": "cloudfoundry", "space_name": "some-space"}}},
  "status": {
    "decision": {"generation": 1, "considered": 20, "placements": [{"cluster": "a", "score": 80, "reserved": {"cpu": "10m", "memory": "16Mi", "pods": "1"}}],
      "rejections": [{"reason": "LowerScore", "count": 19, "examples": [{"cluster": "b", "message": "scored 79, the chosen ones 80"}]}]},
    "delivered": {"state": {"planID": "small", "context": {"platform": "cloudfoundry", "space_name": "some-space"}},
      "decision": {"generation": 1, "considered": 20, "placements": [{"cluster": "a", "score": 80, "reserved": {"cpu": "10m", "memory": "16Mi", "pods": "1"}}],
        "rejections": [{"reason": "LowerScore", "count": 19, "examples": [{"cluster": "b", "message": "scored 79, the chosen ones 80"}]}]}}
  }
}`

func decodeStored(t testing.TB) *v1alpha1.ServiceInstance {
	i := &v1alpha1.ServiceInstance{}
	if err := json.Unmarshal([]byte(storedInstance), i); err != nil {
		t.Fatal(err)
	}
	return i
}

func slimmed(t testing.TB, i *v1alpha1.ServiceInstance) *v1alpha1.ServiceInstance {
	kept, err := slim(i)
	if err != nil {
		t.Fatal(err)
	}
	return kept.(*v1alpha1.ServiceInstance)
}

// shares reports whether what was delivered has the memory of the decision.
func shares(i *v1alpha1.ServiceInstance) bool {
	return &i.Status.Delivered.Decision.Placements[0] == &i.Status.Decision.Placements[0]
}

func TestTheCacheKeepsOneDecisionOfADeliveredInstance(t *testing.T) {
	want := decodeStored(t)
	want.ManagedFields = nil
	kept := slimmed(t, decodeStored(t))
	if !reflect.DeepEqual(kept, want) {
		t.Errorf("kept %+v, want %+v", kept, want)
	}
	if !shares(kept) || &kept.Status.Delivered.State.Context.Raw[0] != &kept.Spec.Desired.Context.Raw[0] {
		t.Error("the cache keeps the state and the decision twice")
	}
	if again := slimmed(t, kept); !reflect.DeepEqual(again, want) {
		t.Errorf("slimmed twice: %+v, want %+v", again, want)
	}
	read := kept.DeepCopy()
	read.Status.Decision.Placements[0].Cluster = "changed"
	read.Spec.Desired.Context.Raw[0] = '['
	if !reflect.DeepEqual(kept, want) || read.Status.Delivered.Decision.Placements[0].Cluster != "a" || read.Status.Delivered.State.Context.Raw[0] != '{' {
		t.Error("a reader's copy shares memory")
	}
}

func TestTheCacheKeepsADecisionThatIsNotDelivered(t *testing.T) {
	i := decodeStored(t)
	i.Status.Decision.Placements[0].Cluster = "next"
	i.Spec.Desired.PlanID = "large"
	want := i.DeepCopy()
	want.ManagedFields = []metav1.ManagedFieldsEntry(nil)
	if kept := slimmed(t, i); !reflect.DeepEqual(kept, want) {
		t.Errorf("kept %+v, want %+v", kept, want)
	}
}

// BenchmarkSlim measures what the cache keeps of a delivered instance.
func BenchmarkSlim(b *testing.B) {
	all := make([]*v1alpha1.ServiceInstance, 0, b.N)
	before := heapAfterCollection()
	for range b.N {
		all = append(all, slimmed(b, decodeStored(b)))
	}
	b.ReportMetric(float64(heapAfterCollection()-before)/float64(b.N), "B-kept/op")
	runtime.KeepAlive(all)
}

func heapAfterCollection() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
