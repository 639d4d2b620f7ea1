package shape

import "strings"

// Release is the release of the Gaia-X ontology that the tables follow.
const Release = "25.11"

// In the order of the shapes of Gaia-X, release 25.11.
var gaiaXClasses = map[string]class{
	// Participants.
	"LegalPerson": closed(named(
		node("registrationNumber", 1, many, "RegistrationNumber"),
		node("legalAddress", 1, 1, "Address"),
		node("headquartersAddress", 1, 1, "Address"),
		node("parentOrganizationOf", 0, many, "LegalPerson"),
		node("subOrganisationOf", 0, many, "LegalPerson"),
	)...),
	"Address": closed(
		listed("countryCode", 1, 1, isCountry),
		text("countryName", 0, 1),
		node("gps", 0, many, "GPSLocation"),
		text("streetAddress", 0, 1).as("vcard:street-address"),
		text("postalCode", 0, 1).as("vcard:postal-code"),
		text("locality", 0, 1).as("vcard:locality"),
		listed("region", 0, 1, isRegion).as("vcard:region"),
	),
	"GPSLocation": closed(
		node("latitude", 1, 1, "GPSUnit").orLiteral(xsdString),
		node("longitude", 1, 1, "GPSUnit").orLiteral(xsdString),
		text("altitude", 0, 1),
		text("crs", 0, 1).fitting("pattern", func(text string) bool { return strings.HasPrefix(text, "CRS") }),
	),
	"GPSUnit": closed(
		literal(xsdInteger, "degrees", 1, 1).fitting("range", between(-180, 180)),
		literal(xsdInteger, "minutes", 0, 1).fitting("range", between(0, 60)),
		literal(xsdInteger, "seconds", 0, 1).fitting("range", between(0, 60)),
		literal(xsdFloat, "decimals", 0, 1).fitting("range", between(0, 1)),
	),
	"RegistrationNumber": closed(),
	"VatID": closed(
		text("vatID", 1, 1),
		listed("countryCode", 0, 1, isAlpha2),
	).kindOf("RegistrationNumber"),
	"LeiCode": closed(
		text("leiCode", 1, 1).as("httpsschema:leiCode"),
		listed("countryCode", 0, 1, isAlpha2),
		listed("subdivisionCountryCode", 0, 1, isSubdivisionCode),
	).kindOf("RegistrationNumber"),
	"EORI": closed(
		text("eori", 1, 1),
		text("country", 0, 1),
	).kindOf("RegistrationNumber"),
	"EUID":                    closed(text("euid", 1, 1)).kindOf("RegistrationNumber"),
	"TaxID":                   closed(text("taxId", 1, 1).as("httpsschema:taxID")).kindOf("RegistrationNumber"),
	"LocalRegistrationNumber": closed(text("local", 1, 1)).kindOf("RegistrationNumber"),
	"Issuer": closed(
		listed("gaiaxTermsAndConditions", 1, 1, oneOf(
			"067dcac5efd18c1927deb1ffed3feab6d0ad044c0a9a263e6d5d8bdc43224515",
			"4bd7554097444c960292b4726c2efa1373485e8a5565d94d41195214c5e0ceb3")),
	),

	// Services.
	"ServiceOffering": closed(serviceOffering()...),
	"ComputeServiceOffering": closed(append(serviceOffering(),
		listed("tenantSeparation", 0, 1, oneOf("hw-virtualized", "sw-virtualized", "os-virtualized",
			"os-hw-virtualized", "hw-partitioned", "physical")),
	)...).kindOf("ServiceOffering"),
	"Endpoint": closed(
		literal(xsdAnyURI, "endpointURL", 0, 1),
		node("standardConformity", 1, many, "StandardConformity"),
		text("formalDescription", 0, 1),
	),
	"StandardConformity": closed(
		text("title", 1, 1).as("dcterms:title"),
		literal(xsdAnyURI, "standardReference", 1, 1),
		text("publisher", 0, 1),
	),
	"DataAccountExport": closed(
		listed("requestType", 1, 1, oneOf("API", "email", "webform", "unregisteredLetter", "registeredLetter", "supportCenter")),
		listed("accessType", 1, 1, oneOf("digital", "physical")),
		listed("formatType", 1, 1, isMediaType),
	),
	"DataTransfer": closed(
		text("reason", 1, 1),
		text("scope", 1, 1),
	),
	"DataPortability": closed(
		text("resource", 1, 1),
		node("contactInformation", 0, 1, "ContactInformation"),
		text("means", 1, many),
		literal(xsdAnyURI, "documentations", 1, many),
		node("legalDocument", 1, 1, "LegalDocument"),
		text("deletionMethods", 1, many),
		text("deletionTimeframe", 1, 1),
		text("formats", 1, many),
		literal(xsdAnyURI, "pricing", 1, 1),
	),
	"ContactInformation": closed(
		node("postalAddress", 0, 1, "Address"),
		text("email", 0, 1),
		text("phoneNumber", 0, 1),
		literal(xsdAnyURI, "url", 1, 1),
	),
	"SubContractor": closed(
		listed("applicableJurisdiction", 1, 1, isAlpha2),
		text("legalName", 1, 1),
		node("communicationMethods", 1, many, "LegalDocument").orLiteral(xsdString),
		node("informationDocuments", 1, many, "LegalDocument").orLiteral(xsdAnyURI),
	),

	// Documents.
	"TermsAndConditions": closed(
		literal(xsdAnyURI, "url", 1, 1),
		text("hash", 1, 1),
	),
	"LegalDocument": closed(
		literal(xsdAnyURI, "url", 1, 1),
		listed("mimeTypes", 0, many, isMediaType),
		listed("governingLawCountries", 0, many, isAlpha2),
		node("involvedParties", 0, many, "LegalPerson"),
	),
	"CustomerInstructions": closed(
		node("terms", 1, many, "LegalDocument"),
		node("means", 1, many, "LegalDocument").coerced(none),
	),
	"AccessUsagePolicy": closed(
		listed("policyLanguage", 1, 1, oneOf("ODRL", "XACML", "Rego", "JSON", "Other")),
		text("policyDocument", 1, 1).orLiteral(xsdAnyURI),
	),
	"Measure": closed(
		text("description", 1, 1).as("httpsschema:description"),
		node("legalDocuments", 1, many, "LegalDocument"),
	),

	// Resources.
	"Resource":         openClass(named(node("aggregationOfResources", 0, many, "Resource"))...),
	"PhysicalResource": closed(physicalResource(0, "Resource")...).kindOf("Resource"),
	"Datacenter":       closed(physicalResource(1, "AvailabilityZone")...).kindOf("PhysicalResource"),
	"AvailabilityZone": closed(named(
		node("address", 0, 1, "Address"),
		node("aggregationOfResources", 0, many, "Resource"),
	)...).kindOf("Resource"),
	"VirtualResource": openClass(named(
		node("copyrightOwnedBy", 1, many, "LegalPerson").orLiteral(xsdString),
		attribute{term: "license", min: 1, values: []alternative{
			{datatype: xsdString, rule: "in", fits: isLicence}, {datatype: xsdAnyURI},
		}},
		text("resourcePolicy", 1, many),
		node("aggregationOfResources", 0, many, "Resource"),
	)...).kindOf("Resource"),
	"EnergyUsageEfficiency": closed(
		node("certifications", 0, many, "LegalDocument"),
		literal(xsdFloat, "powerUsageEffectiveness", 1, 1),
	),
	"WaterUsageEffectiveness": closed(
		node("certifications", 0, many, "LegalDocument"),
		literal(xsdFloat, "waterUsageEffectiveness", 1, 1).coerced(iri),
	),
	"EnergyMix": closed(
		literal(xsdDate, "attainmentDate", 1, 1),
		literal(xsdFloat, "renewableEnergy", 1, 1),
		literal(xsdFloat, "hourlyCarbonFreeEnergy", 1, 1),
	),

	// Conformity.
	"LabelCredential": closed(
		listed("labelLevel", 1, 1, oneOf("SC", "L1", "L2", "L3")),
		text("engineVersion", 1, 1),
		text("rulesVersion", 1, 1),
		text("validatedCriteria", 1, many),
		node("compliantCredentials", 1, many, "CompliantCredential"),
	),
	"CompliantCredential": closed(
		text("credentialType", 1, 1),
		literal(sriString, "digestSRI", 1, 1).as("cred:digestSRI"),
	),
}

// named adds the attributes that every Gaia-X entity may have.
func named(attributes ...attribute) []attribute {
	return append(attributes,
		text("name", 0, 1).as("httpsschema:name"),
		text("description", 0, 1).as("httpsschema:description"))
}

func serviceOffering() []attribute {
	return named(
		node("aggregationOfResources", 0, many, "Resource"),
		node("providedBy", 1, 1, "LegalPerson"),
		node("dependsOn", 0, many, "ServiceOffering"),
		node("serviceOfferingTermsAndConditions", 1, many, "TermsAndConditions"),
		node("servicePolicy", 0, many, "AccessUsagePolicy"),
		listed("dataProtectionRegime", 0, many, oneOf("GDPR2016", "LGPD2019", "PDPA2012", "CCPA2018", "VCDPA2021")),
		node("dataAccountExport", 0, many, "DataAccountExport"),
		text("keyword", 0, many),
		listed("provisionType", 0, 1, oneOf("private", "public", "hybrid")),
		node("endpoint", 0, 1, "Endpoint"),
		node("hostedOn", 0, many, "VirtualResource", "PhysicalResource"),
		text("serviceScope", 0, 1),
		node("legalDocuments", 0, many, "LegalDocument"),
		node("subContractors", 0, many, "SubContractor"),
		node("customerInstructions", 0, many, "CustomerInstructions"),
		node("dataPortability", 0, many, "DataPortability"),
		node("possiblePersonalDataTransfers", 0, many, "DataTransfer"),
		node("requiredMeasures", 0, many, "Measure"),
		listed("cryptographicSecurityStandards", 0, many,
			oneOf("FIPS186-5", "FIPS180-4", "RFC9142", "RFC5406", "RFC7296", "RFC8446", "RFC7515")),
		node("providerContactInformation", 0, 1, "ContactInformation"),
	)
}

func physicalResource(minParts int, parts string) []attribute {
	return named(
		node("maintainedBy", 1, many, "LegalPerson"),
		node("aggregationOfResources", minParts, many, parts),
		node("ownedBy", 0, many, "LegalPerson"),
		node("manufacturedBy", 0, many, "LegalPerson"),
		node("location", 1, many, "Address"),
		node("energyUsageEfficiency", 0, 1, "EnergyUsageEfficiency"),
		node("waterUsageEffectiveness", 0, 1, "WaterUsageEffectiveness"),
		node("energyMix", 0, many, "EnergyMix"),
	)
}
