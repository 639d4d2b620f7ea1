package osb

import (
	"fmt"
	"os"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestOpenServiceBrokerConformance(t *testing.T) {
	if os.Getenv("OSB_URL") == "" {
		t.Skip("OSB_URL is not set: no broker to check; see test/osb/README.md")
	}
	RegisterFailHandler(Fail)
	RunSpecs(t, "Open Service Broker API 2.17")
}

// target is the broker under test as the environment describes it, completed from
// its catalog.
var target config

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	target, err = configFromEnvironment()
	Expect(err).NotTo(HaveOccurred())
	EnforceDefaultTimeoutsWhenUsingContexts()
	SetDefaultEventuallyTimeout(target.timeout)
	SetDefaultEventuallyPollingInterval(target.polling)
	target.discover(ctx)
})

// clause is one spec: the clause of the checklist with that id, as a sentence.
func clause(id, sentence string, args ...any) bool {
	return It(id+": "+sentence, append([]any{Offset(1), Label(id)}, args...)...)
}

// clauses are one spec for each entry of a table.
func clauses[E any](id, sentence string, entries map[string]E, check func(SpecContext, E)) {
	for _, name := range sortedKeys(entries) {
		entry := entries[name]
		It(fmt.Sprintf("%s: %s (%s)", id, sentence, name), Offset(1), Label(id), func(ctx SpecContext) { check(ctx, entry) })
	}
}

// need ends the spec where the broker, or what the environment says of it, does not
// offer what the spec is about: skipped for a foreign broker, failed if OSB_STRICT
// promises everything.
func need(offered bool, what string, args ...any) {
	GinkgoHelper()
	switch reason := "needs " + fmt.Sprintf(what, args...); {
	case offered:
	case target.strict:
		Fail(reason)
	default:
		Skip(reason)
	}
}

// beyondTheSpec ends the spec unless OSB_STRICT asks for what OSB 2.17 leaves to the
// broker (MAY, SHOULD, or silence) and platforms in the field rely on.
func beyondTheSpec(why string) {
	GinkgoHelper()
	if !target.strict {
		Skip("only with OSB_STRICT=1: " + why)
	}
}
