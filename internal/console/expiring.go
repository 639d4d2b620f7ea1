package console

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// expiringWithin is how far ahead the page of what expires looks.
const expiringWithin = 90 * 24 * time.Hour

// expiry is something that ends.
type expiry struct {
	What, Name, Detail string
	// Link of the page with more; empty if there is none.
	Link string
	At   metav1.Time
	// Kind is bad for what has ended, busy for what ends within a week, and good for the rest.
	Kind string
}

func (s *server) expiringPage(c *call) (*page, error) {
	now := s.Clock.Now()
	var all []expiry
	add := func(at *metav1.Time, e expiry) {
		if at == nil || at.Sub(now) > expiringWithin {
			return
		}
		e.At, e.Kind = *at, "good"
		switch left := at.Sub(now); {
		case left <= 0:
			e.Kind = "bad"
		case left < 7*24*time.Hour:
			e.Kind = "busy"
		}
		all = append(all, e)
	}
	for kind, note := range map[client.ObjectList]func(client.Object){
		&v1alpha1.ServiceBindingList{}: func(o client.Object) {
			b := o.(*v1alpha1.ServiceBinding)
			add(b.Status.ExpiresAt, expiry{What: "Credentials of a binding", Name: b.Spec.BindingID, Detail: b.Spec.Platform + ", instance " + b.Spec.InstanceID, Link: Root + "instances/" + b.Spec.InstanceName})
		},
		&v1alpha1.SelfDescriptionList{}: func(o client.Object) {
			d := o.(*v1alpha1.SelfDescription)
			of, by := "provider", d.Spec.Provider
			if d.Spec.Consumer != "" {
				of, by = "consumer", d.Spec.Consumer
			}
			add(d.Status.ValidUntil, expiry{What: "Credential of a " + of, Name: cmp.Or(d.Status.Type, d.Name), Detail: strings.Join(slices.DeleteFunc([]string{by, d.Status.Issuer}, func(t string) bool { return t == "" }), ", issued by ")})
		},
		&v1alpha1.MemberClusterList{}: func(o client.Object) {
			m := o.(*v1alpha1.MemberCluster)
			for _, claim := range m.Status.Claims {
				add(claim.ExpiresAt, expiry{What: "Claim about a cluster", Name: claim.Name + " = " + claim.Value, Detail: m.Name, Link: Root + "clusters/" + m.Name})
			}
		},
	} {
		err := s.each(c.Context(), kind, func(o client.Object) error { note(o); return nil })
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b expiry) int {
		return cmp.Or(a.At.Compare(b.At.Time), strings.Compare(a.What, b.What), strings.Compare(a.Detail, b.Detail), strings.Compare(a.Name, b.Name))
	})
	shown, pages := paged(c, all)
	return &page{Title: "Expiring", template: "expiring", Data: struct {
		Days  int
		All   []expiry
		Pages pager
	}{int(expiringWithin / (24 * time.Hour)), shown, pages}}, nil
}
