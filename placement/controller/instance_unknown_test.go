package controller

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// unloadCatalog makes every plan unknown, as before the catalog is loaded, until load is called.
func (w *world) unloadCatalog() (load func()) {
	find := w.reconciler.plan
	w.reconciler.plan = func(string, string) (*catalog.Plan, error) { return nil, errors.New("the catalog is not loaded") }
	return func() { w.reconciler.plan = find }
}

// A pass before the catalog is loaded does not drop what an operator asks for.
func TestAMoveThatIsAskedForOutlivesAPassBeforeTheCatalogIsLoaded(t *testing.T) {
	w := onEU(t)
	asked := w.instance("si-a")
	asked.Annotations = map[string]string{v1alpha1.AnnotationLeave: "eu", v1alpha1.AnnotationMoveTo: "ap"}
	w.must(w.hub.Update(t.Context(), asked))
	load := w.unloadCatalog()
	result, err := w.pass("si-a")
	w.must(err)
	if instance := w.instance("si-a"); len(instance.Annotations) != 2 || result.RequeueAfter != catalogPatience {
		t.Errorf("it is asked for %v, and looked at again in %v", instance.Annotations, result.RequeueAfter)
	}
	load()
	w.settle("si-a")
	w.wantOn(w.settle("si-a"), "ap")
}

// A pass before the catalog is loaded does not make a stranded instance well, and an update of the context does neither.
func TestAStrandedInstanceOutlivesAPassBeforeTheCatalogIsLoaded(t *testing.T) {
	w := newWorld(t)
	w.cluster("eu", 8)
	w.provision("si-a", "plan-2", "")
	w.passes("si-a")
	w.drain("eu")
	w.passes("si-a")
	load := w.unloadCatalog()
	wantStranded := func() {
		t.Helper()
		if instance := w.passes("si-a"); !instance.Status.IsStranded() {
			t.Errorf("its conditions are %+v", instance.Status.Conditions)
		}
	}
	wantStranded()
	w.update("si-a", func(s *v1alpha1.InstanceState) { s.Context = raw(`{"instance_name": "new"}`) })
	wantStranded()
	load()
	wantStranded()
	w.cluster("us", 8)
	w.wantOn(w.settle("si-a"), "us")
}

// A leader that has not loaded the catalog does not withdraw the move of the leader before.
func TestAMoveOfAnotherLeaderOutlivesAPassBeforeTheCatalogIsLoaded(t *testing.T) {
	w := onEU(t)
	w.driver.fail("deliver us", &delivery.PendingError{Step: "create namespace"})
	w.drain("eu")
	w.passes("si-a")
	w.reconciler.leadership = lateTerm{}
	load := w.unloadCatalog()
	if _, err := w.pass("si-a"); err == nil {
		t.Error("nobody says that the plan is unknown")
	}
	if instance := w.instance("si-a"); !instance.Status.IsMoving() {
		t.Errorf("it does not move any more: %+v", instance.Status.Decision)
	}
	load()
	w.driver.fail("deliver us", nil)
	w.wantOn(w.settle("si-a"), "us")
	if c := meta.FindStatusCondition(w.instance("si-a").Status.Conditions, v1alpha1.ConditionReady); c.Status != metav1.ConditionTrue {
		t.Errorf("condition %+v", c)
	}
}

// lateTerm is the term of a leader that follows another.
type lateTerm struct{ soleWriter }

func (lateTerm) Term() string { return "late" }

// A plan without resources is no unknown plan: what waits for room waits for the inventory, not for the catalog.
func TestAPlanWithoutResourcesIsKnown(t *testing.T) {
	w, _ := newUpstreamWorld(t)
	w.broker("", "a", "b", "c")
	w.provision("db", "plan-upstream", "")
	result, err := w.pass("db")
	w.must(err)
	if result.RequeueAfter < time.Minute {
		t.Errorf("it waits, and is looked at again in %v", result.RequeueAfter)
	}
}
