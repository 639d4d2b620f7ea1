// Package shape knows which attributes the subject of a credential must and may
// have, for the types of Gaia-X that Sluice deals with and for its own.
//
// The rules for Gaia-X are those of the SHACL shapes of [Release], written as Go tables:
// required attributes, cardinalities, datatypes, lists of values and classes. A test compares
// the tables with the published shapes. Sluice is never more lenient, with two exceptions. A
// node that is only referred to (an object with only an id) may be of any class, because it is
// described in another credential. Lists maintained by others (media types, SPDX licences,
// subdivisions of countries, NUTS regions) are checked for form only.
//
// Sluice is stricter in one respect. Some shapes of Gaia-X are open, or closed except for the
// attributes of subclasses; here only VirtualResource is open.
//
// [Check] reads the credentialSubject as compact JSON-LD with the terms of the Gaia-X context.
// Attributes and types may have the prefix that the context gives them (gx:legalAddress,
// httpsschema:name). Then, as in JSON-LD, values are not given the type that the context
// defines for a term.
//
// [Country], [InEU] and [InEEA] make codes of countries comparable.
//
// The package must not know credentials, signatures, issuers, HTTP or Kubernetes. It
// has no state.
package shape
