package server

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
)

var errForbidden = &Error{http.StatusForbidden, "A credential may be withdrawn by its issuer, or by whom it is about if they presented it, " +
	"with a presentation of that one alone. The broker's operator can withdraw any, with `sluice sd revoke`."}

// atomically makes a change that reads an object from the hub itself and writes it. It repeats
// the change, a few times within about 50 ms, when others write the object in between, and
// answers 409 if they still do.
func atomically(change func() error) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, change)
	if apierrors.IsConflict(err) {
		return &Error{http.StatusConflict, "Others are changing the same at this moment; repeat the request."}
	}
	return err
}

// right is the access of a provider to a credential, by its relation to it.
type right int

// Rights, in ascending order.
const (
	none      right = iota // the caller is no longer a provider
	bystander              // may present the credential
	concerned              // may also withdraw it: it is about the provider or the provider's credentials
	issuer                 // signed it
)

// right returns the right of a provider to a credential. A label or a certification is about
// the providers whose credentials it names by digest.
func (s *server) right(ctx context.Context, c *selfdescription.Credential, provider string) (right, error) {
	did, known := s.Book.Picture().Provider(provider)
	switch {
	case !known:
		return none, nil
	case c.Issuer == did:
		return issuer, nil
	case selfdescription.Owns(did, c.Subject):
		return concerned, nil
	}
	for _, key := range c.Concerns() {
		digest, err := selfdescription.ParseSRI(key)
		if err != nil {
			continue // an id, which anybody can write
		}
		named := &v1alpha1.SelfDescription{}
		err = s.Hub.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: v1alpha1.SelfDescriptionName(digest)}, named)
		if client.IgnoreNotFound(err) != nil {
			return none, fmt.Errorf("read the credential that another names: %w", err)
		}
		if parsed, unreadable := selfdescription.Parse(named.Spec.Credential); err == nil && unreadable == nil && parsed.Issuer == did {
			return concerned, nil
		}
	}
	return bystander, nil
}

// keep stores a credential for a provider. Its name is its digest, so it is stored once, and
// counts for the clusters of one provider: the first one that presented it, until a provider
// with a higher right presents it.
func (s *server) keep(ctx context.Context, compact, provider string) error {
	sd := &v1alpha1.SelfDescription{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: v1alpha1.SelfDescriptionName(selfdescription.DigestOf(compact))},
		Spec:       v1alpha1.SelfDescriptionSpec{Credential: compact, Provider: provider},
	}
	err := s.Hub.Create(ctx, sd)
	if apierrors.IsAlreadyExists(err) {
		if err = s.notWithdrawn(ctx, s.live(), compact); err == nil {
			err = atomically(func() error { return s.takeOver(ctx, sd) })
		}
	}
	if err != nil {
		return fmt.Errorf("store a credential: %w", err)
	}
	return nil
}

// notWithdrawn refuses a credential that was withdrawn here, because it would have no effect.
func (s *server) notWithdrawn(ctx context.Context, hub client.Reader, compact string) error {
	digest := selfdescription.DigestOf(compact)
	stored := &v1alpha1.SelfDescription{}
	err := hub.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: v1alpha1.SelfDescriptionName(digest)}, stored)
	if err != nil || !stored.Spec.Revoked {
		return client.IgnoreNotFound(err)
	}
	return &Error{http.StatusUnprocessableEntity, fmt.Sprintf(
		"Credential %s (%s) was withdrawn here for good: %s. Its issuer can sign another; leave this one out.", digest.SRI(), stored.Status.Type, stored.Spec.RevokedBecause)}
}

// takeOver makes a stored credential the presenting provider's, if its right is higher than the
// current provider's. A credential that the broker signed cannot be taken over.
func (s *server) takeOver(ctx context.Context, presented *v1alpha1.SelfDescription) error {
	stored := &v1alpha1.SelfDescription{}
	err := s.live().Get(ctx, client.ObjectKeyFromObject(presented), stored)
	if err != nil || stored.Spec.Provider == presented.Spec.Provider {
		return err
	}
	c, err := selfdescription.Parse(presented.Spec.Credential)
	if err != nil || c.Issuer == s.DID {
		return nil
	}
	theirs, err := s.right(ctx, c, stored.Spec.Provider)
	if err != nil {
		return err
	}
	if ours, err := s.right(ctx, c, presented.Spec.Provider); err != nil || ours <= theirs {
		return err
	}
	stored.Spec.Provider = presented.Spec.Provider
	return s.Hub.Update(ctx, stored)
}

// revoke withdraws a credential here. Its issuer may do so, and also the provider that it is
// stored for, if it is about that provider. The request is a presentation of the credential
// with a fresh challenge.
func (s *server) revoke(w http.ResponseWriter, r *http.Request) error {
	sd, err := s.find(r)
	if err != nil {
		return err
	}
	presentation, answer, err := s.read(w, r, selfdescription.OperationRevoke)
	if err != nil {
		return err
	}
	if presentation == nil {
		answer.Description = refused(&answer.Report)
		writeJSON(w, http.StatusUnprocessableEntity, answer)
		return nil
	}
	provider, known := s.Book.Picture().ProviderOf(presentation.Holder)
	if !known || len(presentation.Credentials) != 1 || presentation.Credentials[0] != sd.Spec.Credential {
		return errForbidden
	}
	if err := s.use(r.Context(), provider, presentation.nonce); err != nil {
		return err
	}
	var withdrawn *v1alpha1.SelfDescription
	err = atomically(func() error {
		withdrawn, err = s.withdraw(r.Context(), sd.Name, provider, presentation.Holder)
		return err
	})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, summary(withdrawn))
	return nil
}

// withdraw marks a stored credential as withdrawn by a provider, if that provider may withdraw
// it, and returns it. Withdrawing twice is the same as withdrawing once.
func (s *server) withdraw(ctx context.Context, name, provider, holder string) (*v1alpha1.SelfDescription, error) {
	sd := &v1alpha1.SelfDescription{}
	if err := s.live().Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, sd); err != nil {
		return nil, fmt.Errorf("read a credential: %w", err)
	}
	if may, err := s.mayRevoke(ctx, sd, provider); err != nil {
		return nil, err
	} else if !may {
		return nil, errForbidden
	}
	if sd.Spec.Revoked {
		return sd, nil
	}
	sd.Spec.Revoked, sd.Spec.RevokedBecause = true, "withdrawn by "+holder
	if err := s.Hub.Update(ctx, sd); err != nil {
		return nil, fmt.Errorf("withdraw a credential: %w", err)
	}
	s.Logger.InfoContext(ctx, "a credential was withdrawn", "provider", provider, "credential", name)
	return sd, nil
}

// mayRevoke reports whether a provider may withdraw a credential. Credentials signed by the
// broker, such as measurements of the provider's clusters, may not be withdrawn.
func (s *server) mayRevoke(ctx context.Context, sd *v1alpha1.SelfDescription, provider string) (bool, error) {
	c, err := selfdescription.Parse(sd.Spec.Credential)
	if err != nil || c.Issuer == s.DID {
		return false, nil
	}
	has, err := s.right(ctx, c, provider)
	return has == issuer || has == concerned && sd.Spec.Provider == provider, err
}
