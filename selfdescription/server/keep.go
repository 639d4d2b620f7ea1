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
	"github.com/sluice-dev/sluice/selfdescription/trust"
)

var errForbidden = &Error{http.StatusForbidden, "A credential may be withdrawn by its issuer, or by whom it is about if they presented it first, " +
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

// right is the access of a provider or a consumer to a credential, by its relation to it.
type right int

// Rights, in ascending order.
const (
	none      right = iota // the caller is no longer known
	bystander              // may present the credential
	keeper                 // maintains or owns the resource that it is about
	concerned              // may also withdraw it: it is about the presenter or the presenter's credentials
	issuer                 // signed it
)

// right returns the right of a presenter to a credential. A label or a certification is about
// the presenters whose credentials it names by digest: those of the hub, and those in a presentation with it.
func (s *server) right(ctx context.Context, c *selfdescription.Credential, who v1alpha1.Presenter, beside presentedSet) (right, error) {
	did, known := s.Book.Picture().DID(who)
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
		if beside[digest] == did {
			return concerned, nil
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
	if c.IsKeptBy(did) {
		return keeper, nil
	}
	return bystander, nil
}

// keep stores a credential for a provider or a consumer. Its name is its digest, so it is stored once,
// and counts for one of them, for the clusters of one provider for instance: the first that presented it,
// until one with a higher right presents it.
func (s *server) keep(ctx context.Context, compact string, who v1alpha1.Presenter, beside presentedSet) error {
	sd := &v1alpha1.SelfDescription{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: v1alpha1.SelfDescriptionName(selfdescription.DigestOf(compact))},
		Spec:       v1alpha1.SelfDescriptionSpec{Credential: compact, Presenter: who},
	}
	err := s.Hub.Create(ctx, sd)
	if apierrors.IsAlreadyExists(err) {
		err = atomically(func() error { return s.takeOver(ctx, sd, beside) })
	}
	if err != nil {
		return fmt.Errorf("store a credential: %w", err)
	}
	return nil
}

// notWithdrawn refuses a credential that was withdrawn here, in whatever form it is presented, because it would have no
// effect. It goes by the cache: verification finds what is presented while that lags.
func (s *server) notWithdrawn(ctx context.Context, compact string) error {
	withdrawn, err := trust.Withdrawn(ctx, s.Hub, s.Namespace, selfdescription.SignedOf(compact))
	if err != nil || withdrawn == nil {
		return err
	}
	return errWithdrawn(compact, withdrawn)
}

func errWithdrawn(compact string, withdrawn *v1alpha1.SelfDescription) error {
	return &Error{http.StatusUnprocessableEntity, fmt.Sprintf(
		"Credential %s (%s) was withdrawn here for good: %s. Its issuer can sign another; leave this one out.",
		selfdescription.DigestOf(compact).SRI(), withdrawn.Status.Type, withdrawn.Spec.RevokedBecause)}
}

// takeOver makes a stored credential the new presenter's. One that was withdrawn is refused.
func (s *server) takeOver(ctx context.Context, presented *v1alpha1.SelfDescription, beside presentedSet) error {
	stored := &v1alpha1.SelfDescription{}
	err := s.live().Get(ctx, client.ObjectKeyFromObject(presented), stored)
	switch {
	case err != nil:
		return err
	case stored.Spec.Revoked:
		return errWithdrawn(presented.Spec.Credential, stored)
	case stored.Spec.Presenter == presented.Spec.Presenter:
		return nil
	}
	may, err := s.mayTake(ctx, stored, presented.Spec.Presenter, beside)
	if err != nil || !may {
		return err
	}
	stored.Spec.Presenter = presented.Spec.Presenter
	return s.Hub.Update(ctx, stored)
}

// mayTake reports whether a credential that is stored for another presenter becomes that of a new one, whose right has to be
// higher, or whose DID the other one has, too. If neither holds, the error is an *Error: the credential would count for the other
// one only. What the broker signed stays its own, and counts whoever presents it.
func (s *server) mayTake(ctx context.Context, stored *v1alpha1.SelfDescription, who v1alpha1.Presenter, beside presentedSet) (bool, error) {
	c, err := selfdescription.Parse(stored.Spec.Credential)
	if err != nil || c.Issuer == s.DID {
		return false, nil
	}
	before, known := s.Book.Picture().DID(stored.Spec.Presenter)
	if now, _ := s.Book.Picture().DID(who); known && before == now {
		return true, nil
	}
	theirs, err := s.right(ctx, c, stored.Spec.Presenter, nil)
	if err != nil {
		return false, err
	}
	ours, err := s.right(ctx, c, who, beside)
	if err != nil || ours > theirs {
		return err == nil, err
	}
	holder := "another presenter"
	if isPublished(stored) {
		holder = stored.Spec.Presenter.String()
	}
	return false, &Error{http.StatusConflict, fmt.Sprintf("Nothing was taken: credential %s (%s) counts for %s, which presented it before and whom it "+
		"concerns at least as much: leave it out. It becomes yours if you have signed it, or if it is about you: by the id of its subject, the digests of "+
		"your credentials, or the maintainer or owner that it names, with ids that begin with your DID or the URL of its host.",
		selfdescription.DigestOf(stored.Spec.Credential).SRI(), c.Type, holder)}
}

// notAnothers refuses a credential that another presenter keeps. It goes by the cache; keep looks again.
func (s *server) notAnothers(ctx context.Context, compact string, who v1alpha1.Presenter, beside presentedSet) error {
	stored := &v1alpha1.SelfDescription{}
	err := s.Hub.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: v1alpha1.SelfDescriptionName(selfdescription.DigestOf(compact))}, stored)
	if err != nil || stored.Spec.Presenter == who {
		return client.IgnoreNotFound(err)
	}
	_, err = s.mayTake(ctx, stored, who, beside)
	return err
}

// revoke withdraws a credential here. Its issuer may do so, and also the presenter that it is
// stored for, if it is about that one. The request is a presentation of the credential
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
	who, known := s.Book.Picture().PresenterOf(presentation.Holder)
	if !known || len(presentation.Credentials) != 1 || presentation.Credentials[0] != sd.Spec.Credential {
		return errForbidden
	}
	if err := s.use(r.Context(), who, presentation.nonce); err != nil {
		return err
	}
	var withdrawn *v1alpha1.SelfDescription
	err = atomically(func() error {
		withdrawn, err = s.withdraw(r.Context(), sd.Name, who, presentation.Holder)
		return err
	})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, summary(withdrawn))
	return nil
}

// withdraw marks a stored credential as withdrawn by a presenter, if that one may withdraw it,
// and returns it. Withdrawing twice is the same as withdrawing once.
func (s *server) withdraw(ctx context.Context, name string, who v1alpha1.Presenter, holder string) (*v1alpha1.SelfDescription, error) {
	sd := &v1alpha1.SelfDescription{}
	if err := s.live().Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, sd); err != nil {
		return nil, fmt.Errorf("read a credential: %w", err)
	}
	if may, err := s.mayRevoke(ctx, sd, who); err != nil {
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
	s.Logger.InfoContext(ctx, "a credential was withdrawn", "by", who, "credential", name)
	return sd, nil
}

// mayRevoke reports whether a presenter may withdraw a credential. Credentials signed by the
// broker, such as measurements of a provider's clusters, may not be withdrawn.
func (s *server) mayRevoke(ctx context.Context, sd *v1alpha1.SelfDescription, who v1alpha1.Presenter) (bool, error) {
	c, err := selfdescription.Parse(sd.Spec.Credential)
	if err != nil || c.Issuer == s.DID {
		return false, nil
	}
	has, err := s.right(ctx, c, who, nil)
	if err != nil || has != concerned || sd.Spec.Presenter != who {
		return has == issuer, err
	}
	return s.isFirst(ctx, sd, c)
}

// isFirst reports whether no other presenter that may withdraw a credential had a form of it before. A withdrawal holds for
// all forms.
func (s *server) isFirst(ctx context.Context, sd *v1alpha1.SelfDescription, c *selfdescription.Credential) (bool, error) {
	forms, err := trust.Forms(ctx, s.Hub, s.Namespace, c.Signed)
	if err != nil {
		return false, err
	}
	first := v1alpha1.CreatedOf(sd)
	for i := range forms {
		other := &forms[i]
		if its := v1alpha1.CreatedOf(other); other.Spec.Presenter == sd.Spec.Presenter || first.Before(&its) {
			continue
		}
		if theirs, err := s.right(ctx, c, other.Spec.Presenter, nil); err != nil || theirs >= concerned {
			return false, err
		}
	}
	return true, nil
}
