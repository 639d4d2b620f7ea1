package broker

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
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

// TestQuotas: a quota counts the bindings of the plans, platforms, organizations and spaces that its policy is of.
func TestQuotas(t *testing.T) {
	policy := func(name string, q *v1alpha1.Quota, change func(*v1alpha1.PlacementPolicySpec)) *v1alpha1.PlacementPolicy {
		p := &v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PlacementPolicySpec{Quota: q}}
		if change != nil {
			change(&p.Spec)
		}
		return p
	}
	instance := func(name, space string) *v1alpha1.ServiceInstance {
		i := instanceOf("p", name, 0)
		i.Spec.OrganizationGUID, i.Spec.SpaceGUID = "org", space
		return i
	}
	two := func(per v1alpha1.Scope, warnAt int32) *v1alpha1.Quota {
		return &v1alpha1.Quota{Per: per, Bindings: ptr.To[int32](2), WarnAt: warnAt}
	}
	one, other := instance("one", "a"), instance("other", "b")
	for name, row := range map[string]struct {
		policies []*v1alpha1.PlacementPolicy
		binds    []*v1alpha1.ServiceInstance
		want     []string // for each: empty, a warning, or the beginning of a refusal
	}{
		"no quota":              {[]*v1alpha1.PlacementPolicy{policy("q", nil, nil)}, []*v1alpha1.ServiceInstance{one, one, one}, []string{"", "", ""}},
		"a quota of others":     {[]*v1alpha1.PlacementPolicy{policy("q", &v1alpha1.Quota{Per: v1alpha1.ScopeSpace, Instances: ptr.To[int32](0)}, nil)}, []*v1alpha1.ServiceInstance{one}, []string{""}},
		"in a space":            {[]*v1alpha1.PlacementPolicy{policy("q", two(v1alpha1.ScopeSpace, 100), nil)}, []*v1alpha1.ServiceInstance{one, other, one, one}, []string{"", "", "policy q allows each space 2 bindings: 2 exist", "The policy q allows each space 2 bindings; 2 exist"}},
		"in an organization":    {[]*v1alpha1.PlacementPolicy{policy("q", two(v1alpha1.ScopeOrganization, 50), nil)}, []*v1alpha1.ServiceInstance{one, other, one}, []string{"policy q allows each organization 2 bindings: 1 exist", "", "The policy q allows each organization 2 bindings; 2 exist"}},
		"of another plan":       {[]*v1alpha1.PlacementPolicy{policy("q", two(v1alpha1.ScopeSpace, 100), func(p *v1alpha1.PlacementPolicySpec) { p.Match.Plans = []string{"another"} })}, []*v1alpha1.ServiceInstance{one, one, one}, []string{"", "", ""}},
		"the first that is hit": {[]*v1alpha1.PlacementPolicy{policy("b", two(v1alpha1.ScopePlatform, 51), nil), policy("a", two(v1alpha1.ScopeOrganization, 100), nil)}, []*v1alpha1.ServiceInstance{one, one, one}, []string{"", "policy a allows each organization 2 bindings: 2 exist; policy b allows each platform 2 bindings: 2 exist", "The policy a"}},
	} {
		t.Run(name, func(t *testing.T) {
			usage := NewUsage(clock.RealClock{})
			close(usage.counted)
			for _, p := range row.policies {
				usage.see(p)
			}
			for i, of := range row.binds {
				b := &v1alpha1.ServiceBinding{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("b", i)}, Spec: v1alpha1.ServiceBindingSpec{Platform: "p", InstanceName: of.Name, PlanID: planSmall}}
				err := usage.admitBinding(t.Context(), &Platform{Name: "p", Limits: Limits{Instances: 9, Bytes: 1 << 20}}, b, of)
				got := b.Annotations[v1alpha1.AnnotationNearQuota]
				if refused := (*Error)(nil); errors.As(err, &refused) {
					got = refused.Description
				}
				if want := row.want[i]; want == "" && got != "" || !strings.HasPrefix(got, want) {
					t.Errorf("bind %d: %q, want %q", i, got, want)
				}
			}
			for _, p := range row.policies {
				usage.drop(p)
			}
			if len(usage.quotas.policies) != 0 {
				t.Error("a policy that was deleted still counts")
			}
		})
	}
}

// A failed binding that is made anew counts once, and what the cache never shows does not count for good.
func TestQuotasOfBindingsThatGo(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Now())
	usage := NewUsage(now)
	close(usage.counted)
	of, platform := instanceOf("p", "i", 0), &Platform{Name: "p", Limits: Limits{Instances: 9, Bytes: 1 << 20}}
	policy := &v1alpha1.PlacementPolicy{Spec: v1alpha1.PlacementPolicySpec{Quota: &v1alpha1.Quota{Per: v1alpha1.ScopePlatform, Bindings: ptr.To[int32](1), WarnAt: 100}}}
	usage.see(policy)
	usage.see(of)
	bind := func(name string) error {
		b := &v1alpha1.ServiceBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ServiceBindingSpec{Platform: "p", InstanceName: "i", PlanID: planSmall}}
		return usage.admitBinding(t.Context(), platform, b, of)
	}
	for _, name := range []string{"b", "b"} {
		if err := bind(name); err != nil {
			t.Errorf("the only one: %v", err)
		}
	}
	if err := bind("more"); err == nil {
		t.Error("another one is admitted")
	}
	now.SetTime(now.Now().Add(unseenFor + 1))
	if err := bind("more"); err != nil {
		t.Errorf("after the first has gone: %v", err)
	}
	usage.drop(of)
	if held := usage.quotas.held; len(held) != 0 {
		t.Errorf("bindings of an instance that has gone are held: %v", held)
	}
	usage.see(of)
	if err := bind("third"); err == nil {
		t.Error("the bindings of an instance that is seen late do not count")
	}
}
