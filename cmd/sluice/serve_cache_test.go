package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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

func slimmed(t testing.TB, p *interned, i *v1alpha1.ServiceInstance) *v1alpha1.ServiceInstance {
	kept, err := p.slim(i)
	if err != nil {
		t.Fatal(err)
	}
	return kept.(*v1alpha1.ServiceInstance)
}

// shares reports whether what was delivered has the memory of the decision.
func shares(i *v1alpha1.ServiceInstance) bool {
	return &i.Status.Delivered.Decision == i.Status.Decision
}

func TestTheCacheKeepsOneDecisionOfADeliveredInstance(t *testing.T) {
	want, p := decodeStored(t), newInterned()
	want.ManagedFields = nil
	kept := slimmed(t, p, decodeStored(t))
	if !reflect.DeepEqual(kept, want) {
		t.Errorf("kept %+v, want %+v", kept, want)
	}
	if !shares(kept) || &kept.Status.Delivered.State.Context.Raw[0] != &kept.Spec.Desired.Context.Raw[0] {
		t.Error("the cache keeps the state and the decision twice")
	}
	if again := slimmed(t, p, kept); !reflect.DeepEqual(again, want) {
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
	if kept := slimmed(t, newInterned(), i); !reflect.DeepEqual(kept, want) {
		t.Errorf("kept %+v, want %+v", kept, want)
	}
}

// sameList reports whether two lists of resources are one in memory.
func sameList(a, b corev1.ResourceList) bool {
	return reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
}

func sameText(a, b string) bool { return unsafe.StringData(a) == unsafe.StringData(b) }

func TestTheCacheKeepsTextsAndResourcesOnce(t *testing.T) {
	p := newInterned()
	one, other := slimmed(t, p, decodeStored(t)), decodeStored(t)
	other.Name = "other"
	other.Status.Decision.Placements[0].Reserved[corev1.ResourceCPU] = resource.MustParse("20m")
	want := other.DeepCopy()
	want.ManagedFields = nil
	if other = slimmed(t, p, other); !reflect.DeepEqual(other, want) {
		t.Errorf("kept %+v, want %+v", other, want)
	}
	if !sameText(one.Status.Decision.Rejections[0].Examples[0].Message, other.Status.Decision.Rejections[0].Examples[0].Message) {
		t.Error("two instances have a text each")
	}
	if !sameList(one.Status.Decision.Placements[0].Reserved, other.Status.Delivered.Decision.Placements[0].Reserved) {
		t.Error("two instances have lists of the same resources each")
	}
	if sameList(one.Status.Decision.Placements[0].Reserved, other.Status.Decision.Placements[0].Reserved) {
		t.Error("two instances with different resources have one list")
	}
}

func TestAPoolIsBounded(t *testing.T) {
	p := newInterned()
	for n := range 3 * mostInterned {
		p.text(fmt.Sprint(n))
		p.list(corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(n), resource.DecimalSI)})
	}
	if len(p.texts) > mostInterned || len(p.lists) > mostInterned {
		t.Errorf("it has %d texts and %d lists, want at most %d", len(p.texts), len(p.lists), mostInterned)
	}
}

// BenchmarkSlim measures what the cache keeps of a delivered instance.
func BenchmarkSlim(b *testing.B) {
	all, p := make([]*v1alpha1.ServiceInstance, 0, b.N), newInterned()
	before := heapAfterCollection()
	for range b.N {
		all = append(all, slimmed(b, p, decodeStored(b)))
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
