package broker

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
)

func asSmall(r *http.Request) { r.Header.Set("Authorization", "Bearer token-of-small") }

// TestLimits: a platform keeps no more on the hub than its own limits allow.
func TestLimits(t *testing.T) {
	usage := NewUsage(clock.RealClock{})
	f := newFixture(t, func(o *Options) { o.Usage = usage })
	count(t, usage, hubtest.Start(t).Config, f.namespace)
	provision := func(id string, fields ...any) answer {
		return f.do("PUT", instancePath(id), order(planSmall, fields...), asSmall)
	}
	for _, id := range []string{"one", "two"} {
		f.finished(id, f.want(http.StatusAccepted, "PUT", instancePath(id), order(planSmall), asSmall).operation(), asSmall)
	}
	usage.awaitSeen(f)
	refused := f.refused(http.StatusBadRequest, "LimitReached", "PUT", instancePath("three"), order(planSmall), asSmall)
	if !strings.Contains(refused.body["description"].(string), "2 service instances") {
		t.Errorf("description %q does not say which limit", refused.body["description"])
	}
	f.want(http.StatusOK, "PUT", instancePath("two"), order(planSmall), asSmall) // it exists already
	f.provisioned("three", planSmall)                                            // another platform's

	f.want(http.StatusAccepted, "DELETE", instancePath("one")+"&"+deletion(planSmall), nil, asSmall)
	f.eventually("room for another instance", func() (answer, bool) {
		a := provision("three")
		return a, a.status == http.StatusAccepted
	})

	long := object{"name": strings.Repeat("x", 20<<10)}
	update := func(context object) answer {
		return f.do("PATCH", "/v2/service_instances/two", patch("context", context), asSmall)
	}
	if a := update(long); a.status != http.StatusOK {
		t.Fatalf("a context of 20 KiB: %s", a)
	}
	f.refused(http.StatusBadRequest, "LimitReached", "PUT", bindingPath("two", "b"), binding(planSmall, "context", long), asSmall)
	if a := update(object{"name": "short"}); a.status != http.StatusOK {
		t.Fatalf("a shorter context: %s", a)
	}
	f.eventually("room for a binding", func() (answer, bool) {
		a := f.do("PUT", bindingPath("two", "b"), binding(planSmall), asSmall)
		return a, a.status == http.StatusCreated
	})
}

// count counts the objects on the hub, as the manager's cache has them.
func count(t *testing.T, usage *Usage, hub *rest.Config, namespace string) {
	t.Helper()
	in, err := cache.New(hub, cache.Options{Scheme: scheme(t), DefaultNamespaces: map[string]cache.Config{namespace: {}}})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	go func() { ended <- in.Start(t.Context()) }()
	go func() { ended <- usage.Follow(t.Context(), in) }()
	t.Cleanup(func() {
		for range cap(ended) {
			if err := <-ended; err != nil && context.Cause(t.Context()) == nil {
				t.Error(err)
			}
		}
	})
}

// awaitSeen waits until the cache has shown everything that was created.
func (u *Usage) awaitSeen(f *fixture) {
	f.t.Helper()
	f.eventually("the cache", func() (answer, bool) {
		u.mu.Lock()
		defer u.mu.Unlock()
		return answer{}, len(u.unseen) == 0
	})
}

// TestUsageOfWhatTheCacheNeverShows: what was created and deleted while the cache did not look
// is not counted for good.
func TestUsageOfWhatTheCacheNeverShows(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Now())
	usage := NewUsage(now)
	close(usage.counted)
	of := &Platform{Name: "small", Limits: Limits{Instances: 2, Bytes: 1 << 20}}
	instance := func(name string) *v1alpha1.ServiceInstance {
		i := &v1alpha1.ServiceInstance{Spec: v1alpha1.ServiceInstanceSpec{Platform: of.Name}}
		i.Name = name
		return i
	}
	usage.put(instance("gone"))
	usage.put(instance("there"))
	if err := usage.admit(t.Context(), of, instance("new")); err == nil {
		t.Error("one too many was admitted")
	}
	usage.see(instance("there"))
	now.SetTime(now.Now().Add(unseenFor + time.Second))
	if err := usage.admit(t.Context(), of, instance("new")); err != nil {
		t.Errorf("the one that is gone still counts: %v", err)
	}
	usage.put(instance("new"))
	if err := usage.admit(t.Context(), of, instance("newer")); err == nil {
		t.Error("one too many was admitted after that")
	}
}

// TestNothingIsAdmittedBeforeEverythingIsCounted: a limit holds from the start.
func TestNothingIsAdmittedBeforeEverythingIsCounted(t *testing.T) {
	usage := NewUsage(clock.RealClock{})
	of := &Platform{Name: "small", Limits: Limits{Instances: 2, Bytes: 1 << 20}}
	i := &v1alpha1.ServiceInstance{Spec: v1alpha1.ServiceInstanceSpec{Platform: of.Name}}

	gone, leave := context.WithCancel(t.Context())
	leave()
	var refused *Error
	if err := usage.admit(gone, of, i); !errors.As(err, &refused) || refused.Status != http.StatusServiceUnavailable || refused.RetryAfter == 0 {
		t.Errorf("before anything is counted: %v", err)
	}
	admitted := make(chan error, 1)
	go func() { admitted <- usage.admit(t.Context(), of, i) }()
	close(usage.counted)
	if err := <-admitted; err != nil {
		t.Errorf("when everything is counted: %v", err)
	}
	for range 100 {
		if err := usage.admit(gone, of, i); err != nil {
			t.Fatalf("when everything is counted, for a client that has hung up: %v", err)
		}
	}
}

func TestWhatIsStoredOfARequestIsBounded(t *testing.T) {
	f := newFixture(t)
	half := object{"a": strings.Repeat("x", 40<<10)}
	f.want(http.StatusAccepted, "PUT", instancePath("i"), order(planSmall, "context", half))
	a := f.refused(http.StatusRequestEntityTooLarge, "RequestTooLarge", "PUT", instancePath("j"), order(planSmall, "context", half, "parameters", half))
	if !strings.Contains(a.body["description"].(string), "context and parameters") {
		t.Errorf("description %q", a.body["description"])
	}
	f.refused(http.StatusRequestEntityTooLarge, "RequestTooLarge", "PUT", bindingPath("i", "b"), binding(planSmall, "context", half, "bind_resource", half))
	f.refused(http.StatusRequestEntityTooLarge, "RequestTooLarge", "PATCH", instancePath("i"), patch("context", half, "parameters", half))
}
