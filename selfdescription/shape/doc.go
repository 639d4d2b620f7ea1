// Package shape knows which attributes the subject of a credential must and may
// have, for the types of Gaia-X that Sluice deals with and for its own.
//
// The rules for Gaia-X are those of the SHACL shapes of [Release], written as Go
// tables: required attributes, cardinalities, datatypes, lists of values and
// classes. A test holds the tables against the published shapes. Sluice is at no
// point more lenient than they are, with two exceptions: a node that is only
// referred to (an object with nothing but an id) may be of any class, as it is
// described in another credential; and lists that others maintain (media types,
// SPDX licences, subdivisions of countries, NUTS regions) are checked for form.
//
// Sluice is stricter in one respect: where the shapes of Gaia-X are open, or close a
// class to all but its subclasses' attributes, only VirtualResource is open here.
//
// [Check] reads the credentialSubject as compact JSON-LD whose terms mean what the
// Gaia-X context says. Attributes and types may be written with the prefix that the
// context gives them (gx:legalAddress, httpsschema:name); as in JSON-LD, values are
// then taken as they stand, without the type that the context gives to a term.
//
// [Country], [InEU] and [InEEA] make codes of countries comparable.
//
// The package must not know credentials, signatures, issuers, HTTP or Kubernetes. It
// has no state.
package shape
