package v1alpha1

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
)

// SelectorLabels returns the labels that selectors match: the member cluster's own labels,
// those that its spec implies, and the architecture and operating system of its nodes, if they
// are all the same. The spec wins over the own labels, and these over the nodes, because the
// operator declared them.
func (c *MemberCluster) SelectorLabels() map[string]string {
	set := maps.Clone(c.Labels)
	if set == nil {
		set = map[string]string{}
	}
	tier := c.Spec.Tier
	if tier == "" {
		tier = TierCloud
	}
	for key, value := range map[string]string{
		LabelCluster:  c.Name,
		LabelRegion:   c.Region(),
		LabelZone:     c.Spec.Zone,
		LabelProvider: c.Spec.Provider,
		LabelTier:     string(tier),
	} {
		if value != "" {
			set[key] = value
		}
	}
	for key, found := range map[string][]string{
		corev1.LabelArchStable: c.Status.Architectures,
		corev1.LabelOSStable:   c.Status.OperatingSystems,
	} {
		if _, declared := set[key]; !declared && len(found) == 1 {
			set[key] = found[0]
		}
	}
	return set
}

// JoinedIdentity returns a MemberCluster whose access is the identity that a joined
// provider gave to the cluster that invited it. That identity is sealed, or kept in a
// Secret, under the returned name. Its owner reference names the cluster.
func JoinedIdentity(joined *MemberCluster) *MemberCluster {
	identity := identityOf(joined, "-identity")
	if access := joined.Spec.Liqo.Joined.Identity; access != nil {
		identity.Spec.Access = *access
	}
	return identity
}

// Region returns the cluster's region: the operator's word or, for a broker that is a Sluice, the one region in which
// all its plans are that offerings order. It is empty if neither is known.
func (c *MemberCluster) Region() string {
	if c.Spec.Region != "" || c.Status.Broker == nil || c.Status.Broker.Sluice == nil {
		return c.Spec.Region
	}
	region := ""
	for _, p := range c.Status.Broker.Sluice.Plans {
		if p.Market == nil || len(p.Market.Regions) != 1 || region != "" && region != p.Market.Regions[0] {
			return ""
		}
		region = p.Market.Regions[0]
	}
	return region
}
