package controller

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// Parameters that a broker calls writeOnly later are sealed in what the hub has, and removed from its messages. That is no
// operation for anybody: the last one stays the last one. A process that is killed in between goes on.
func TestParametersThatAreHiddenLaterAreSealed(t *testing.T) {
	for name, row := range map[string]struct{ fails, killed bool }{
		"a delivered instance":      {},
		"an update that failed":     {fails: true},
		"killed between two writes": {killed: true},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := newUpstreamWorld(t)
			keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
			w.must(err)
			w.reconciler.keys = keys
			w.provision("db", "plan-upstream", `{"key": "hunter2-hunter2", "size": 1}`)
			db := w.passes("db")
			if row.fails {
				w.driver.failOn = func(d delivery.Delivery) error {
					if d.State != &d.Instance.Status.Delivered.State {
						return refusedWith("a", "hunter2-hunter2 is too short, as hunter3-hunter3 is")
					}
					return nil
				}
				w.update("db", func(s *v1alpha1.InstanceState) { s.Parameters = raw(`{"key": "hunter3-hunter3", "size": 1}`) })
				db = w.passes("db")
			}
			w.must(w.hub.Create(w.Context(), &v1alpha1.Journal{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: string(db.UID)},
				Spec:       v1alpha1.JournalSpec{EventSubject: db.Subject(), Events: []v1alpha1.Event{{Sequence: 1, Type: v1alpha1.EventFailed, Message: "not hunter2-hunter2", At: metav1.NowMicro()}}},
			}))
			stateBefore, operation := db.StateInForce().DeepCopy(), *db.Status.Operation
			token := operation.Generation + v1alpha1.GenerationsBefore(db)

			w.hideKey()
			w.driver.called()
			if row.killed {
				w.onWrite = func(func() error) error { return errors.New("killed") }
				if _, err := w.pass("db"); err == nil {
					t.Fatal("want an error")
				}
				w.onWrite = nil
				plan := w.reconciler.plan
				w.start()
				w.broker(v1alpha1.ConditionReachable, "a", "b", "c")
				w.reconciler.keys, w.reconciler.plan = keys, plan
			}
			db = w.passes("db")
			text, err := json.Marshal(db)
			w.must(err)
			journal := &v1alpha1.Journal{}
			w.must(w.hub.Get(w.Context(), keyOf(&scope{ServiceInstance: &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: string(db.UID)}}}), journal))
			if message := journal.Spec.Events[0].Message; bytes.Contains(text, []byte("hunter")) || message == "not hunter2-hunter2" {
				t.Errorf("it is in clear in %s, or in the journal: %s", text, message)
			}
			if calls := w.driver.called(); len(calls) > 0 {
				t.Errorf("the driver is called: %v", calls)
			}
			op := db.Status.Operation
			if op.Type != operation.Type || op.State != operation.State || op.Generation != db.Generation || op.Generation+v1alpha1.GenerationsBefore(db) != token || !op.StartedAt.Equal(&operation.StartedAt) {
				t.Errorf("the operation of generation %d is %+v, and was %+v", db.Generation, op, operation)
			}
			opened, err := workload.ParametersOf(db, keys).Opened(db.StateInForce().Raw())
			w.must(err)
			if !sameJSON(t, opened, stateBefore.Raw()) {
				t.Errorf("the parameters in force are %s, want %s", opened, stateBefore.Raw())
			}
			w.writes = 0
			if again := w.passes("db"); again.ResourceVersion != db.ResourceVersion {
				t.Errorf("it is written again: %d writes", w.writes)
			}
			w.driver.failOn = nil
			w.update("db", func(s *v1alpha1.InstanceState) { s.Parameters = raw(`{"size": 2}`) })
			w.wantOperation(w.passes("db"), v1alpha1.OperationUpdate, v1alpha1.StateSucceeded, "")
		})
	}
}

// An order that another replica has sealed with a new key waits until this one has read the key.
func TestAnOrderWaitsForItsKey(t *testing.T) {
	w, _ := newUpstreamWorld(t)
	before, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	w.must(err)
	rotated, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	w.must(err)
	sealed, err := workload.Parameters{Namespace: w.namespace, Name: "db", Keys: rotated}.Sealed([]string{"key"}, []byte(`{"key": "hunter2-hunter2", "size": 1}`))
	w.must(err)
	w.reconciler.keys = before
	w.provision("db", "plan-upstream", string(sealed))
	if _, err := w.pass("db"); !errors.Is(err, seal.ErrUnknownKey) {
		t.Errorf("got %v, want that the key is missing", err)
	}
	w.wantOperation(w.instance("db"), v1alpha1.OperationProvision, v1alpha1.StateInProgress, "not in the keyset")
	w.reconciler.keys = rotated
	w.wantOperation(w.passes("db"), v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
}

// hideKey makes a broker call the parameter key writeOnly.
func (w *world) hideKey() {
	w.Helper()
	plan, err := w.reconciler.plan("service-compute", "plan-upstream")
	w.must(err)
	broker := v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.MemberClusterSpec{Driver: v1alpha1.DriverOSB}}
	broker.Status.Broker = &v1alpha1.UpstreamBrokerStatus{
		Plans: []v1alpha1.OfferedPlan{{Service: "mysql", Plan: "small", ServiceID: "s", PlanID: "p"}},
		Schemas: []v1alpha1.OfferedSchemas{{Plan: "mysql/small", PlanSchemas: v1alpha1.PlanSchemas{
			InstanceCreate: &runtime.RawExtension{Raw: []byte(`{"type": "object", "properties": {"key": {"type": "string", "writeOnly": true}}}`)},
		}}},
	}
	offering := v1alpha1.ServiceOffering{Status: v1alpha1.ServiceOfferingStatus{Accepted: plan.Offering.ServiceOfferingSpec}}
	snapshot, err := catalog.Build([]v1alpha1.ServiceOffering{offering}, []v1alpha1.MemberCluster{broker}, nil, nil)
	w.must(err)
	w.reconciler.plan = snapshot.Plan
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var one, other any
	if err := errors.Join(json.Unmarshal(a, &one), json.Unmarshal(b, &other)); err != nil {
		t.Fatal(err)
	}
	x, _ := json.Marshal(one)
	y, _ := json.Marshal(other)
	return bytes.Equal(x, y)
}
