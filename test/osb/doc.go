// Package osb checks a broker against Open Service Broker API 2.17 from the
// outside: it speaks plain HTTP and JSON to the URL in OSB_URL and knows nothing
// of the broker behind it. README.md says how to run it against any broker.
//
// Every spec is one clause. Its label is the clause's id in the checklist of
// README.md (H headers and errors, C catalog, P provision, F fetch, U update,
// L last operation, B binding, D deletion, O orphans), so that
// --ginkgo.label-filter=P2 runs what checks that clause and nothing else.
//
// The package must not import anything of Sluice: a checker that shares code with
// what it checks shares its mistakes. That the specs can fail is checked in
// package suitetest.
package osb
