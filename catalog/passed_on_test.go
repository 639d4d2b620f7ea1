package catalog

import (
	"encoding/json"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// broker stands for a broker that offers one plan with a schema for everything; without a plan, for one whose catalog
// has none.
func broker(name, schema string, plans ...v1alpha1.OfferedPlan) v1alpha1.MemberCluster {
	m := v1alpha1.MemberCluster{Spec: v1alpha1.MemberClusterSpec{Driver: v1alpha1.DriverOSB}}
	m.Name, m.Status.Broker = name, &v1alpha1.UpstreamBrokerStatus{Plans: plans}
	if schema != "" {
		raw := &runtime.RawExtension{Raw: []byte(schema)}
		m.Status.Broker.Schemas = []v1alpha1.OfferedSchemas{{Plan: "db/small", PlanSchemas: v1alpha1.PlanSchemas{InstanceCreate: raw, InstanceUpdate: raw, BindingCreate: raw}}}
	}
	return m
}

var dbSmall = v1alpha1.OfferedPlan{Service: "db", Plan: "small", ServiceID: "s", PlanID: "p", MaintenanceVersion: "1.2.3"}

// candidate orders the plan small of the service db; template may be empty.
func candidate(broker, template string) v1alpha1.UpstreamCandidate {
	c := v1alpha1.UpstreamCandidate{Broker: broker, Service: "db", Plan: "small"}
	if template != "" {
		c.Parameters = &runtime.RawExtension{Raw: []byte(template)}
	}
	return c
}

// upstream makes the offering's first plan one of other brokers.
func upstream(candidates ...v1alpha1.UpstreamCandidate) edit {
	return func(o *v1alpha1.ServiceOffering) {
		p := &o.Spec.Plans[0]
		p.Kind, p.Resources, p.Upstream = v1alpha1.PlanKindUpstream, nil, &v1alpha1.UpstreamPlan{Candidates: candidates}
	}
}

// sold returns the first plan as it is sold.
func sold(t *testing.T, brokers []v1alpha1.MemberCluster, edits ...edit) *Plan {
	t.Helper()
	o := offering("test", edits...)
	served(&o)
	s, err := Build([]v1alpha1.ServiceOffering{o}, brokers, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Plan("test-id", "test-small")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestSchemasOfCandidates: parameters that no candidate takes are refused, by name; those that one may take are not.
func TestSchemasOfCandidates(t *testing.T) {
	const (
		closed = `{"$schema": "http://json-schema.org/draft-04/schema#", "type": "object", "properties": {"size": {"type": "integer", "maximum": 8}, "key": {"type": "string", "writeOnly": true}}, "required": ["size"], "additionalProperties": false}`
		open   = `{"$schema": "http://json-schema.org/draft-04/schema#", "type": "object", "properties": {"size": {"type": "integer", "maximum": 8}, "disk": {"type": "integer"}}}`
		text   = `{"$schema": "http://json-schema.org/draft-04/schema#", "type": "object", "properties": {"size": {"type": "string"}}, "required": ["size"], "additionalProperties": false}`
		refers = `{"$schema": "http://json-schema.org/draft-04/schema#", "definitions": {"s": {"type": "integer"}}, "type": "object", "properties": {"size": {"$ref": "#/definitions/s"}}, "additionalProperties": false}`
		odd    = `{"$schema": "http://json-schema.org/draft-04/schema#", "type": "object", "anyOf": [{"required": ["size"]}, {"required": ["disk"]}]}`
	)
	type one struct{ schema, template string }
	for name, row := range map[string]struct {
		candidates []one
		create     map[string]string // what is refused of parameters; "" if nothing
		hidden     string
	}{
		"one candidate": {[]one{{closed, ""}}, map[string]string{
			`{"size": 8}`: "", `{"size": 9}`: "parameters/size: maximum: got 9, want 8", `{}`: "parameters: missing property 'size'", `{"size": 1, "disk": 1}`: "parameters/disk: the plan takes no such parameter",
		}, "[key]"},
		"candidates that agree": {[]one{{closed, ""}, {closed, ""}}, map[string]string{`{"size": 9}`: "parameters/size: maximum: got 9, want 8", `{"size": 1}`: ""}, "[key]"},
		"one that takes more":   {[]one{{closed, ""}, {open, ""}}, map[string]string{`{"size": 9}`: "parameters/size: maximum: got 9, want 8", `{"disk": 1, "other": 1}`: "", `{"disk": "x"}`: "parameters/disk: got string, want integer", `{}`: ""}, "[key]"},
		"other types":           {[]one{{closed, ""}, {text, ""}}, map[string]string{`{"size": "L"}`: "", `{"size": 9}`: "", `{}`: "parameters: missing property 'size'", `{"size": 1, "x": 1}`: "parameters/x: the plan takes no such parameter"}, "[key]"},
		"one without a schema":  {[]one{{closed, ""}, {"", ""}}, map[string]string{`{"x": 1}`: ""}, "[key]"},
		"one that says more":    {[]one{{closed, ""}, {odd, ""}}, map[string]string{`{"x": 1}`: ""}, "[key]"},
		"one that refers":       {[]one{{closed, ""}, {refers, ""}}, map[string]string{`{"size": "L"}`: "", `{"x": 1}`: "parameters/x: the plan takes no such parameter"}, "[key]"},
		"alone, with references": {[]one{{refers, ""}}, map[string]string{
			`{"size": "L"}`: "parameters/size: got string, want integer", `{}`: "",
		}, "[]"},
		"sent on under another name": {[]one{{closed, `{"size": "${parameters.cores}", "key": "${parameters.secret}"}`}}, map[string]string{
			`{"cores": 8, "secret": "x"}`: "", `{"cores": 9, "secret": "x"}`: "parameters/cores: maximum: got 9, want 8", `{"cores": 8}`: "parameters: missing property 'secret'", `{"size": 8, "cores": 1, "secret": "x"}`: "parameters/size: the plan takes no such parameter",
		}, "[secret]"},
		"calculated": {[]one{{closed, `{"size": "${has(parameters.cores) ? parameters.cores * 2 : 2}"}`}}, map[string]string{`{"cores": 90}`: "", `{}`: "", `{"size": 1}`: "parameters/size: the plan takes no such parameter"}, "[]"},
		"as a whole": {[]one{{closed, `{"all": "${parameters}"}`}}, map[string]string{`{"x": 90}`: ""}, "[]"},
		"fixed":      {[]one{{closed, `{"size": 3}`}}, map[string]string{`{"size": 90}`: "parameters/size: the plan takes no such parameter", `{}`: ""}, "[]"},
		"with and without a template": {[]one{{closed, ""}, {open, `{"disk": "${parameters.size}"}`}}, map[string]string{
			`{"size": "L"}`: "", `{}`: "parameters: missing property 'size'", `{"size": 1, "x": 1}`: "parameters/x: the plan takes no such parameter",
		}, "[key]"},
	} {
		t.Run(name, func(t *testing.T) {
			var brokers []v1alpha1.MemberCluster
			var candidates []v1alpha1.UpstreamCandidate
			for i, c := range row.candidates {
				name := fmt.Sprint("broker-", i)
				brokers, candidates = append(brokers, broker(name, c.schema, dbSmall)), append(candidates, candidate(name, c.template))
			}
			p := sold(t, brokers, upstream(candidates...))
			for parameters, refusal := range row.create {
				for _, check := range []func(json.RawMessage) error{p.ValidateCreate, p.ValidateUpdate} {
					if got := fmt.Sprint(check([]byte(parameters))); got != refusal && (refusal != "" || got != "<nil>") {
						t.Errorf("%s: %s, want %q", parameters, got, refusal)
					}
				}
			}
			if got := fmt.Sprint(p.HiddenParameters(nil)); got != row.hidden {
				t.Errorf("%s are hidden, want %s", got, row.hidden)
			}
			// The same again, though maps have no order.
			one, _, _ := p.Schemas()
			two, _, _ := sold(t, brokers, upstream(candidates...)).Schemas()
			if string(one) != string(two) {
				t.Errorf("the schema is %s, and then %s", one, two)
			}
		})
	}
	t.Run("the operator's own", func(t *testing.T) {
		p := sold(t, []v1alpha1.MemberCluster{broker("eu", closed, dbSmall)}, upstream(candidate("eu", "")), schemas(`{"properties": {"size": {"type": "string"}}}`, "", ""))
		if err := p.ValidateCreate([]byte(`{"size": "L"}`)); err != nil {
			t.Error(err)
		}
		if err := p.ValidateBind([]byte(`{"size": "L"}`)); err == nil {
			t.Error("a bind is not checked by the broker's schema")
		}
	})
	t.Run("none that OSB allows", func(t *testing.T) {
		large := `{"type": "object", "required": ["x"], "description": "` + fmt.Sprintf("%065000d", 0) + `"}`
		if err := sold(t, []v1alpha1.MemberCluster{broker("eu", large, dbSmall)}, upstream(candidate("eu", ""))).ValidateCreate(nil); err != nil {
			t.Error(err)
		}
	})
}

// TestPassedOn: a plan is not bindable, fixed, or of a version, if its candidates are; and it is withdrawn if none
// is offered any more.
func TestPassedOn(t *testing.T) {
	with := func(change func(*v1alpha1.OfferedPlan)) v1alpha1.OfferedPlan {
		p := dbSmall
		change(&p)
		return p
	}
	unbound := with(func(p *v1alpha1.OfferedPlan) { p.NotBindable = true })
	fixed := with(func(p *v1alpha1.OfferedPlan) { p.NotUpdateable = true })
	later := with(func(p *v1alpha1.OfferedPlan) { p.MaintenanceVersion = "2.0.0" })
	odd := with(func(p *v1alpha1.OfferedPlan) { p.MaintenanceVersion = "first" })
	unread := broker("eu", "")
	unread.Status.Broker = nil
	own := func(o *v1alpha1.ServiceOffering) {
		o.Spec.Plans[0].MaintenanceInfo = &v1alpha1.MaintenanceInfo{Version: "7.0.0"}
	}
	waits := func(o *v1alpha1.ServiceOffering) { o.Spec.Plans[0].WaitFor = v1alpha1.WaitForAnything }
	second := func(o *v1alpha1.ServiceOffering) {
		upstream(candidate("eu", `{"size": 2}`), candidate("us", ""))(o)
		o.Spec.Plans[1].Kind, o.Spec.Plans[1].Resources, o.Spec.Plans[1].Upstream = v1alpha1.PlanKindUpstream, nil, o.Spec.Plans[0].Upstream.DeepCopy()
	}
	for name, row := range map[string]struct {
		brokers []v1alpha1.MemberCluster
		edits   []edit
		want    string // bindable, updateable, version, withdrawn
	}{
		"as usual":                   {[]v1alpha1.MemberCluster{broker("eu", "", dbSmall), broker("us", "", dbSmall)}, nil, "true true 1.2.3 false"},
		"the operator's version":     {[]v1alpha1.MemberCluster{broker("eu", "", dbSmall)}, []edit{own}, "true true 7.0.0 false"},
		"versions that differ":       {[]v1alpha1.MemberCluster{broker("eu", "", dbSmall), broker("us", "", later)}, nil, "true true  false"},
		"no semantic version":        {[]v1alpha1.MemberCluster{broker("eu", "", odd)}, nil, "true true  false"},
		"one not bindable":           {[]v1alpha1.MemberCluster{broker("eu", "", dbSmall), broker("us", "", unbound)}, nil, "true true 1.2.3 false"},
		"none bindable":              {[]v1alpha1.MemberCluster{broker("eu", "", unbound), broker("us", "", unbound)}, nil, "false true 1.2.3 false"},
		"one fixed":                  {[]v1alpha1.MemberCluster{broker("eu", "", dbSmall), broker("us", "", fixed)}, nil, "true true 1.2.3 false"},
		"all fixed":                  {[]v1alpha1.MemberCluster{broker("eu", "", fixed), broker("us", "", fixed)}, nil, "true false 1.2.3 false"},
		"fixed, and of no other":     {[]v1alpha1.MemberCluster{broker("eu", "", fixed), broker("us", "", fixed)}, []edit{second}, "true true 1.2.3 false"},
		"one gone":                   {[]v1alpha1.MemberCluster{broker("eu", ""), broker("us", "", dbSmall)}, nil, "true true 1.2.3 false"},
		"all gone":                   {[]v1alpha1.MemberCluster{broker("eu", ""), broker("us", "")}, nil, "true true  true"},
		"all gone, and orders wait":  {[]v1alpha1.MemberCluster{broker("eu", ""), broker("us", "")}, []edit{waits}, "true true  false"},
		"one gone, one not read yet": {[]v1alpha1.MemberCluster{broker("us", ""), unread}, nil, "true true  false"},
		"one gone, one no broker":    {[]v1alpha1.MemberCluster{broker("us", "")}, nil, "true true  true"},
		"nothing known":              {nil, nil, "true true  false"},
	} {
		t.Run(name, func(t *testing.T) {
			p := sold(t, row.brokers, append([]edit{upstream(candidate("eu", ""), candidate("us", ""))}, row.edits...)...)
			version := ""
			if p.MaintenanceInfo != nil {
				version = p.MaintenanceInfo.Version
			}
			if got := fmt.Sprint(p.IsBindable(), p.IsPlanUpdateable(), " "+version+" ", p.Withdrawn); got != row.want {
				t.Errorf("it is %s, want %s", got, row.want)
			}
		})
	}
}
