// Package osbclient is the platform's side of Open Service Broker API 2.17: it orders services from other
// brokers.
//
// A broker is a stranger. Each answer is bounded and decoded strictly, redirects are not followed, and only
// public addresses are reached unless the operator allows others. Errors are typed by what the specification
// has a platform do after them (OSB 2.17, "Orphan Mitigation"): [Error.Orphan] and [Error.Repeatable].
//
// The types have the fields that Sluice uses, and no others: what else a broker sends cannot make its answer
// wrong. Texts of brokers are cut and made printable before anybody reads them.
package osbclient
