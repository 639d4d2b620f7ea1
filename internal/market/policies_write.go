package market

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/access"
)

// putPolicy makes a policy, or replaces its spec.
func (s *server) putPolicy(c *call) error {
	end, err := s.writes.begin(c.caller, s.Clock.Now())
	if err != nil {
		return err
	}
	defer end()
	spec := &v1alpha1.PlacementPolicySpec{}
	if err := c.decode(maxPolicy, spec); err != nil {
		return err
	}
	var p *v1alpha1.PlacementPolicy
	status := http.StatusOK
	err = c.change("policy", func() error {
		id, stored, err := s.findOwnPolicy(c)
		if err != nil {
			return err
		}
		if stored != nil {
			err = c.ifMatch(stored)
		} else {
			err = c.ifAbsent("policy " + id)
		}
		if err != nil {
			return err
		}
		if p, err = s.judge(c, id, stored, spec); err != nil {
			return err
		}
		if stored != nil {
			return s.Hub.Update(c.Context(), p)
		}
		status = http.StatusCreated
		return s.Hub.Create(c.Context(), p)
	})
	if err != nil {
		return err
	}
	if status == http.StatusCreated {
		s.Logger.InfoContext(c.Context(), "a policy was made", "caller", c.caller.String(), "policy", p.Name)
	}
	warning, err := s.unknownPlans(c, p)
	if err != nil {
		return err
	}
	return c.answerPolicy(status, p, warning)
}

// unknownPlans returns a warning about plans that a policy names and that there are not; empty if there are all.
func (s *server) unknownPlans(c *call, p *v1alpha1.PlacementPolicy) (string, error) {
	if len(p.Spec.Match.Plans) == 0 {
		return "", nil
	}
	var offerings v1alpha1.ServiceOfferingList
	if err := s.Live.List(c.Context(), &offerings, client.InNamespace(s.Namespace)); err != nil {
		return "", fmt.Errorf("list service offerings: %w", err)
	}
	return p.Spec.UnknownPlans(offerings.Items), nil
}

// judge returns the policy that is to be stored under an id, in place of the one there, if there is one. The error is
// an *Error if the caller may not have it, or if the engine would refuse it, and the hub's if the hub would. Nothing is
// written.
func (s *server) judge(c *call, id string, stored *v1alpha1.PlacementPolicy, spec *v1alpha1.PlacementPolicySpec) (*v1alpha1.PlacementPolicy, error) {
	if err := sideOf(c.caller.Role).confine(c.caller.Name, spec); err != nil {
		return nil, err
	}
	if err := s.admitsPolicy(c, id, spec); err != nil {
		return nil, err
	}
	var p *v1alpha1.PlacementPolicy
	var err error
	if stored == nil {
		p = &v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: id}, Spec: *spec}
		err = s.Hub.Create(c.Context(), p.DeepCopy(), client.DryRunAll)
	} else {
		p = stored.DeepCopy()
		p.Spec = *spec
		err = s.Hub.Update(c.Context(), p.DeepCopy(), client.DryRunAll)
	}
	if err != nil {
		return nil, err
	}
	if err := s.Policies.Compile(p); err != nil {
		return nil, invalid("require: " + strings.ReplaceAll(err.Error(), "\n", "; ") + ".")
	}
	return p, nil
}

func invalid(description string) *Error {
	return &Error{Status: http.StatusUnprocessableEntity, Code: "Invalid", Description: description}
}

// admitsPolicy checks that the caller has not too many policies and rules with the one of that id, and preferences of not
// too much weight.
func (s *server) admitsPolicy(c *call, id string, spec *v1alpha1.PlacementPolicySpec) error {
	all, err := s.policiesAbout(c)
	if err != nil {
		return err
	}
	count, rules, weight := 1, 0, 0
	add := func(spec *v1alpha1.PlacementPolicySpec) {
		rules += rulesOf(spec)
		for i := range spec.Prefer {
			weight += int(min(spec.Prefer[i].Weight, maxWeight+1))
		}
	}
	add(spec)
	for i := range all {
		if all[i].Name != id && IsOwn(&all[i]) {
			count++
			add(&all[i].Spec)
		}
	}
	if weight > maxWeight {
		return &Error{Status: http.StatusForbidden, Code: "LimitReached",
			Description: fmt.Sprintf("prefer: %s would have preferences of the weight %d together; at most %d are allowed, as one preference of the operator may have.", c.caller.Name, weight, maxWeight)}
	}
	if count > maxPolicies || rules > maxRules {
		return &Error{Status: http.StatusForbidden, Code: "LimitReached",
			Description: fmt.Sprintf("%s would have %d policies with %d rules together; at most %d and %d are allowed.", c.caller.Name, count, rules, maxPolicies, maxRules)}
	}
	return nil
}

// rulesOf returns how many rules of a policy are evaluated for an order.
func rulesOf(spec *v1alpha1.PlacementPolicySpec) int {
	rules := len(spec.Require) + len(spec.Prefer)
	if spec.Workloads != nil {
		rules++
	}
	return rules
}

// policyQuestion asks whom a policy would refuse.
type policyQuestion struct {
	// Spec of the policy; nil means as it is stored.
	Spec *v1alpha1.PlacementPolicySpec `json:"spec"`
	// Consumer by whom orders are supposed to be made.
	Consumer Supposed `json:"consumer"`
}

// assurances lists the assurances of claims about consumers.
var assurances = []v1alpha1.Assurance{v1alpha1.AssuranceSelf, v1alpha1.AssuranceNotary, v1alpha1.AssuranceLabel, v1alpha1.AssuranceCertified}

// checkPolicy answers whom a policy would refuse, and changes nothing. It counts as a write, because of the work.
func (s *server) checkPolicy(c *call) error {
	end, err := s.writes.begin(c.caller, s.Clock.Now())
	if err != nil {
		return err
	}
	defer end()
	asked := policyQuestion{}
	if err := c.decode(maxPolicy, &asked); err != nil {
		return err
	}
	if by := asked.Consumer.Platform; c.caller.Role == access.Platform && by != nil && *by != c.caller.Name {
		return &Error{Status: http.StatusForbidden, Code: codeForbidden, Description: "consumer.platform: want " + c.caller.Name + " or nothing."}
	}
	if claims := asked.Consumer.Claims; claims != nil {
		for i, claim := range *claims {
			if claim.Assurance != "" && !slices.Contains(assurances, claim.Assurance) {
				return badRequest("consumer.claims[%d].assurance: %q is none; want one of %q.", i, claim.Assurance, assurances)
			}
		}
	}
	var p *v1alpha1.PlacementPolicy
	err = c.change("policy", func() error {
		id, stored, err := s.findOwnPolicy(c)
		switch p = stored; {
		case err != nil:
			return err
		case asked.Spec != nil:
			p, err = s.judge(c, id, stored, asked.Spec)
		case p == nil:
			err = noPolicy(id)
		}
		return err
	})
	if err != nil {
		return err
	}
	found, err := s.Policies.Check(c.Context(), p, asked.Consumer, s.checkedPlans(c.caller))
	if err != nil {
		return err
	}
	if found.Warning, err = s.unknownPlans(c, p); err != nil {
		return err
	}
	writeJSON(c.ResponseWriter, http.StatusOK, found)
	return nil
}

// checkedPlans returns the plans that a check looks at: those that the caller sees, and all of a provider's own, also if
// they are for certain platforms.
func (s *server) checkedPlans(caller access.Caller) (plans []*catalog.Plan) {
	snapshot := s.Catalog.Snapshot()
	if caller.Role != access.Provider {
		return s.views.of(caller).plans(snapshot)
	}
	for _, o := range snapshot.All() {
		for _, p := range o.Plans {
			if p.VisibleTo("") || o.Provider == caller.Name {
				plans = append(plans, p)
			}
		}
	}
	return plans
}
