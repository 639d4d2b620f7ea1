package v1alpha1

// Members of the metadata of a plan in the OSB catalog that only the broker states.
const (
	// MetadataProven sums up what is proven of the clusters that the plan can use.
	MetadataProven = "proven"
	// MetadataSelfDescriptions are the credentials that prove it.
	MetadataSelfDescriptions = "selfDescriptions"
	// MetadataSluice names the hubs that an order can come to. Only Sluices have it.
	MetadataSluice = "sluice"
	// MetadataWithdrawn is true once nobody offers the plan any more.
	MetadataWithdrawn = "withdrawn"
)
