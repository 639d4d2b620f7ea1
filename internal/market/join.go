package market

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/access"
)

// Access to a cluster, as its owner gives it.
type Access struct {
	// Server is the https URL of the API server.
	Server string `json:"server"`
	// CA is the PEM bundle that verifies its certificate; none means the system's roots.
	CA string `json:"ca"`
	// TLSServerName is the name in the certificate, if it is not the one in Server.
	TLSServerName string `json:"tls_server_name"`
	// Token of Sluice's service account.
	Token string `json:"token"`
}

// manifest answers with what the owner of a cluster applies to it before it joins. It is the same for everybody.
func (s *server) manifest(c *call) error {
	manifest, err := s.Manifest()
	if err != nil {
		return err
	}
	c.ResponseWriter.Header().Set("Content-Type", "application/yaml")
	_, _ = c.ResponseWriter.Write(manifest) // the client has gone
	return nil
}

// join makes the cluster of whoever has an invitation a member cluster. It is idempotent for one cluster. It takes no
// turn of the provider: strangers must not keep it from writing, above all from withdrawing the invitation.
//
// The invitation is for the first cluster that answers, which is written with optimistic concurrency before the cluster
// is created: of two that come with one invitation, on whatever replica, one joins. It is used up once the cluster is
// created, which carries its id. After a kill in between, the same cluster comes again, and joins.
func (s *server) join(c *call) error {
	invitation, err := s.invitationOf(c)
	if err != nil {
		return err
	}
	var given Access
	if err := c.decode(maxClusterChange, &given); err != nil {
		return err
	}
	if !strings.HasPrefix(given.Server, "https://") || given.Token == "" {
		return badRequest("Body: want server, an https URL, and token.")
	}
	end, err := s.writes.begin(access.Caller{Role: roleInvitation, Name: invitation.ID}, s.Clock.Now())
	if err != nil {
		return err
	}
	defer end()
	p := &v1alpha1.Provider{}
	if err := s.Live.Get(c.Context(), client.ObjectKey{Namespace: s.Namespace, Name: invitation.Provider}, p); err != nil {
		return writeError(err, "provider "+invitation.Provider)
	}
	i, err := invitationIn(p, invitation.ID)
	if err != nil {
		return err
	}
	m := s.invited(p, i)
	joined, err := s.joinedBy(c, i, "") // before anything is sent to it
	switch {
	case err != nil:
		return err
	case i.Used && joined == nil:
		return gone(p, usedUp)
	}
	uid, err := s.Connect(c.Context(), m, given)
	if err != nil {
		return err
	}
	if joined, err = s.joinedBy(c, i, uid); err != nil {
		return err
	}
	status := http.StatusOK
	switch {
	case joined == nil:
		if err := s.add(c, p.Name, m, uid); err != nil {
			return err
		}
		joined, status = m, http.StatusCreated
		s.Logger.InfoContext(c.Context(), "a cluster has joined by an invitation", "provider", p.Name, "cluster", m.Name, "uid", uid)
	case i.UID != uid:
		return gone(p, usedUp)
	}
	if !i.Used {
		if err := s.useUp(c, p.Name, i.ID); err != nil {
			return err
		}
	}
	writeJSON(c.ResponseWriter, status, clusterBodyOf(joined))
	return nil
}

// add creates a cluster that has answered, after the invitation is its own. The error is an *Error if another has it.
func (s *server) add(c *call, provider string, m *v1alpha1.MemberCluster, uid string) error {
	err := s.changeInvitations(c.Context(), provider, func(p *v1alpha1.Provider) error {
		i, err := invitationIn(p, m.Annotations[v1alpha1.AnnotationInvitation])
		switch {
		case err != nil:
			return err
		case i.Used, i.UID != "" && i.UID != uid:
			return gone(p, usedUp)
		}
		i.UID = uid
		return nil
	})
	if err != nil {
		return err
	}
	switch err := s.Hub.Create(c.Context(), m); {
	case apierrors.IsAlreadyExists(err):
		return nameTaken(m.Name)
	case err != nil:
		return writeError(err, "cluster "+m.Name)
	}
	return nil
}

// useUp ends an invitation by which a cluster has joined.
func (s *server) useUp(c *call, provider, id string) error {
	return s.changeInvitations(c.Context(), provider, func(p *v1alpha1.Provider) error {
		if i, err := invitationIn(p, id); err == nil { // or it was withdrawn since: the cluster stays
			i.Used = true
		}
		return nil
	})
}

// invitationOf returns the invitation that a request is sent with. The error is an *Error if it does not hold.
func (s *server) invitationOf(c *call) (*access.Invitation, error) {
	token, err := bearer(c.Request, "an invitation from POST "+prefix+"/invitations")
	if err != nil {
		return nil, err
	}
	invitation, err := s.Tokens.Invited(c.Context(), token)
	if errors.Is(err, access.ErrRefused) {
		return nil, &Error{Status: http.StatusUnauthorized, Code: codeUnauthorized, Description: "Authorization: " + err.Error() + "; ask the provider for another."}
	}
	return invitation, err
}

// usedUp is said of an invitation by which a cluster joins or has joined.
const usedUp = "has been used"

// gone refuses an invitation that once held.
func gone(p *v1alpha1.Provider, why string) *Error {
	return &Error{Status: http.StatusGone, Code: "InvitationGone", Description: "Authorization: the invitation " + why + "; ask " + p.Name + " for another."}
}

// invitationIn returns an invitation of a provider that nobody has withdrawn. The error is an *Error.
func invitationIn(p *v1alpha1.Provider, id string) (*v1alpha1.ClusterInvitation, error) {
	i := slices.IndexFunc(p.Status.Invitations, func(i v1alpha1.ClusterInvitation) bool { return i.ID == id })
	if i < 0 {
		return nil, gone(p, "was withdrawn, or replaced by a later one")
	}
	return &p.Status.Invitations[i], nil
}

// joinedBy returns the cluster that has joined by an invitation; nil if none has. It refuses a name that another cluster
// has, and a cluster that has another name. The error is an *Error then.
func (s *server) joinedBy(c *call, invitation *v1alpha1.ClusterInvitation, uid string) (joined *v1alpha1.MemberCluster, err error) {
	var all v1alpha1.MemberClusterList
	if err := s.Live.List(c.Context(), &all, client.InNamespace(s.Namespace)); err != nil {
		return nil, fmt.Errorf("list member clusters: %w", err)
	}
	for i := range all.Items {
		switch other := &all.Items[i]; {
		case other.Annotations[v1alpha1.AnnotationInvitation] == invitation.ID:
			joined = other
		case other.Name == invitation.Cluster:
			return nil, nameTaken(other.Name)
		case uid != "" && other.Status.UID == uid:
			return nil, &Error{Status: http.StatusConflict, Code: "Conflict", Description: "server: this cluster is registered already, by another name: what it has would be sold twice."}
		}
	}
	return joined, nil
}

// deleteCluster takes a cluster that its provider has added out of the inventory.
func (s *server) deleteCluster(c *call) error {
	end, err := s.writes.begin(c.caller, s.Clock.Now())
	if err != nil {
		return err
	}
	defer end()
	m, err := s.ownCluster(c)
	if err != nil {
		return err
	}
	if !m.Spec.Guarded {
		return &Error{Status: http.StatusConflict, Code: "Conflict", Description: "The operator has added the cluster " + m.Name + ", and only the operator removes it."}
	}
	if err := c.ifMatch(m); err != nil {
		return err
	}
	var instances v1alpha1.ServiceInstanceList
	if err := s.Hub.List(c.Context(), &instances, client.InNamespace(s.Namespace)); err != nil {
		return fmt.Errorf("list service instances: %w", err)
	}
	on := 0
	for i := range instances.Items {
		if instances.Items[i].Status.IsOn(m.Name) {
			on++
		}
	}
	if on > 0 {
		return &Error{Status: http.StatusConflict, Code: "InUse", Description: fmt.Sprintf(
			"The cluster %s has %d instances: cordon it, so that it gets no more, and wait until they have left; the operator of this broker can drain it.", m.Name, on)}
	}
	// An instance that is placed there at this moment holds it until it has left.
	if err := s.Hub.Delete(c.Context(), m, client.Preconditions{UID: &m.UID}); err != nil {
		return writeError(err, "cluster "+m.Name)
	}
	s.Logger.InfoContext(c.Context(), "a cluster was removed by its provider", "provider", c.caller.Name, "cluster", m.Name)
	c.ResponseWriter.WriteHeader(http.StatusNoContent)
	return nil
}
