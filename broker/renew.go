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

// renewed is a binding about to be shown, with new credentials if those that it has are past
// half of their life. Its controller issues them; where that takes too long, a cluster being
// away perhaps, the platform gets what there is, and the new ones when it fetches again.
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

// renew asks for new credentials, once for all who fetch meanwhile, and waits for them. A
// wish that is lost by a kill is made again by the next fetch.
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
