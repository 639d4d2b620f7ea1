package controller

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
)

// labelDeclaration holds the name of the document of the broker's own description that a
// credential was signed from.
const labelDeclaration = "sluice.dev/declaration"

// declaration keeps the self-description of the organisation that runs the broker signed with
// the broker's newest key, and renews it long before it ends.
type declaration struct {
	Options
	hub client.Client
}

// declared returns how long a credential of the broker's own description is valid.
func (o *Options) declared() time.Duration {
	if o.Organisation == nil {
		return 0
	}
	return time.Duration(o.Organisation.ValidDays) * 24 * time.Hour
}

// Start signs until ctx ends. It runs on the leader only.
func (r *declaration) Start(ctx context.Context) error {
	for {
		wait := time.Hour
		if err := r.look(ctx); err != nil {
			log.FromContext(ctx).Error(err, "The broker's own description")
			wait = time.Second
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// look signs each document that is not signed yet, not signed with the newest key, or valid for
// less than half of its lifetime. Then it removes the credentials that these replace.
func (r *declaration) look(ctx context.Context) error {
	signer, err := r.signer(ctx, r.hub)
	if err != nil {
		return err
	}
	now := r.Clock.Now()
	for _, document := range r.Organisation.Documents(now) {
		var stored v1alpha1.SelfDescriptionList
		err := r.hub.List(ctx, &stored, client.InNamespace(r.Namespace), client.MatchingLabels{labelDeclaration: document.Name})
		if err != nil {
			return fmt.Errorf("list %s: %w", document.Name, err)
		}
		good := false
		for i := range stored.Items {
			c, err := selfdescription.Parse(stored.Items[i].Spec.Credential)
			good = good || err == nil && c.KeyID == signer.KeyID() && c.ValidUntil.Sub(now) > r.declared()/2
		}
		if good {
			continue
		}
		compact, err := signer.Credential(document.Document)
		if err != nil {
			return fmt.Errorf("sign %s: %w", document.Name, err)
		}
		err = r.hub.Create(ctx, &v1alpha1.SelfDescription{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: r.Namespace, Name: v1alpha1.SelfDescriptionName(selfdescription.DigestOf(compact)),
				Labels: map[string]string{labelDeclaration: document.Name},
			},
			Spec: v1alpha1.SelfDescriptionSpec{Credential: compact},
		})
		if err != nil {
			return fmt.Errorf("store %s: %w", document.Name, err)
		}
		for i := range stored.Items {
			if err := r.hub.Delete(ctx, &stored.Items[i]); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("remove the %s before it: %w", document.Name, err)
			}
		}
	}
	return nil
}
