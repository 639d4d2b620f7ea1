package carried

import (
	"crypto/rand"
	"encoding/hex"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
)

// delivered is an instance with an update that failed after it was delivered.
func delivered() *v1alpha1.ServiceInstance {
	i := &v1alpha1.ServiceInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "sluice", Name: v1alpha1.InstanceName("cf", "a/b"), UID: "uid-1"},
		Spec: v1alpha1.ServiceInstanceSpec{
			Platform: "cf", InstanceID: "a/b", ServiceID: "compute", OriginatingIdentity: &v1alpha1.OriginatingIdentity{Platform: "cf"},
			Desired: v1alpha1.InstanceState{PlanID: "large"},
		},
	}
	state := v1alpha1.InstanceState{PlanID: "small", Parameters: &runtime.RawExtension{Raw: []byte(`{"b": "<1>", "a": 2}`)}}
	i.Status.Delivered = &v1alpha1.DeliveredState{State: state, Decision: v1alpha1.Decision{
		Generation: 7, Considered: 3, Placements: []v1alpha1.Placement{{Cluster: "eu"}}, Hosts: []string{"shop"},
	}}
	i.Status.Decision = &v1alpha1.Decision{Placements: []v1alpha1.Placement{{Cluster: "us"}}}
	i.Status.Operation = &v1alpha1.Operation{State: v1alpha1.StateFailed}
	return i
}

func keyset(t *testing.T) *seal.Keyset {
	t.Helper()
	keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func sealed(t *testing.T, o *Order, keys *seal.Keyset, name, have string) string {
	t.Helper()
	text, err := o.Seal(keys, "sluice", name, have)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestTheOrderIsWhatIsDelivered(t *testing.T) {
	i, keys := delivered(), keyset(t)
	text := sealed(t, Of(i, &i.Status.Delivered.State), keys, i.Name, "")
	o, err := Open(text, keys, i.Namespace, i.Name)
	if err != nil {
		t.Fatal(err)
	}
	if d := o.Decision; o.UID != i.UID || o.Spec.Desired.PlanID != "small" || o.Spec.OriginatingIdentity != nil ||
		d.Clusters()[0] != "eu" || d.Hosts[0] != "shop" || d.Generation != 0 || d.Considered != 0 {
		t.Errorf("the order is %+v", o)
	}
	asked := i.Spec.DeepCopy()
	asked.Desired = v1alpha1.InstanceState{PlanID: "small", Parameters: &runtime.RawExtension{Raw: []byte(`{"a":2,"b":"\u003c1>"}`)}}
	if !o.IsOf(asked) {
		t.Error("the same request in another form is another one")
	}
	if asked.SpaceGUID = "s"; o.IsOf(asked) {
		t.Error("another request is the same")
	}
	if err := o.Adoptable(); err != nil {
		t.Error(err)
	}
}

// TestTheSameOrderKeepsItsText: a delivery that changes nothing writes nothing, though sealing is random.
func TestTheSameOrderKeepsItsText(t *testing.T) {
	i, keys := delivered(), keyset(t)
	state := &i.Status.Delivered.State
	text := sealed(t, Of(i, state), keys, i.Name, "")
	if sealed(t, Of(i, state), keys, i.Name, text) != text {
		t.Error("the same order has another text")
	}
	if err := keys.Rotate(); err != nil {
		t.Fatal(err)
	}
	if sealed(t, Of(i, state), keys, i.Name, text) != text {
		t.Error("the same order has another text after a rotation")
	}
	state.PlanID = "other"
	if sealed(t, Of(i, state), keys, i.Name, text) == text {
		t.Error("another order has the same text")
	}
}

func TestWhatIsNotOpened(t *testing.T) {
	i, keys := delivered(), keyset(t)
	o := Of(i, &i.Status.Delivered.State)
	text := sealed(t, o, keys, i.Name, "")
	for name, row := range map[string]struct {
		text, of string
		keys     *seal.Keyset
		says     string
	}{
		"another instance": {text, v1alpha1.InstanceName("cf", "other"), keys, "open the order"},
		"another keyset":   {text, i.Name, keyset(t), "open the order"},
		"none":             {"", i.Name, keys, "carries no order"},
		"another text":     {"%", i.Name, keys, "not base64"},
		"another identity": {sealed(t, o, keys, "si-other", ""), "si-other", keys, "of another instance"},
	} {
		if _, err := Open(row.text, row.keys, "sluice", row.of); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %v, want %q", name, err, row.says)
		}
	}
}

func TestWhatIsTooLargeIsNotCarried(t *testing.T) {
	i, keys := delivered(), keyset(t)
	noise := make([]byte, longest)
	_, _ = rand.Read(noise)
	i.Status.Delivered.State.Parameters.Raw = []byte(`"` + hex.EncodeToString(noise) + `"`)
	if text := sealed(t, Of(i, &i.Status.Delivered.State), keys, i.Name, ""); text != "" {
		t.Errorf("it is carried in %d bytes", len(text))
	}
}

func TestWhatIsNotAdoptable(t *testing.T) {
	for name, p := range map[string]*v1alpha1.Placement{
		"a cluster": {Shape: &v1alpha1.ClusterShape{}}, "peered": {Peering: &v1alpha1.PlacementPeering{}},
		"of another broker": {Upstream: &v1alpha1.PlacementUpstream{}}, "nothing": nil,
	} {
		i := delivered()
		i.Status.Delivered.Decision.Placements = nil
		if p != nil {
			i.Status.Delivered.Decision.Placements = []v1alpha1.Placement{*p}
		}
		if Of(i, &i.Status.Delivered.State).Adoptable() == nil {
			t.Errorf("%s can be adopted", name)
		}
	}
}
