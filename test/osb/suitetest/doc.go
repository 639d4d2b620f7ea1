// Package suitetest shows that the conformance suite in test/osb can pass and can
// fail. It holds a small broker in memory that follows OSB 2.17 (broker.go,
// catalog.go, instances.go, bindings.go, wire.go), and proxies with one defect each (defects_test.go).
//
// The suite must pass against the broker, and every spec of it must fail behind at
// least one of the proxies: a spec that no defect makes fail checks nothing.
//
// The package must not import anything of Sluice, for the reason that test/osb must
// not. Its broker is a fake for tests only: it delivers nothing.
package suitetest
