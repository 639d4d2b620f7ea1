package broker

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
)

// TestBindingQuota: of binds at the same time, exactly as many succeed as a policy allows in a space. The others are
// refused with the numbers, and the one that reaches the warning says so.
func TestBindingQuota(t *testing.T) {
	usage := NewUsage(clock.RealClock{})
	f := newFixture(t, func(o *Options) { o.Usage = usage })
	count(t, usage, hubtest.Start(t).Config, f.namespace)
	f.provisioned("one", planSmall)
	f.provisioned("two", planSmall)
	f.provisioned("elsewhere", planSmall, "space_guid", "another")
	policy := &v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "small"}}
	policy.Spec.Quota = &v1alpha1.Quota{Per: v1alpha1.ScopeSpace, Bindings: ptr.To[int32](3), WarnAt: 60}
	if err := f.hub.Create(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	f.eventually("the cache", func() (answer, bool) {
		usage.mu.Lock()
		defer usage.mu.Unlock()
		return answer{}, len(usage.quotas.policies) == 1
	})

	var beside sync.WaitGroup
	answers := make([]answer, 8)
	for i := range answers {
		beside.Go(func() {
			answers[i] = f.do("PUT", bindingPath([]string{"one", "two"}[i%2], fmt.Sprint("b", i)), binding(planSmall))
		})
	}
	beside.Wait()
	created, bound := 0, map[string]string{}
	for i, a := range answers {
		switch a.status {
		case http.StatusCreated:
			created++
			bound[fmt.Sprint("b", i)] = []string{"one", "two"}[i%2]
		case http.StatusBadRequest:
			if text := a.body["description"].(string); a.body["error"] != "LimitReached" || !strings.HasPrefix(text, "The policy small allows each space 3 bindings; 3 exist, and 1 is asked for.") {
				t.Errorf("refused with %v", a)
			}
		default:
			t.Errorf("answered %v", a)
		}
	}
	if created != 3 {
		t.Errorf("%d bindings were created, want 3", created)
	}
	f.want(http.StatusCreated, "PUT", bindingPath("elsewhere", "b"), binding(planSmall)) // another space

	var all v1alpha1.ServiceBindingList
	if err := f.hub.List(t.Context(), &all, client.InNamespace(f.namespace)); err != nil {
		t.Fatal(err)
	}
	var warnings []string
	for i := range all.Items {
		if text := all.Items[i].Annotations[v1alpha1.AnnotationNearQuota]; text != "" {
			warnings = append(warnings, text)
		}
	}
	if len(warnings) != 1 || warnings[0] != "policy small allows each space 3 bindings: 2 exist" {
		t.Errorf("warnings %q", warnings)
	}

	for id, of := range bound {
		f.want(http.StatusOK, "DELETE", bindingPath(of, id)+"?"+deletion(planSmall), nil)
		break
	}
	f.eventually("room for another binding", func() (answer, bool) {
		a := f.do("PUT", bindingPath("one", "another"), binding(planSmall))
		return a, a.status == http.StatusCreated
	})
}
