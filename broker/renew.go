package broker

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// renewPatience is how long a fetch waits for new credentials.
const renewPatience = 5 * time.Second

// renewed returns the binding to show, with new credentials if the present ones are past
// half of their lifetime. The controller issues them. If that takes too long, for instance
// because a cluster does not answer, renewed returns the present ones, and a later fetch
// gets the new ones.
func (s *server) renewed(c *call, b *v1alpha1.ServiceBinding) *v1alpha1.ServiceBinding {
	if !b.WantsRenewal(s.Clock.Now()) {
		return b
	}
	latest, err := s.renew(c, b)
	if err != nil {
		s.Logger.WarnContext(c.Context(), "credentials are not renewed yet", "binding", b.Name, "expires", b.Status.ExpiresAt, "error", err)
		return b
	}
	return latest
}

// renew asks for new credentials and waits for them. Concurrent fetches share one request.
// If the process is killed before the write, the next fetch asks again.
func (s *server) renew(c *call, b *v1alpha1.ServiceBinding) (*v1alpha1.ServiceBinding, error) {
	ctx, cancel := context.WithTimeout(c.Context(), renewPatience)
	defer cancel()
	asked := b.DeepCopy()
	if !asked.RenewalAsked() {
		asked.AskRenewal()
		if err := s.Client.Patch(ctx, asked, client.MergeFrom(b)); err != nil {
			return nil, fmt.Errorf("ask for new credentials: %w", err)
		}
	}
	latest, err := await(ctx, s.Client, asked, &v1alpha1.ServiceBindingList{}, func(b *v1alpha1.ServiceBinding) bool {
		return b.DeletionTimestamp != nil || !b.RenewalAsked()
	})
	if err != nil {
		return nil, fmt.Errorf("wait for new credentials: %w", err)
	}
	return latest, nil
}
