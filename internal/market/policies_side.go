package market

import (
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/access"
)

// side is a role whose callers write policies about themselves: providers about their clusters, platforms about their
// orders. The operator's policies hold beside both.
type side struct {
	role access.Role
	// prefix of all ids, before the name of the caller.
	prefix string
	// field of the spec that says whom a policy is about.
	field string
	about func(*v1alpha1.PlacementPolicySpec) *string
	// of names the subject of such a policy, and instead the way to say what the other side's field would.
	of, instead string
	// part returns the part of a spec that the side writes.
	part func(*v1alpha1.PlacementPolicySpec) any
}

// policyPart is the part of a policy that one of the sides writes.
type policyPart struct {
	Match     v1alpha1.PolicyMatch        `json:"match,omitzero"`
	Require   []v1alpha1.PolicyRule       `json:"require,omitempty"`
	Prefer    []v1alpha1.PolicyPreference `json:"prefer,omitempty"`
	Workloads *v1alpha1.WorkloadRules     `json:"workloads,omitempty"`
}

var (
	sideOfProviders = &side{
		role: access.Provider, field: "provider", about: func(s *v1alpha1.PlacementPolicySpec) *string { return &s.Provider }, of: "its clusters", instead: "match.platforms",
		part: func(s *v1alpha1.PlacementPolicySpec) any { return policyPart{s.Match, s.Require, nil, s.Workloads} },
	}
	sideOfPlatforms = &side{
		role: access.Platform, prefix: "platform.", field: "platform", about: func(s *v1alpha1.PlacementPolicySpec) *string { return &s.Platform }, of: "its orders", instead: "a rule about cluster.provider",
		part: func(s *v1alpha1.PlacementPolicySpec) any {
			return policyPart{s.Match, s.Require, s.Prefer, s.Workloads}
		},
	}
	sides = []*side{sideOfProviders, sideOfPlatforms}
)

// sideOf returns the side of a caller; nil for an operator.
func sideOf(role access.Role) *side {
	for _, side := range sides {
		if side.role == role {
			return side
		}
	}
	return nil
}

// other returns the side that is not this one.
func (s *side) other() *side {
	if s == sideOfProviders {
		return sideOfPlatforms
	}
	return sideOfProviders
}

// id returns the id of the policy of that name: NAME of a provider is PROVIDER.NAME, of a platform
// platform.PLATFORM.NAME, so that neither takes the other's.
func (s *side) id(caller, name string) string { return s.prefix + caller + "." + name }

// isNamedBy reports whether a policy of that id can be the caller's. Others are the operator's, so nobody takes a name
// that the operator wants, or finds out which there are.
func (s *side) isNamedBy(caller, id string) bool {
	name, found := strings.CutPrefix(id, s.id(caller, ""))
	return found && len(validation.IsDNS1123Label(name)) == 0
}

// isAbout reports whether a policy is about a caller of the side.
func (s *side) isAbout(caller string, p *v1alpha1.PlacementPolicy) bool {
	return *s.about(&p.Spec) == caller
}

// writtenBy returns the side that has written a policy, and so may change it: that which the policy is about, if its
// name is one of the side's; nil for the operator's policies.
func writtenBy(p *v1alpha1.PlacementPolicy) *side {
	for _, side := range sides {
		if about := *side.about(&p.Spec); about != "" && side.isNamedBy(about, p.Name) {
			return side
		}
	}
	return nil
}

// IsAbout reports whether a policy is about a caller, who sees it then. Operators see all.
func IsAbout(caller access.Caller, p *v1alpha1.PlacementPolicy) bool {
	side := sideOf(caller.Role)
	return side == nil || side.isAbout(caller.Name, p)
}

// PolicyID returns the id of the policy to which a provider or a platform gives a name.
func PolicyID(caller access.Caller, name string) string {
	return sideOf(caller.Role).id(caller.Name, name)
}

// IsOwn reports whether the provider or platform that a policy is about has written it, and so may change it.
func IsOwn(p *v1alpha1.PlacementPolicy) bool { return writtenBy(p) != nil }

// operatorsPart are the fields of a policy that one side or both may not set, and why; "" lets it.
var operatorsPart = []struct {
	field               string
	isSet               func(*v1alpha1.PlacementPolicySpec) bool
	providers, platform string
}{
	{"match.platforms", func(s *v1alpha1.PlacementPolicySpec) bool { return len(s.Match.Platforms) > 0 }, "", "yours concern your orders alone"},
	{"prefer", func(s *v1alpha1.PlacementPolicySpec) bool { return len(s.Prefer) > 0 }, "it would raise your clusters above those of other providers", ""},
	{"score", func(s *v1alpha1.PlacementPolicySpec) bool { return s.Score != v1alpha1.ScoreWeights{} }, "its weights count for the clusters of all providers", "its weights are added to those by which the operator uses the clusters"},
	{"quota", func(s *v1alpha1.PlacementPolicySpec) bool { return s.Quota != nil }, "it counts what consumers hold at all providers together", "it bounds what consumers hold"},
	{"rebalance", func(s *v1alpha1.PlacementPolicySpec) bool { return s.Rebalance != nil }, "it moves instances to other providers, or from them", "it moves instances, at the cost of the clusters"},
	{"makeRoom", func(s *v1alpha1.PlacementPolicySpec) bool { return s.MakeRoom != nil }, "it moves instances to other providers, or from them", "it moves instances, at the cost of the clusters"},
	{"elastic", func(s *v1alpha1.PlacementPolicySpec) bool { return s.Elastic != nil }, "it orders clusters in the name of the operator", "it orders clusters in the name of the operator"},
	{"measure", func(s *v1alpha1.PlacementPolicySpec) bool { return s.Measure != nil }, "it orders probes in the name of the operator", "it orders probes in the name of the operator"},
	{"priorityClasses", func(s *v1alpha1.PlacementPolicySpec) bool { return len(s.PriorityClasses) > 0 }, "they hold for the orders of everybody", "they hold for the orders of everybody"},
}

// confine makes a spec one about the caller, whatever it says. The error is an *Error if it says another, or has what
// the side may not set.
func (s *side) confine(caller string, spec *v1alpha1.PlacementPolicySpec) error {
	about := s.about(spec)
	if *about != "" && *about != caller {
		return &Error{Status: http.StatusForbidden, Code: codeForbidden, Description: s.field + ": want " + caller + " or nothing."}
	}
	*about = caller
	if other := s.other(); *other.about(spec) != "" {
		return invalid(fmt.Sprintf("%s: a policy of a %s is about %s; leave it out, and use %s.", other.field, s.field, s.of, s.instead))
	}
	for _, of := range operatorsPart {
		why := of.providers
		if s == sideOfPlatforms {
			why = of.platform
		}
		if why != "" && of.isSet(spec) {
			return invalid(of.field + ": this is for the operator's policies, because " + why + "; leave it out.")
		}
	}
	switch {
	case rulesOf(spec) > 0:
		return nil
	case s == sideOfPlatforms:
		return invalid("require: want at least one rule, here or in prefer, or workloads, because a policy without rules accepts every cluster.")
	}
	return invalid("require: want at least one rule, or workloads, because a policy without rules refuses nobody.")
}
