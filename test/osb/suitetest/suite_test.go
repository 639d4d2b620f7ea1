package suitetest

import (
	"slices"
	"sync"
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
			reports := run(t, broker, "", settingOf(broker.AsyncBind))
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

func TestEveryDefectIsNoticedByAClauseAndEverySpecNoticesADefect(t *testing.T) {
	var (
		mu      sync.Mutex
		noticed = map[string]bool{} // specs, by text, that failed for a defect
	)
	t.Run("defect", func(t *testing.T) {
		for _, d := range slices.Concat(headerDefects, catalogDefects, instanceDefects, operationDefects, bindingDefects) {
			t.Run(d.clause+" "+d.does, func(t *testing.T) {
				t.Parallel()
				var failures int
				for _, asyncBind := range []bool{false, true} {
					if asyncBind && !slices.Contains([]string{"B1", "B6", "D2"}, d.clause) {
						continue
					}
					for _, spec := range run(t, d.fault().behind(&Broker{AsyncBind: asyncBind}), d.clause, settingOf(asyncBind), "OSB_TIMEOUT=500ms") {
						if spec.Failed() {
							failures++
							mu.Lock()
							noticed[spec.FullText()] = true
							mu.Unlock()
						}
					}
				}
				if failures == 0 {
					t.Errorf("no spec of clause %s has failed", d.clause)
				}
			})
		}
	})
	for _, spec := range run(t, &Broker{}, "", "OSB_STRICT=0") {
		if !noticed[spec.FullText()] {
			t.Errorf("no defect makes this spec fail: %s", spec.FullText())
		}
	}
}

func settingOf(asyncBind bool) string {
	if asyncBind {
		return "OSB_ASYNC_BIND=1"
	}
	return "OSB_ASYNC_BIND=0"
}
