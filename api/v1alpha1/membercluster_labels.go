package v1alpha1

import "maps"

// SelectorLabels are what selectors match: the member cluster's own labels and those
// that its spec implies; the spec wins, because it is what the operator declared.
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

// JoinedIdentity is the identity at a joined provider of the cluster that has invited it, as the
// access to a cluster of its own: by that it is sealed, or kept in a Secret.
func JoinedIdentity(joined *MemberCluster) *MemberCluster {
	identity := &MemberCluster{}
	identity.Namespace, identity.Name = joined.Namespace, joined.Name+"-identity"
	if access := joined.Spec.Liqo.Joined.Identity; access != nil {
		identity.Spec.Access = *access
	}
	return identity
}
