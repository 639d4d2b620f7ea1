package selfdescription

// Concerns lists what a credential matters for beside its provider: the ids of
// offerings and other subjects, and digests ("sha256-<base64>") of credentials. None
// means every offering of the provider, as its LegalPerson and its data centres do.
// Who holds many credentials finds by it those that [Admit] needs: what matters for
// every offering, for this one, and for the subjects and digests of those.
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
