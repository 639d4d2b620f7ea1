package suitetest

import (
	"slices"
	"testing"

	"github.com/onsi/ginkgo/v2/types"
)

// clauses of the checklist in test/osb/README.md.
var clauses = []string{
	"H1", "H2", "H3", "H4", "H5", "H6", "H7", "C1", "C2", "C3", "C4", "C5", "P1", "P2", "P3", "P4", "F1", "F2",
	"U1", "U2", "L1", "L2", "B1", "B2", "B3", "B4", "B5", "B6", "D1", "D2", "O1",
}

func TestTheSuitePassesAgainstABrokerThatFollowsTheSpec(t *testing.T) {
	for name, broker := range map[string]*Broker{"binding at once": {}, "binding in the background": {AsyncBind: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asyncBind := "OSB_ASYNC_BIND=0"
			if broker.AsyncBind {
				asyncBind = "OSB_ASYNC_BIND=1"
			}
			reports := run(t, broker, "", asyncBind)
			passed := map[string]bool{}
			for _, spec := range reports {
				if spec.State != types.SpecStatePassed {
					t.Errorf("%s\n%s: %s\n%s", spec.FullText(), spec.State, spec.FailureMessage(), spec.FailureLocation())
				}
				for _, label := range spec.Labels() {
					passed[label] = true
				}
			}
			for _, clause := range clauses {
				if !passed[clause] {
					t.Errorf("no spec of clause %s has passed", clause)
				}
			}
			for label := range passed {
				if !slices.Contains(clauses, label) {
					t.Errorf("label %s is no clause", label)
				}
			}
		})
	}
}
