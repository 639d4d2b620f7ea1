package registration

import (
	"context"
	"errors"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/guarded"
	"github.com/sluice-dev/sluice/internal/member"
)

// Newcomers checks the access to clusters that their owners give, and stores it.
type Newcomers struct {
	// Connections to the clusters; they must not be those of a replica that only writes while it leads.
	Connections *member.Connections
	// Store keeps the access.
	Store Store
}

// RefusedError says why the access to a cluster is not taken.
type RefusedError struct {
	// Field of the access that is wrong.
	Field string
	// Why it is wrong, with a remedy.
	Why string
}

func (e *RefusedError) Error() string { return e.Field + ": " + e.Why }

// Take connects to a cluster with the access that its owner gave, stores the access, and writes the reference to it
// into the cluster's spec. It returns the UID of the cluster that has answered. The error is a *RefusedError if the
// owner has to give another access. It sends a few requests, each bounded by 15 seconds.
func (n *Newcomers) Take(ctx context.Context, cluster *v1alpha1.MemberCluster, access member.Kubeconfig) (uid string, err error) {
	kubeconfig, err := access.Marshal()
	if err != nil {
		return "", err
	}
	connection, err := n.Connections.Try(ctx, cluster, kubeconfig)
	if err != nil {
		return "", refused(err)
	}
	defer connection.Close()
	if err := isLeast(ctx, connection); err != nil {
		return "", err
	}
	if cluster.Spec.Access, err = n.Store.Store(ctx, cluster, kubeconfig); err != nil {
		return "", err
	}
	return connection.UID(), nil
}

// isLeast refuses credentials that are not a service account's, or that may do everything: whoever has the hub would
// have that, too.
func isLeast(ctx context.Context, to *member.Connection) error {
	if !strings.HasPrefix(to.Username, "system:serviceaccount:") {
		return &RefusedError{"token", fmt.Sprintf("it is the token of %q; give the one of the service account that `sluice cluster join` makes", to.Username)}
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"},
	}}
	if err := to.Client.Create(ctx, review); err != nil {
		return &RefusedError{"server", "its API server did not answer what Sluice may do there: " + brief(err)}
	}
	if review.Status.Allowed {
		return &RefusedError{"token", fmt.Sprintf("it lets %q do everything; give the one of the service account that `sluice cluster join` makes", to.Username)}
	}
	if to.UID() == "" {
		return &RefusedError{"token", "it may not get the namespace kube-system, by which clusters are told apart; run `sluice cluster join` again"}
	}
	return nil
}

// refused returns what an owner has to change so that Sluice reaches the cluster.
func refused(err error) error {
	failed := (*member.Error)(nil)
	if !errors.As(err, &failed) {
		return err
	}
	foreign := (*guarded.AddressError)(nil)
	switch {
	case errors.As(err, &foreign):
		return &RefusedError{"server", foreign.Error() + ", and the operator of this broker does not allow it: give an address that the broker may reach"}
	case failed.Step == member.StepKubeconfig:
		return &RefusedError{"server", brief(failed.Err)}
	}
	return &RefusedError{"server", brief(failed.Err) + ": it has to be reachable from the broker, with a certificate by ca, and has to accept token"}
}

// brief returns the beginning of an error, part of which a stranger may have written.
func brief(err error) string {
	const most = 300
	text := strings.ToValidUTF8(err.Error(), "")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
