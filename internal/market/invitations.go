package market

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/access"
)

// invitationRequest asks for an invitation of a cluster.
type invitationRequest struct {
	// Cluster is the name that the cluster gets.
	Cluster string `json:"cluster"`
	v1alpha1.ClusterTerms
}

// invitationBody is an invitation as its provider sees it.
type invitationBody struct {
	Cluster  string `json:"cluster"`
	Provider string `json:"provider"`
	// State is open, used or expired.
	State     string    `json:"state"`
	ExpiresAt time.Time `json:"expires_at"`
	// Token is the invitation itself; only in the answer that makes it.
	Token string `json:"token,omitempty"`
	v1alpha1.ClusterTerms
}

func (s *server) invitationBodyOf(provider string, i *v1alpha1.ClusterInvitation) invitationBody {
	body := invitationBody{Cluster: i.Cluster, Provider: provider, State: "open", ExpiresAt: i.ExpiresAt.UTC(), ClusterTerms: i.Terms}
	switch {
	case i.Used:
		body.State = "used"
	case s.hasExpired(i):
		body.State = "expired"
	}
	return body
}

func (s *server) hasExpired(i *v1alpha1.ClusterInvitation) bool {
	return !s.Clock.Now().Before(i.ExpiresAt.Time)
}

// invitations answers with the invitations of a provider, or all of them.
func (s *server) invitations(c *call) error {
	var list v1alpha1.ProviderList
	if err := s.Live.List(c.Context(), &list, client.InNamespace(s.Namespace)); err != nil {
		return fmt.Errorf("list providers: %w", err)
	}
	bodies := []invitationBody{}
	for i := range list.Items {
		p := &list.Items[i]
		if c.caller.Role == access.Operator || c.caller.Name == p.Name {
			for j := range p.Status.Invitations {
				bodies = append(bodies, s.invitationBodyOf(p.Name, &p.Status.Invitations[j]))
			}
		}
	}
	slices.SortFunc(bodies, func(a, b invitationBody) int {
		return strings.Compare(a.Cluster+"/"+a.Provider, b.Cluster+"/"+b.Provider)
	})
	writeJSON(c.ResponseWriter, http.StatusOK, map[string]any{"invitations": bodies})
	return nil
}

// invite makes an invitation. It replaces an earlier one by the same name.
func (s *server) invite(c *call) error {
	end, err := s.writes.begin(c.caller, s.Clock.Now())
	if err != nil {
		return err
	}
	defer end()
	var asked invitationRequest
	if err := c.decode(maxClusterChange, &asked); err != nil {
		return err
	}
	if wrong := validation.IsDNS1123Label(asked.Cluster); len(wrong) > 0 {
		return badRequest("cluster: %q: %s.", asked.Cluster, strings.Join(wrong, ", "))
	}
	made, err := s.Tokens.Invite(c.Context(), c.caller.Name)
	if err != nil {
		return err
	}
	invitation := v1alpha1.ClusterInvitation{Cluster: asked.Cluster, ID: made.ID, ExpiresAt: metav1.NewTime(made.ExpiresAt.Truncate(time.Second)), Terms: asked.ClusterTerms}
	err = s.changeInvitations(c.Context(), c.caller.Name, func(p *v1alpha1.Provider) error {
		if err := s.mayInvite(c.Context(), p, &invitation); err != nil {
			return err
		}
		kept := slices.DeleteFunc(p.Status.Invitations, func(i v1alpha1.ClusterInvitation) bool { return i.Cluster == invitation.Cluster || s.hasExpired(&i) })
		p.Status.Invitations = append(kept, invitation)
		return nil
	})
	if err != nil {
		return err
	}
	s.Logger.InfoContext(c.Context(), "a cluster was invited", "provider", c.caller.Name, "cluster", asked.Cluster)
	body := s.invitationBodyOf(c.caller.Name, &invitation)
	body.Token = made.Token
	c.ResponseWriter.Header().Set("Cache-Control", "no-store")
	writeJSON(c.ResponseWriter, http.StatusCreated, body)
	return nil
}

// changeInvitations changes the invitations of a provider, again if others change them meanwhile.
func (s *server) changeInvitations(ctx context.Context, provider string, change func(*v1alpha1.Provider) error) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		p := &v1alpha1.Provider{}
		if err := s.Live.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: provider}, p); err != nil {
			return err
		}
		if err := change(p); err != nil {
			return err
		}
		return s.Hub.Status().Update(ctx, p)
	})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		return writeError(err, "invitations of "+provider)
	}
	return err
}

// mayInvite refuses a cluster that a provider may not add. The hub judges by a dry run what the cluster would be.
func (s *server) mayInvite(ctx context.Context, p *v1alpha1.Provider, i *v1alpha1.ClusterInvitation) error {
	if p.Spec.Joins == nil {
		return &Error{Status: http.StatusForbidden, Code: codeForbidden, Description: p.Name + " may add no clusters itself; the operator of this broker allows it by `sluice provider add " + p.Name + " --clusters NUMBER`."}
	}
	if p.Spec.Joins.Proven && i.Terms.Offering == "" {
		return &Error{Status: http.StatusUnprocessableEntity, Code: "Invalid", Description: "offering: want the id of the offering that the cluster is, of which the operator of this broker requires a proof."}
	}
	if err := cmp.Or(checkPrices(i.Terms.Prices), checkSale(i.Terms.Sell)); err != nil {
		return err
	}
	var clusters v1alpha1.MemberClusterList
	if err := s.Live.List(ctx, &clusters, client.InNamespace(s.Namespace)); err != nil {
		return fmt.Errorf("list member clusters: %w", err)
	}
	count, kept := 1, 1
	for j := range clusters.Items {
		if clusters.Items[j].Spec.Provider == p.Name {
			count++
		}
	}
	for j := range p.Status.Invitations {
		if other := &p.Status.Invitations[j]; other.Cluster != i.Cluster && !s.hasExpired(other) {
			kept++
			if !other.Used {
				count++
			}
		}
	}
	if most := int(p.Spec.Joins.AtMost); count > most || kept > v1alpha1.MaxInvitations {
		return &Error{Status: http.StatusForbidden, Code: "LimitReached", Description: fmt.Sprintf(
			"%s would have %d clusters, open invitations included, and %d invitations of the last hour; at most %d and %d are allowed.", p.Name, count, kept, most, v1alpha1.MaxInvitations)}
	}
	planned := s.invited(p, i)
	planned.Spec.Access.SealedKubeconfig = []byte("not known yet") // the hub requires an access
	err := client.NewDryRunClient(s.Hub).Create(ctx, planned)
	if apierrors.IsAlreadyExists(err) {
		return nameTaken(i.Cluster)
	}
	if err != nil {
		return writeError(err, "cluster "+i.Cluster)
	}
	return nil
}

// invited returns the cluster that joins by an invitation, without the access to it.
func (s *server) invited(p *v1alpha1.Provider, i *v1alpha1.ClusterInvitation) *v1alpha1.MemberCluster {
	terms := &i.Terms
	m := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.Namespace, Name: i.Cluster, Annotations: map[string]string{v1alpha1.AnnotationInvitation: i.ID},
	}, Spec: v1alpha1.MemberClusterSpec{
		Driver: v1alpha1.DriverKube, Guarded: true, Provider: p.Name, Region: terms.Region, Zone: terms.Zone, Tier: terms.Tier, Sell: terms.Sell, Prices: terms.Prices,
	}}
	if terms.Offering != "" {
		m.Spec.Trust = &v1alpha1.TrustRequirements{Offering: terms.Offering}
		if p.Spec.Joins != nil {
			m.Spec.Trust.Types = p.Spec.Joins.Types
		}
	}
	return m
}

func nameTaken(cluster string) *Error {
	return &Error{Status: http.StatusConflict, Code: "Conflict", Description: fmt.Sprintf("cluster: there is a cluster %q already; choose another name.", cluster)}
}

// withdraw ends an invitation. A cluster that has joined by it stays.
func (s *server) withdraw(c *call) error {
	end, err := s.writes.begin(c.caller, s.Clock.Now())
	if err != nil {
		return err
	}
	defer end()
	name, err := c.variable("id")
	if err != nil {
		return err
	}
	err = s.changeInvitations(c.Context(), c.caller.Name, func(p *v1alpha1.Provider) error {
		before := len(p.Status.Invitations)
		p.Status.Invitations = slices.DeleteFunc(p.Status.Invitations, func(i v1alpha1.ClusterInvitation) bool { return i.Cluster == name })
		if len(p.Status.Invitations) == before {
			return &Error{Status: http.StatusNotFound, Code: codeNotFound, Description: "There is no invitation of a cluster " + name + " by " + p.Name + "."}
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.ResponseWriter.WriteHeader(http.StatusNoContent)
	return nil
}
