package broker

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"

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
	in, err := ctrlcache.New(hub, ctrlcache.Options{Scheme: scheme(t), DefaultNamespaces: map[string]ctrlcache.Config{namespace: {}}})
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
	instance := func(name string) *v1alpha1.ServiceInstance { return instanceOf(of.Name, name, 0) }
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

// An object weighs what was sent to create it, and 4 KiB.
func TestWeigh(t *testing.T) {
	sent := func(bytes int) *runtime.RawExtension { return &runtime.RawExtension{Raw: make([]byte, bytes)} }
	identity := &v1alpha1.OriginatingIdentity{Value: *sent(1000)}
	i := &v1alpha1.ServiceInstance{Spec: v1alpha1.ServiceInstanceSpec{
		Platform: "p", OriginatingIdentity: identity, Desired: v1alpha1.InstanceState{Parameters: sent(1), Context: sent(10)},
	}}
	if got, want := weigh(i).Limits, (Limits{Instances: 1, Bytes: objectBytes + 1011}); got != want {
		t.Errorf("an instance weighs %+v, want %+v", got, want)
	}
	b := &v1alpha1.ServiceBinding{Spec: v1alpha1.ServiceBindingSpec{
		Platform: "p", OriginatingIdentity: identity, Parameters: sent(1), Context: sent(10), BindResource: sent(100),
	}}
	if got, want := weigh(b).Limits, (Limits{Bytes: objectBytes + 1111}); got != want {
		t.Errorf("a binding weighs %+v, want %+v", got, want)
	}
	if got, want := weigh(&v1alpha1.ServiceBinding{}).Limits, (Limits{Bytes: objectBytes}); got != want {
		t.Errorf("one without anything weighs %+v, want %+v", got, want)
	}
}

// instanceOf returns an instance of a platform with parameters of so many bytes.
func instanceOf(platform, name string, bytes int) *v1alpha1.ServiceInstance {
	i := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ServiceInstanceSpec{Platform: platform}}
	i.Spec.Desired.Parameters = &runtime.RawExtension{Raw: make([]byte, bytes)}
	return i
}

// A platform may keep as much as its limits, and whatever there is may shrink, or stay as it is, even above them.
func TestLimitsMayBeReached(t *testing.T) {
	usage := NewUsage(clock.RealClock{})
	close(usage.counted)
	usage.put(instanceOf("p", "a", 100))
	admits := func(limits Limits, i *v1alpha1.ServiceInstance) bool {
		return usage.admit(t.Context(), &Platform{Name: "p", Limits: limits}, i) == nil
	}
	const both = 2*objectBytes + 300
	for _, row := range []struct {
		name   string
		limits Limits
		of     *v1alpha1.ServiceInstance
		want   bool
	}{
		{"all bytes", Limits{2, both}, instanceOf("p", "b", 200), true},
		{"one byte too many", Limits{2, both - 1}, instanceOf("p", "b", 200), false},
		{"all instances", Limits{2, both}, instanceOf("p", "b", 0), true},
		{"one instance too many", Limits{1, both}, instanceOf("p", "b", 0), false},
		{"growing up to the limit", Limits{1, objectBytes + 200}, instanceOf("p", "a", 200), true},
		{"growing beyond it", Limits{1, objectBytes + 199}, instanceOf("p", "a", 200), false},
		{"staying above it", Limits{0, 1}, instanceOf("p", "a", 100), true},
		{"shrinking above it", Limits{0, 1}, instanceOf("p", "a", 99), true},
	} {
		if got := admits(row.limits, row.of); got != row.want {
			t.Errorf("%s: admitted is %t", row.name, got)
		}
	}
}

// The count follows the cache: it has an object as the cache shows it, until the cache shows its end.
func TestUsageFollowsTheCache(t *testing.T) {
	usage := NewUsage(clock.RealClock{})
	want := func(when string, instances, bytes int64) {
		t.Helper()
		if got := usage.platforms["p"]; got != (Limits{instances, bytes}) {
			t.Errorf("%s: %+v are counted, want %d, %d", when, got, instances, bytes)
		}
	}
	usage.put(instanceOf("p", "a", 100))
	usage.put(instanceOf("p", "a", 200))
	want("what is created is counted once", 1, objectBytes+100)
	usage.see(instanceOf("p", "a", 300))
	want("what the cache shows counts", 1, objectBytes+300)
	usage.withdraw(instanceOf("p", "a", 300))
	want("it could not be created again", 1, objectBytes+300)
	usage.put(instanceOf("p", "b", 1))
	usage.withdraw(instanceOf("p", "b", 1))
	want("what could not be created", 1, objectBytes+300)
	usage.see(instanceOf("p", "c", 0))
	usage.drop(instanceOf("p", "c", 0))
	want("what was deleted", 1, objectBytes+300)
	usage.drop(cache.DeletedFinalStateUnknown{Key: "a", Obj: instanceOf("p", "a", 0)})
	want("what was deleted while the cache did not look", 0, 0)
	if len(usage.objects)+len(usage.unseen) != 0 {
		t.Errorf("it remembers %v, %v", usage.objects, usage.unseen)
	}
}
