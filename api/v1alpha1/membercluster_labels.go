package v1alpha1

import "maps"

// SelectorLabels returns the labels that selectors match: the member cluster's own labels
// and those that its spec implies. The spec wins, because the operator declared it.
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
		LabelRegion:   c.Spec.Region,
		LabelZone:     c.Spec.Zone,
		LabelProvider: c.Spec.Provider,
		LabelTier:     string(tier),
	} {
		if value != "" {
			set[key] = value
		}
	}
	return set
}

// JoinedIdentity returns a MemberCluster whose access is the identity that a joined
// provider gave to the cluster that invited it. That identity is sealed, or kept in a
// Secret, under the returned name.
func JoinedIdentity(joined *MemberCluster) *MemberCluster {
	identity := &MemberCluster{}
	identity.Namespace, identity.Name = joined.Namespace, joined.Name+"-identity"
	if access := joined.Spec.Liqo.Joined.Identity; access != nil {
		identity.Spec.Access = *access
	}
	return identity
}
