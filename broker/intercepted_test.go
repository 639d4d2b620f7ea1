package broker

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// intercepted makes the broker wait for nothing that it may answer later, and use a client with these functions.
func intercepted(funcs interceptor.Funcs) func(*Options) {
	return func(o *Options) {
		o.BindWait = 0
		o.Client = interceptor.NewClient(o.Client, funcs)
	}
}

// unlock lets a binding go that has been deleted, whatever else is written to it.
func (f *fixture) unlock(binding *v1alpha1.ServiceBinding) {
	f.t.Helper()
	unlocked := binding.DeepCopy()
	unlocked.Finalizers = nil
	if err := f.hub.Patch(context.Background(), unlocked, client.MergeFrom(binding)); err != nil {
		f.t.Error(err)
	}
}

// A bind that finds a failed one, which is slow to go, waits for its end and then for its own. Both waits end when the
// request is due.
func TestABindIsDueOnce(t *testing.T) {
	request, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	var f *fixture
	var ends []time.Time
	f = newFixture(t, intercepted(interceptor.Funcs{
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
			end, _ := ctx.Deadline()
			ends = append(ends, end)
			watched, err := c.Watch(ctx, list, options...)
			if len(ends) == 1 {
				f.unlock(f.bindingOf("i", "b"))
			} else {
				hangUp()
			}
			return watched, err
		},
	}))
	f.provisioned("i", planSmall)
	f.fake.does("b", fail)
	f.want(http.StatusAccepted, "PUT", bindingPath("i", "b")+"?accepts_incomplete=true", binding(planSmall))
	f.eventually("the bind to fail", func() (answer, bool) {
		last := f.do("GET", bindingPath("i", "b")+"/last_operation", nil)
		return last, last.body["state"] == "failed"
	})
	f.fake.does("b", hold)
	f.doWith(request, "PUT", bindingPath("i", "b"), binding(planSmall))
	if len(ends) != 2 || ends[0].IsZero() || !ends[0].Equal(ends[1]) {
		t.Errorf("the waits end at %v, want two that end together", ends)
	}
}

// An unbind whose binding has gone, and has a successor of the same name, is at its end.
func TestAnUnbindSparesASuccessorOfTheSameName(t *testing.T) {
	var f *fixture
	f = newFixture(t, intercepted(interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			if err := c.Delete(ctx, o, options...); err != nil {
				return err
			}
			deleted := f.bindingOf("i", "b")
			f.unlock(deleted)
			return c.Create(ctx, &v1alpha1.ServiceBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: deleted.Namespace, Name: deleted.Name}, Spec: deleted.Spec,
			})
		},
	}))
	f.provisioned("i", planSmall)
	f.fake.does("b", hold)
	f.want(http.StatusAccepted, "PUT", bindingPath("i", "b")+"?accepts_incomplete=true", binding(planSmall))
	f.want(http.StatusOK, "DELETE", bindingPath("i", "b")+"?accepts_incomplete=true&"+deletion(planSmall), nil)
	if b := f.bindingOf("i", "b"); b == nil || b.DeletionTimestamp != nil {
		t.Errorf("the successor is %v", b)
	}
}

// A deprovision that is over when the hub answers, maybe with a successor of the same name, is answered so.
func TestADeprovisionThatIsOverAtOnce(t *testing.T) {
	for name, succeeded := range map[string]bool{"nothing": false, "a successor": true} {
		t.Run(name, func(t *testing.T) {
			var f *fixture
			f = newFixture(t, intercepted(interceptor.Funcs{
				Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
					must(t, c.Delete(ctx, o, options...))
					deleted := f.instance("cf-eu", "i")
					unlocked := deleted.DeepCopy()
					unlocked.Finalizers = nil
					must(t, c.Patch(ctx, unlocked, client.MergeFrom(deleted)))
					if succeeded {
						return c.Create(ctx, &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Namespace: deleted.Namespace, Name: deleted.Name}, Spec: deleted.Spec})
					}
					return nil
				},
			}))
			f.provisioned("i", planSmall)
			f.fake.does("i", hold)
			if a := f.want(http.StatusOK, "DELETE", instancePath("i")+"&"+deletion(planSmall), nil); string(a.raw) != "{}" {
				t.Errorf("got %s", a)
			}
		})
	}
}

// A failed provision that the hub does not let start again is not answered as if it did.
func TestAFailedProvisionThatCannotStartAgain(t *testing.T) {
	f := newFixture(t, intercepted(interceptor.Funcs{
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
			return apierrors.NewServiceUnavailable("the hub is away")
		},
	}))
	f.fake.does("i", fail)
	first := f.want(http.StatusAccepted, "PUT", instancePath("i"), order(planSmall))
	f.finished("i", first.operation())
	f.refused(http.StatusServiceUnavailable, "Unavailable", "PUT", instancePath("i"), order(planSmall))
}

// A bind waits for BindWait if the platform can poll, and for BindTimeout if it cannot; by default for less than the minute
// after which platforms give up.
func TestHowLongABindWaits(t *testing.T) {
	for name, row := range map[string]struct {
		wait, timeout time.Duration
		query         string
		want          time.Duration
	}{
		"for an answer":             {time.Minute, time.Hour, "", time.Hour},
		"before it is polled":       {time.Minute, time.Hour, "?accepts_incomplete=true", time.Minute},
		"before it is polled, late": {time.Hour, time.Minute, "?accepts_incomplete=true", time.Minute},
		"by default":                {time.Hour, 0, "", defaultBindTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			request, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			var end time.Time
			f := newFixture(t, intercepted(interceptor.Funcs{
				Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
					end, _ = ctx.Deadline()
					hangUp()
					return c.Watch(ctx, list, options...)
				},
			}), func(o *Options) { o.BindWait, o.BindTimeout = row.wait, row.timeout })
			f.provisioned("i", planSmall)
			f.fake.does("b", hold)
			began := time.Now()
			f.doWith(request, "PUT", bindingPath("i", "b")+row.query, binding(planSmall))
			if end.Before(began.Add(row.want)) || end.After(time.Now().Add(row.want)) {
				t.Errorf("it waits until %s from %s on, want %s", end, began, row.want)
			}
			if !strings.Contains(f.log.String(), "the client hung up") {
				t.Errorf("the log does not say why there is no answer:\n%s", f.log)
			}
		})
	}
}

// A binding that is deleted while its credentials are renewed is not shown any more.
func TestABindingThatIsDeletedWhileItIsRenewed(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Now())
	renewing := ""
	var f *fixture
	f = newFixture(t, intercepted(interceptor.Funcs{
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
			if renewing != "" {
				must(t, f.hub.Delete(ctx, f.bindingOf("i", renewing)))
			}
			return c.Watch(ctx, list, options...)
		},
	}), func(o *Options) { o.Clock = now })
	f.provisioned("i", planSmall)
	for _, id := range []string{"fetched", "bound"} {
		f.want(http.StatusCreated, "PUT", bindingPath("i", id), binding(planSmall))
		f.fake.does(id, hold)
	}
	now.SetTime(now.Now().Add(31 * time.Minute)) // the lifetime is an hour
	renewing = "fetched"
	f.refused(http.StatusNotFound, "NotFound", "GET", bindingPath("i", renewing), nil)
	renewing = "bound"
	f.refused(http.StatusUnprocessableEntity, "ConcurrencyError", "PUT", bindingPath("i", renewing), binding(planSmall))
}

// Whoever deletes or changes an object while a request waits for it makes the request a concurrent one.
func TestWhatHappensToAnObjectThatIsAwaited(t *testing.T) {
	var meanwhile func(ctx context.Context)
	f := newFixture(t, intercepted(interceptor.Funcs{
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
			if meanwhile != nil {
				meanwhile(ctx)
			}
			return c.Watch(ctx, list, options...)
		},
	}))
	f.fake.does("deleted", hold)
	meanwhile = func(ctx context.Context) { must(t, f.hub.Delete(ctx, f.bindingOf("i", "deleted"))) }
	f.provisioned("i", planSmall)
	f.refused(http.StatusUnprocessableEntity, "ConcurrencyError", "PUT", bindingPath("i", "deleted"), binding(planSmall))

	f.fake.does("gone", hold)
	meanwhile = func(ctx context.Context) {
		b := f.bindingOf("i", "gone")
		must(t, f.hub.Delete(ctx, b))
		f.unlock(f.bindingOf("i", "gone"))
	}
	f.refused(http.StatusUnprocessableEntity, "ConcurrencyError", "PUT", bindingPath("i", "gone"), binding(planSmall))

	for id, change := range map[string]func(context.Context, *v1alpha1.ServiceInstance) error{
		"halted": func(ctx context.Context, i *v1alpha1.ServiceInstance) error { return f.hub.Delete(ctx, i) },
		"changed": func(ctx context.Context, i *v1alpha1.ServiceInstance) error {
			i.Spec.Attempt++
			return f.hub.Update(ctx, i)
		},
	} {
		meanwhile = nil
		f.provisioned(id, planSmall)
		f.fake.does(id, hold)
		meanwhile = func(ctx context.Context) { must(t, change(ctx, f.instance("cf-eu", id))) }
		f.refused(http.StatusUnprocessableEntity, "ConcurrencyError", "PATCH", instancePath(id), patch("context", object{"instance_name": "a"}))
	}
}
