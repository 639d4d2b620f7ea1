package broker

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
)

// API servers end watches at any time. Changes while there is no watch are not missed.
func TestAwaitAfterTheEndOfAWatch(t *testing.T) {
	f := newFixture(t)
	namespace := hubtest.Namespace(t)
	done := func(p *v1alpha1.Provider) bool { return p.Annotations["done"] == "yes" }
	change := func(t *testing.T, p *v1alpha1.Provider) {
		changed := p.DeepCopy()
		changed.Annotations = map[string]string{"done": "yes"}
		must(t, f.hub.Update(t.Context(), changed))
	}
	remove := func(t *testing.T, p *v1alpha1.Provider) { must(t, f.hub.Delete(t.Context(), p.DeepCopy())) }
	for name, row := range map[string]struct {
		meanwhile []func(*testing.T, *v1alpha1.Provider)
		want      error
	}{
		"changed":  {[]func(*testing.T, *v1alpha1.Provider){change}, nil},
		"deleted":  {[]func(*testing.T, *v1alpha1.Provider){remove}, errDeleted},
		"replaced": {[]func(*testing.T, *v1alpha1.Provider){remove, recreate(f)}, errDeleted},
	} {
		t.Run(name, func(t *testing.T) {
			p := providerOf(namespace, name)
			must(t, f.hub.Create(t.Context(), p))
			watches := 0
			hub := interceptor.NewClient(f.hub, interceptor.Funcs{Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
				if watches++; watches > 1 {
					return c.Watch(ctx, list, options...)
				}
				for _, step := range row.meanwhile {
					step(t, p)
				}
				ended := watch.NewFake()
				ended.Stop()
				return ended, nil
			}})
			last, err := await(t.Context(), hub, p, &v1alpha1.ProviderList{}, done)
			if !errors.Is(err, row.want) {
				t.Errorf("%v, want %v", err, row.want)
			}
			if row.want == nil && !done(last) {
				t.Error("it returns before the change")
			}
		})
	}
}

// A request that found an object deletes that object, and not another one that has its name since.
func TestDeleteSparesASuccessorOfTheSameName(t *testing.T) {
	f := newFixture(t)
	old := providerOf(hubtest.Namespace(t), "p")
	must(t, f.hub.Create(t.Context(), old))
	must(t, f.hub.Delete(t.Context(), old.DeepCopy()))
	recreate(f)(t, old)

	s := &server{Options: Options{Client: f.hub}}
	c := &call{Request: httptest.NewRequest(http.MethodDelete, "/", nil)}
	if err := s.delete(c, old); err != nil {
		t.Error(err)
	}
	var successor v1alpha1.Provider
	if err := f.hub.Get(t.Context(), client.ObjectKeyFromObject(old), &successor); err != nil || successor.UID == old.UID {
		t.Errorf("the successor: %v", err)
	}
	if err := s.delete(c, &successor); err != nil {
		t.Error(err)
	}
	if err := s.delete(c, &successor); err != nil {
		t.Errorf("deleted a second time: %v", err)
	}
}

func providerOf(namespace, name string) *v1alpha1.Provider {
	return &v1alpha1.Provider{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.ProviderSpec{Identified: v1alpha1.Identified{DID: "did:web:provider.example"}},
	}
}

// recreate creates another object of the same name.
func recreate(f *fixture) func(*testing.T, *v1alpha1.Provider) {
	return func(t *testing.T, p *v1alpha1.Provider) {
		must(t, f.hub.Create(t.Context(), providerOf(p.Namespace, p.Name)))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// What a watch may end with, other than the change that is awaited.
func TestAwaitWithoutAChange(t *testing.T) {
	defect, resource := errors.New("defect"), schema.GroupResource{Resource: "providers"}
	gone := &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonGone, Message: "old"}}
	changed := providerOf("hub", "p")
	changed.Annotations = map[string]string{"done": "yes"}
	for name, row := range map[string]struct {
		watch  error
		events []watch.Event
		get    error
		hangUp bool // while it watches
		want   string
	}{
		"the version has expired":       {watch: apierrors.NewResourceExpired("old")},
		"the version is gone":           {watch: gone},
		"an error in the watch":         {events: []watch.Event{{Type: watch.Error, Object: &metav1.Status{}}}},
		"a bookmark of another type":    {events: []watch.Event{{Type: watch.Bookmark, Object: &v1alpha1.PeeringList{}}, {Type: watch.Modified, Object: changed}}, get: defect},
		"the watch fails":               {watch: defect, want: "watch p: defect"},
		"the watch fails at the end":    {watch: defect, hangUp: true, want: context.Canceled.Error()},
		"it cannot be read":             {watch: gone, get: defect, want: "read p: defect"},
		"it is not there any more":      {watch: gone, get: apierrors.NewNotFound(resource, "p"), want: errDeleted.Error()},
		"the caller hangs up meanwhile": {watch: nil, hangUp: true, want: context.Canceled.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			hub := interceptor.NewClient(nil, interceptor.Funcs{
				Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
					if row.hangUp {
						hangUp()
					}
					events := watch.NewFakeWithChanSize(len(row.events), false)
					for _, e := range row.events {
						events.Action(e.Type, e.Object)
					}
					return events, row.watch
				},
				Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
					changed.DeepCopyInto(o.(*v1alpha1.Provider))
					return row.get
				},
			})
			last, err := await(ctx, hub, providerOf("hub", "p"), &v1alpha1.ProviderList{}, func(p *v1alpha1.Provider) bool { return p.Annotations["done"] == "yes" })
			if row.want == "" && (err != nil || last.Annotations["done"] != "yes") || row.want != "" && (err == nil || err.Error() != row.want) {
				t.Errorf("%v, %v; want %q", last.Annotations, err, row.want)
			}
		})
	}
}
