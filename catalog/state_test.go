package catalog

import (
	"fmt"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/internal/workload"
)

// TestValidateState: parameters that are changed are checked by the schema of an update, those of a provision or of a change
// of plan alone by that of a provision, and others not again.
func TestValidateState(t *testing.T) {
	const (
		connections = `{"type": "object", "properties": {"connections": {"type": "integer", "maximum": 10}}, "required": ["connections"], "additionalProperties": false}`
		located     = `{"type": "object", "properties": {"region": {"type": "string"}, "size": {"type": "integer"}}, "required": ["region"], "additionalProperties": false}`
		sized       = `{"type": "object", "properties": {"size": {"type": "integer"}}, "additionalProperties": false}`
		secret      = `{"type": "object", "properties": {"token": {"type": "string", "writeOnly": true}, "size": {"type": "integer"}}, "required": ["token"], "additionalProperties": false}`
		keyed       = `{"type": "object", "properties": {"token": {"type": "string", "writeOnly": true}, "pass": {"writeOnly": true}, "size": {"type": "integer"}}, "additionalProperties": false}`
		passed      = `{"type": "object", "properties": {"pass": {"type": "string", "writeOnly": true}, "size": {"type": "integer"}}, "required": ["pass"], "additionalProperties": false}`
		unknown     = ": the plan takes no such parameter"
	)
	offered := func(create, update string) *Plan {
		b := broker("eu", create, dbSmall)
		b.Status.Broker.Schemas[0].InstanceUpdate = &runtime.RawExtension{Raw: []byte(update)}
		return sold(t, []v1alpha1.MemberCluster{b}, upstream(candidate("eu", "")))
	}
	own := sold(t, nil, upstream(candidate("eu", `{"max": "${parameters.connections}"}`)), schemas(connections, "", ""))
	differ, hides, both := offered(located, sized), offered(secret, sized), offered(keyed, passed)
	keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	if err != nil {
		t.Fatal(err)
	}
	of := workload.Parameters{Namespace: "n", Name: "si-1", Keys: keys}
	for name, row := range map[string]struct {
		plan           *Plan
		before, wanted string // before is empty for a provision
		changesPlan    bool
		refusal        string
	}{
		"the operator's schema, provision":                        {own, "", `{"connections": 2}`, false, ""},
		"the operator's schema, another parameter":                {own, `{"connections": 2}`, `{"connections": 2, "x": 1}`, false, "parameters/x" + unknown},
		"the operator's schema, too many":                         {own, `{"connections": 2}`, `{"connections": 11}`, false, "parameters/connections: maximum: got 11, want 10"},
		"the operator's schema, none":                             {own, `{"connections": 2}`, `{}`, false, "parameters: missing property 'connections'"},
		"the operator's schema, update":                           {own, `{"connections": 2}`, `{"connections": 3}`, false, ""},
		"nothing changes though the plan was narrowed":            {own, `{"connections": 20}`, `{"connections": 20}`, false, ""},
		"only the plan changes":                                   {own, `{"connections": 20}`, `{"connections": 20}`, true, "parameters/connections: maximum: got 20, want 10"},
		"provision without what only a provision takes":           {differ, "", `{"size": 1}`, false, "parameters: missing property 'region'"},
		"update without what only a provision takes":              {differ, `{"region": "eu", "size": 1}`, `{"size": 2}`, false, ""},
		"update with what only a provision takes":                 {differ, `{"region": "eu", "size": 1}`, `{"region": "eu", "size": 2}`, false, "parameters/region" + unknown},
		"a change of plan alone":                                  {differ, `{"region": "eu"}`, `{"region": "eu"}`, true, ""},
		"update beside a secret that only a provision takes":      {hides, `{"token": "hunter2", "size": 1}`, `{"token": "hunter2", "size": 2}`, false, ""},
		"update of a secret that only a provision takes":          {hides, `{"token": "hunter2", "size": 1}`, `{"token": "hunter3", "size": 1}`, false, "parameters/token" + unknown},
		"update beside that secret and one that is required":      {both, `{"token": "hunter2", "pass": "word"}`, `{"token": "hunter2", "pass": "word", "size": 2}`, false, ""},
		"update that drops the secret that is required":           {both, `{"token": "hunter2", "pass": "word"}`, `{"token": "hunter2", "size": 2}`, false, "parameters: missing property 'pass'"},
		"update beside secrets, of what the schema does not take": {both, `{"token": "hunter2", "pass": "word"}`, `{"token": "hunter2", "pass": "word", "x": 2}`, false, "parameters/x" + unknown},
	} {
		t.Run(name, func(t *testing.T) {
			state := func(plan, parameters string) *v1alpha1.InstanceState {
				stored, err := of.Sealed(row.plan.HiddenParameters(nil), []byte(parameters))
				if err != nil {
					t.Fatal(err)
				}
				return &v1alpha1.InstanceState{PlanID: plan, Parameters: &runtime.RawExtension{Raw: stored}}
			}
			var inForce *v1alpha1.InstanceState
			if row.before != "" {
				inForce = state("test-small", row.before)
			}
			plan := "test-small"
			if row.changesPlan {
				plan = "test-large"
			}
			err := row.plan.ValidateState(of, inForce, state(plan, row.wanted))
			if got := fmt.Sprint(err); row.refusal == "" && err != nil || row.refusal != "" && got != row.refusal {
				t.Errorf("got %s, want %q", got, row.refusal)
			}
		})
	}
}
