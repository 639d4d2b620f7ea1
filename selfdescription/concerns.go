package selfdescription

// Concerns lists what a credential is relevant for beside its provider: the ids of offerings
// and other subjects, and digests ("sha256-<base64>") of credentials. An empty list means every
// offering of the provider, as for its LegalPerson and its data centres. A store of many
// credentials finds by it those that [Admit] needs: the ones relevant for every offering, for
// this one, and for the subjects and digests of those.
func (c *Credential) Concerns() []string {
	switch {
	case isOffering(c.Type), c.Type == TypeClusterMeasurement:
		return []string{c.Subject}
	case c.Type == TypeClusterBinding:
		return append([]string{c.Subject}, references(c.Claims["offering"])...)
	case c.Type == TypeLabelCredential, c.Type == TypeCertification:
		keys := []string{c.Subject}
		for _, digest := range named(c) {
			keys = append(keys, digest.SRI())
		}
		return keys
	}
	return nil
}
