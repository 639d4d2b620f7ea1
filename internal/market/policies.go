package market

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/access"
)

const (
	// maxPolicy is the longest body with a policy, in bytes.
	maxPolicy = 64 << 10
	// maxPolicies and maxRules limit what one provider or platform has, because each rule is evaluated for every order.
	maxPolicies = 20
	maxRules    = 32
	// maxWeight limits the weights of a platform's preferences together: one preference of the operator's may have as much.
	maxWeight = 100
)

// Policies judges the policies of providers and platforms.
type Policies interface {
	// Compile returns why rules of a policy do not compile, by their names, or look at what their writer may not see; nil if
	// all are right.
	Compile(policy *v1alpha1.PlacementPolicy) error
	// Check returns what a policy would refuse, and changes nothing. One of a provider is asked about everything that is on
	// the provider's clusters, as if it were ordered now by a consumer; who ordered it is not looked at. One of a platform is
	// asked about the platform's instances, as if they were ordered again. The error is an *Error if it takes too long, or
	// if the policy looks at something of the consumer that is not given.
	Check(ctx context.Context, policy *v1alpha1.PlacementPolicy, by Supposed, plans []*catalog.Plan) (*PolicyCheck, error)
}

// Supposed is a consumer who is supposed to order; a field is nil if it is not given.
type Supposed struct {
	Platform     *string `json:"platform,omitempty"`
	Organization *string `json:"organization,omitempty"`
	Space        *string `json:"space,omitempty"`
	// Claims that the consumer has proven.
	Claims *[]SupposedClaim `json:"claims,omitempty"`
}

// SupposedClaim is a claim that a consumer is supposed to have proven.
type SupposedClaim struct {
	Name      string             `json:"name"`
	Value     string             `json:"value"`
	Assurance v1alpha1.Assurance `json:"assurance,omitempty"`
}

// ParseClaims reads claims of the form NAME=VALUE or NAME=VALUE@ASSURANCE; an empty text is none.
func ParseClaims(texts []string) ([]SupposedClaim, error) {
	all := []SupposedClaim{}
	for _, text := range texts {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		name, value, found := strings.Cut(text, "=")
		value, assurance, _ := strings.Cut(value, "@")
		if !found || name == "" || value == "" {
			return nil, fmt.Errorf("%q: want NAME=VALUE or NAME=VALUE@ASSURANCE", text)
		}
		all = append(all, SupposedClaim{Name: name, Value: value, Assurance: v1alpha1.Assurance(assurance)})
	}
	return all, nil
}

// PolicyCheck says what a policy would refuse.
type PolicyCheck struct {
	// Instances on the provider's clusters, or of the platform, by plan.
	Instances []CheckedInstances `json:"instances"`
	// Unserved are the clusters that no longer serve a plan, though nothing else that the provider may know keeps the
	// plan away; for a platform, nothing else at all. UnservedMore is how many there are beyond the list.
	Unserved     []Unserved `json:"unserved"`
	UnservedMore int        `json:"unserved_more"`
	// Nowhere are the plans that no cluster serves any more, of a platform's check.
	Nowhere []CheckedPlan `json:"nowhere,omitempty"`
	// Warning about plans that the policy names and that there are not (PlacementPolicySpec.UnknownPlans).
	Warning string `json:"warning,omitempty"`
}

// CheckedPlan is a plan.
type CheckedPlan struct {
	Service string `json:"service"`
	Plan    string `json:"plan"`
}

// CheckedInstances are the instances of a plan.
type CheckedInstances struct {
	Service string `json:"service"`
	Plan    string `json:"plan"`
	// Present instances, and those of them that would be refused if they were ordered now.
	Present int `json:"present"`
	Refused int `json:"refused"`
	// Rules that refuse, each with the number of instances of which it is the first that does.
	Rules []RuleCount `json:"rules"`
}

// RuleCount is how many instances a rule refuses.
type RuleCount struct {
	Rule    string `json:"rule"`
	Refused int    `json:"refused"`
}

// Unserved is a cluster that no longer serves a plan. Providers see its name, and platforms, to which the market names
// no clusters, where it is: one entry for all that are alike.
type Unserved struct {
	Cluster  string `json:"cluster,omitempty"`
	Provider string `json:"provider,omitempty"`
	Region   string `json:"region,omitempty"`
	Service  string `json:"service"`
	Plan     string `json:"plan"`
	// Rule that refuses first, and Why.
	Rule string `json:"rule"`
	Why  string `json:"why"`
}

// policyBody is a policy as a caller sees it.
type policyBody struct {
	ID string `json:"id"`
	// Provider or Platform that it is about; an operator's may be about all.
	Provider string `json:"provider,omitempty"`
	Platform string `json:"platform,omitempty"`
	// By is operator, provider or platform: whoever wrote it, and may change it.
	By access.Role `json:"by"`
	// ETag for If-Match.
	ETag string `json:"etag"`
	// Spec as it was put; of an operator's policy, others see the part that they could write.
	Spec   json.RawMessage `json:"spec"`
	Status policyStatus    `json:"status"`
}

// policyStatus says whether a policy is in force.
type policyStatus struct {
	// State is in_force, refusing (it does not compile, so it refuses everything that it concerns), or pending (it is not
	// read yet).
	State   string `json:"state"`
	Message string `json:"message,omitempty"`
}

func policyBodyOf(p *v1alpha1.PlacementPolicy, caller access.Caller) (*policyBody, error) {
	body := &policyBody{ID: p.Name, Provider: p.Spec.Provider, Platform: p.Spec.Platform, By: access.Operator, ETag: tagOf(p), Status: policyStatus{State: "pending"}}
	shows := sideOf(caller.Role)
	if by := writtenBy(p); by != nil {
		body.By, shows = by.role, by
	}
	whole := p.Spec.DeepCopy()
	whole.Provider, whole.Platform = "", ""
	var shown any = whole
	if shows != nil {
		shown = shows.part(whole)
	}
	var err error
	if body.Spec, err = json.Marshal(shown); err != nil {
		return nil, fmt.Errorf("encode policy %s: %w", p.Name, err)
	}
	ready := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil || ready.ObservedGeneration != p.Generation:
	case ready.Status == metav1.ConditionTrue:
		body.Status = policyStatus{State: "in_force"}
		if ready.Message != v1alpha1.PolicyInForceMessage {
			body.Status.Message = ready.Message
		}
	default:
		body.Status = policyStatus{"refusing", ready.Message}
	}
	return body, nil
}

// policies answers with the policies about the caller, or all of them.
func (s *server) policies(c *call) error {
	list, err := s.policiesAbout(c)
	if err != nil {
		return err
	}
	bodies := make([]*policyBody, len(list))
	for i := range list {
		if bodies[i], err = policyBodyOf(&list[i], c.caller); err != nil {
			return err
		}
	}
	writeJSON(c.ResponseWriter, http.StatusOK, map[string]any{"policies": bodies})
	return nil
}

// policiesAbout returns the policies about the caller, or all for an operator, by name.
func (s *server) policiesAbout(c *call) ([]v1alpha1.PlacementPolicy, error) {
	var list v1alpha1.PlacementPolicyList
	if err := s.Live.List(c.Context(), &list, client.InNamespace(s.Namespace)); err != nil {
		return nil, fmt.Errorf("list placement policies: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.PlacementPolicy) int { return strings.Compare(a.Name, b.Name) })
	return slices.DeleteFunc(list.Items, func(p v1alpha1.PlacementPolicy) bool { return !IsAbout(c.caller, &p) }), nil
}

// findPolicy reads the policy in the URL; nil if there is none. The error is an *Error if it is not the caller's to see.
func (s *server) findPolicy(c *call) (id string, p *v1alpha1.PlacementPolicy, err error) {
	if id, err = c.variable("id"); err != nil {
		return id, nil, err
	}
	side := sideOf(c.caller.Role)
	var foreign *Error
	if side != nil {
		foreign = &Error{Status: http.StatusForbidden, Code: codeForbidden, Description: fmt.Sprintf("The policy %s is not %s's, whose ids are %s.", id, c.caller.Name, side.id(c.caller.Name, "NAME"))}
	}
	if wrong := validation.IsDNS1123Subdomain(id); len(wrong) > 0 {
		if side != nil && !strings.HasPrefix(id, side.id(c.caller.Name, "")) {
			return id, nil, foreign
		}
		return id, nil, badRequest("id: %q: %s.", id, strings.Join(wrong, ", "))
	}
	p = &v1alpha1.PlacementPolicy{}
	err = s.Live.Get(c.Context(), client.ObjectKey{Namespace: s.Namespace, Name: id}, p)
	switch {
	case apierrors.IsNotFound(err) && (side == nil || side.isNamedBy(c.caller.Name, id)):
		return id, nil, nil
	case err == nil && (side == nil || side.isAbout(c.caller.Name, p)):
		return id, p, nil
	case client.IgnoreNotFound(err) != nil:
		return id, nil, fmt.Errorf("read placement policy %s: %w", id, err)
	}
	return id, nil, foreign
}

// findOwnPolicy reads the policy in the URL, which the caller wants to change.
func (s *server) findOwnPolicy(c *call) (id string, p *v1alpha1.PlacementPolicy, err error) {
	id, p, err = s.findPolicy(c)
	if err == nil && p != nil && writtenBy(p) != sideOf(c.caller.Role) {
		err = &Error{Status: http.StatusForbidden, Code: codeForbidden, Description: "The policy " + id + " is the operator's to change."}
	}
	return id, p, err
}

func noPolicy(id string) *Error {
	return &Error{Status: http.StatusNotFound, Code: codeNotFound, Description: "There is no policy " + id + "."}
}

func (s *server) getPolicy(c *call) error {
	id, p, err := s.findPolicy(c)
	switch {
	case err != nil:
		return err
	case p == nil:
		return noPolicy(id)
	}
	return c.answerPolicy(http.StatusOK, p, "")
}

// answerPolicy writes a policy, with a warning if it is not read yet.
func (c *call) answerPolicy(status int, p *v1alpha1.PlacementPolicy, warning string) error {
	body, err := policyBodyOf(p, c.caller)
	if err != nil {
		return err
	}
	body.Status.Message = cmp.Or(body.Status.Message, warning)
	c.ResponseWriter.Header().Set("ETag", body.ETag)
	writeJSON(c.ResponseWriter, status, body)
	return nil
}

// deletePolicy removes a policy. It refuses nobody any more.
func (s *server) deletePolicy(c *call) error {
	end, err := s.writes.begin(c.caller, s.Clock.Now())
	if err != nil {
		return err
	}
	defer end()
	id, p, err := s.findOwnPolicy(c)
	if err != nil {
		return err
	}
	if p == nil {
		return noPolicy(id)
	}
	if err := c.ifMatch(p); err != nil {
		return err
	}
	uid := p.UID
	if err := s.Hub.Delete(c.Context(), p, client.Preconditions{UID: &uid}); err != nil {
		return writeError(err, "policy "+id)
	}
	s.Logger.InfoContext(c.Context(), "a policy was removed", "caller", c.caller.String(), "policy", id)
	c.ResponseWriter.WriteHeader(http.StatusNoContent)
	return nil
}
