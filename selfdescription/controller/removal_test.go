package controller

import (
	"context"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// names returns the names of all credentials of the hub, sorted.
func (b *desk) names() (names []string) {
	b.Helper()
	var list v1alpha1.SelfDescriptionList
	if err := b.hub.List(b.Context(), &list); err != nil {
		b.Fatal(err)
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return names
}

// endedAtStart returns a credential that a provider presented and that ends at the start.
func endedAtStart(name string, change func(*v1alpha1.SelfDescription)) *v1alpha1.SelfDescription {
	sd := &v1alpha1.SelfDescription{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name)},
		Spec:       v1alpha1.SelfDescriptionSpec{Credential: name, Presenter: v1alpha1.Presenter{Provider: "eins"}},
		Status:     v1alpha1.SelfDescriptionStatus{State: v1alpha1.CredentialExpired, ValidUntil: apiTime(start)},
	}
	change(sd)
	return sd
}

func TestWhatWasPresentedIsRemovedLongAfterItsEnd(t *testing.T) {
	b := newDesk(t)
	for name, change := range map[string]func(*v1alpha1.SelfDescription){
		"a-providers":  func(*v1alpha1.SelfDescription) {},
		"b-consumers":  func(sd *v1alpha1.SelfDescription) { sd.Spec.Presenter = v1alpha1.Presenter{Consumer: "eins"} },
		"c-withdrawn":  func(sd *v1alpha1.SelfDescription) { sd.Spec.Revoked = true },
		"d-ends-later": func(sd *v1alpha1.SelfDescription) { sd.Status.ValidUntil = apiTime(start.Add(day)) },
		"e-endless":    func(sd *v1alpha1.SelfDescription) { sd.Status.ValidUntil = nil },
		"f-imported":   func(sd *v1alpha1.SelfDescription) { sd.Spec.Legacy = true },
		"g-brokers":    func(sd *v1alpha1.SelfDescription) { sd.Spec.Presenter = v1alpha1.Presenter{} },
		"h-measured":   func(sd *v1alpha1.SelfDescription) { sd.Labels = map[string]string{v1alpha1.LabelCluster: "fra"} },
	} {
		if err := b.hub.Create(t.Context(), endedAtStart(name, change)); err != nil {
			t.Fatal(err)
		}
	}
	r := &removal{Options: b.Options, hub: b.hub}
	kept := []string{"e-endless", "f-imported", "g-brokers", "h-measured"}
	for _, row := range []struct {
		after   time.Duration
		removed int
		left    []string
	}{
		{0, 0, append([]string{"a-providers", "b-consumers", "c-withdrawn", "d-ends-later"}, kept...)},
		{60*day - time.Second, 0, append([]string{"a-providers", "b-consumers", "c-withdrawn", "d-ends-later"}, kept...)},
		{60 * day, 3, append([]string{"d-ends-later"}, kept...)},
		{60 * day, 0, append([]string{"d-ends-later"}, kept...)},
		{1000 * day, 1, kept},
	} {
		b.clock.SetTime(start.Add(row.after))
		removed, err := r.look(t.Context())
		if err != nil || removed != row.removed {
			t.Errorf("after %s, %d are removed, want %d: %v", row.after, removed, row.removed, err)
		}
		if left := b.names(); !slices.Equal(left, row.left) {
			t.Errorf("after %s, %v are left", row.after, left)
		}
	}
}

// TestWhatIsChangedMeanwhileIsNotRemoved: the cache shows a credential before another write of it.
func TestWhatIsChangedMeanwhileIsNotRemoved(t *testing.T) {
	b := newDesk(t)
	sd := endedAtStart("a", func(*v1alpha1.SelfDescription) {})
	if err := b.hub.Create(t.Context(), sd); err != nil {
		t.Fatal(err)
	}
	hub := interceptor.NewClient(b.hub.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, hub client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			if err := hub.List(ctx, list, o...); err != nil {
				return err
			}
			sd.Labels = map[string]string{"changed": "now"}
			return hub.Update(ctx, sd)
		},
	})
	b.clock.SetTime(start.Add(100 * day))
	if removed, err := (&removal{Options: b.Options, hub: hub}).look(t.Context()); err != nil || removed != 0 || len(b.names()) != 1 {
		t.Errorf("%d are removed: %v", removed, err)
	}
	if removed, err := (&removal{Options: b.Options, hub: b.hub}).look(t.Context()); err != nil || removed != 1 {
		t.Errorf("at the next look, %d are removed: %v", removed, err)
	}
}
