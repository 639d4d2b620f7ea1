package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func TestParametersAreChecked(t *testing.T) {
	const draft07 = `"$schema":"http://json-schema.org/draft-07/schema#",`
	for name, row := range map[string]struct {
		edits      []edit
		parameters string
		path       string // of the error
		message    string // part of it; empty for none
	}{
		"none where none are taken":               {nil, ``, "", ""},
		"null where none are taken":               {nil, `null`, "", ""},
		"an empty object where none are taken":    {nil, `{}`, "", ""},
		"one where none are taken":                {nil, `{"a":1}`, "/a", "takes no such parameter"},
		"a list":                                  {nil, `[]`, "", "want an object"},
		"text that is no JSON":                    {nil, `{"a":`, "", "ends too early"},
		"clusters within range":                   {[]edit{selectable}, `{"clusters":3}`, "", ""},
		"clusters as 2.0":                         {[]edit{selectable}, `{"clusters":2.0}`, "", ""},
		"too many clusters":                       {[]edit{selectable}, `{"clusters":4}`, "/clusters", "maximum"},
		"no clusters":                             {[]edit{selectable}, `{"clusters":0}`, "/clusters", "minimum"},
		"clusters as text":                        {[]edit{selectable}, `{"clusters":"2"}`, "/clusters", "want integer"},
		"half a cluster":                          {[]edit{selectable}, `{"clusters":1.5}`, "/clusters", "want integer"},
		"a selectable label":                      {[]edit{selectable}, `{"selector":{"topology.kubernetes.io/region":"eu"}}`, "", ""},
		"a label that is not selectable":          {[]edit{selectable}, `{"selector":{"zone/x":"eu"}}`, "/selector/zone~1x", "takes no such parameter"},
		"a label value that is none":              {[]edit{selectable}, `{"selector":{"topology.kubernetes.io/region":"e u"}}`, "/selector/topology.kubernetes.io~1region", "pattern"},
		"clusters where there is no choice":       {nil, `{"clusters":1}`, "/clusters", "takes no such parameter"},
		"what the operator requires":              {[]edit{selectable, schemas(`{"required":["clusters"]}`, "", "")}, `{}`, "", "clusters"},
		"what the operator narrows":               {[]edit{selectable, schemas(`{"properties":{"clusters":{"maximum":2}}}`, "", "")}, `{"clusters":3}`, "/clusters", "maximum"},
		"what only the operator allows":           {[]edit{selectable, schemas(`{"properties":{"team":{}}}`, "", "")}, `{"team":"a"}`, "/team", "takes no such parameter"},
		"an operator's local reference":           {[]edit{selectable, schemas(`{`+draft07+`"$ref":"#/definitions/two","definitions":{"two":{"properties":{"clusters":{"enum":[2]}}}}}`, "", "")}, `{"clusters":3}`, "/clusters", "must be"},
		"beside an operator's reference":          {[]edit{selectable, schemas(`{`+draft07+`"$ref":"#/definitions/any","definitions":{"any":{}}}`, "", "")}, `{"clusters":9}`, "/clusters", "maximum"},
		"an alternative of the operator's":        {[]edit{selectable, schemas(`{"oneOf":[{"required":["clusters"]},{"required":["selector"]}]}`, "", "")}, `{}`, "", "oneOf"},
		"draft 2020-12, where format is no check": {[]edit{selectable, schemas(`{"$schema":"https://json-schema.org/draft/2020-12/schema","minProperties":1}`, "", "")}, `{}`, "", "minProperties"},
	} {
		t.Run(name, func(t *testing.T) {
			err := firstPlan(t, row.edits...).ValidateCreate(json.RawMessage(row.parameters))
			if row.message == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			var refused *ParameterError
			if !errors.As(err, &refused) {
				t.Fatalf("got %v, want a *ParameterError", err)
			}
			if refused.Path != row.path {
				t.Errorf("path %q, want %q", refused.Path, row.path)
			}
			contains(t, refused.Message, row.message)
		})
	}
}

// forks returns a schema of which the check takes for ever.
func forks() string {
	text := `{"$ref":"#/definitions/a0","definitions":{"a40":{}`
	for i := range 40 {
		text += fmt.Sprintf(`,"a%d":{"allOf":[{"$ref":"#/definitions/a%d"},{"$ref":"#/definitions/a%d"}]}`, i, i+1, i+1)
	}
	text += "}}"
	return text
}

func TestSchemasAreRefused(t *testing.T) {
	for name, row := range map[string]struct{ schema, message string }{
		"an external reference":      {`{"$ref":"https://example.com/schema.json"}`, "only references within"},
		"a file":                     {`{"properties":{"a":{"$ref":"file:///etc/passwd"}}}`, "only references within"},
		"a reference to a draft":     {`{"items":{"$ref":"http://json-schema.org/draft-07/schema#"}}`, "only references within"},
		"a dynamic external one":     {`{"$schema":"https://json-schema.org/draft/2020-12/schema","$dynamicRef":"x#y"}`, "only references within"},
		"an unknown draft":           {`{"$schema":"https://example.com/draft"}`, "neither a known draft"},
		"a broken local reference":   {`{"allOf":[{"$ref":"#/definitions/none"}]}`, "not a JSON Schema"},
		"a type that there is not":   {`{"type":"text"}`, "not a JSON Schema"},
		"a pattern that is none":     {`{"properties":{"a":{"pattern":"("}}}`, "not a JSON Schema"},
		"a list":                     {`[]`, "want an object"},
		"references that fork":       {forks(), "against more than 5000 schemas"},
		"more than 64 kB":            {`{"description":"` + strings.Repeat("x", MaxSchemaBytes) + `"}`, "more than"},
		"draft-04 with a later word": {`{"$schema":"http://json-schema.org/draft-04/schema#","exclusiveMinimum":1}`, "not a JSON Schema"},
	} {
		t.Run(name, func(t *testing.T) {
			for which, with := range map[string]edit{
				"instanceCreate": schemas(row.schema, "", ""), "instanceUpdate": schemas("", row.schema, ""), "bindingCreate": schemas("", "", row.schema),
			} {
				o := offering("test", with)
				_, err := newOffering(&o.Spec, known{}, nil, false)
				if err == nil {
					t.Fatalf("%s: accepted", which)
				}
				contains(t, err.Error(), row.message)
				contains(t, err.Error(), which)
				contains(t, err.Error(), "test-small")
			}
		})
	}
}

func TestSchemasSayWhatIsTaken(t *testing.T) {
	create, update, bind := firstPlan(t).Schemas()
	for name, document := range map[string]json.RawMessage{"create": create, "update": update, "bind": bind} {
		var got map[string]any
		if err := json.Unmarshal(document, &got); err != nil {
			t.Fatal(err)
		}
		if got["$schema"] != draft04 || got["additionalProperties"] != false || got["type"] != "object" {
			t.Errorf("%s: %s", name, document)
		}
	}
	create, _, bind = firstPlan(t, selectable, schemas(`{"$schema":"http://json-schema.org/draft-06/schema#","title":"t"}`, "", `{"properties":{"role":{}}}`)).Schemas()
	contains(t, string(create), `"$schema":"http://json-schema.org/draft-06/schema#"`)
	contains(t, string(create), `"title":"t"`)
	contains(t, string(create), `"maximum":3`)
	contains(t, string(bind), `"role"`)
	contains(t, string(bind), draft04)
}

// An update does not move an instance, and its schema states so for each parameter that a
// consumer might expect to move it.
func TestTheSchemaOfAnUpdateSaysThatTheInstanceStays(t *testing.T) {
	create, update, _ := firstPlan(t, selectable).Schemas()
	describes := func(document json.RawMessage, parameter string) bool {
		var schema struct {
			Properties map[string]struct {
				Description string `json:"description"`
			} `json:"properties"`
		}
		if err := json.Unmarshal(document, &schema); err != nil {
			t.Fatal(err)
		}
		property, ok := schema.Properties[parameter]
		if !ok {
			t.Fatalf("no parameter %s", parameter)
		}
		return strings.Contains(property.Description, "does not move the instance")
	}
	if !describes(update, "selector") || describes(update, "clusters") || describes(create, "selector") {
		t.Errorf("create: %s\nupdate: %s", create, update)
	}
}

// Parameters of a broker's or a workload's own say nothing of that, whatever their names are.
func TestTheSchemaOfAnUpdateOfOwnParametersIsAsItIs(t *testing.T) {
	_, update, _ := sold(t, []v1alpha1.MemberCluster{broker("eu", `{"type":"object","properties":{"location":{"type":"string"},"cluster":{"description":"A."}}}`, dbSmall)}, upstream(candidate("eu", ""))).Schemas()
	_, ofWorkload, _ := firstPlan(t, func(o *v1alpha1.ServiceOffering) {
		p := &o.Spec.Plans[0]
		p.Kind, p.Resources, p.Workload = v1alpha1.PlanKindWorkload, nil, &v1alpha1.WorkloadPlan{
			Components: []v1alpha1.WorkloadComponent{{Name: "web"}},
			Parameters: map[string]v1alpha1.ParameterSchema{"location": {RawExtension: runtime.RawExtension{Raw: []byte(`{"type":"string"}`)}}},
		}
	}).Schemas()
	for _, document := range []json.RawMessage{update, ofWorkload} {
		if strings.Contains(string(document), "does not move the instance") || !strings.Contains(string(document), `"location"`) {
			t.Errorf("the schema is %s", document)
		}
	}
}

func TestEachRequestHasItsSchema(t *testing.T) {
	p := firstPlan(t, selectable, schemas(`{"required":["clusters"]}`, `{"maxProperties":0}`, `{"required":["role"]}`))
	if p.ValidateCreate([]byte(`{"clusters":2}`)) != nil || p.ValidateUpdate([]byte(`{"clusters":2}`)) == nil {
		t.Error("provision and update are checked alike")
	}
	if p.ValidateBind([]byte(`{"role":"a","more":1}`)) != nil || p.ValidateBind(nil) == nil {
		t.Error("bind is not checked against its schema")
	}
}

func TestResourcesParameters(t *testing.T) {
	p := firstPlan(t, selectable)
	for parameters, want := range map[string]ResourcesParameters{
		``:                 {Clusters: 1},
		`null`:             {Clusters: 1},
		`{}`:               {Clusters: 1},
		`{"clusters":2.0}`: {Clusters: 2},
		`{"selector":{"topology.kubernetes.io/region":"eu"}}`: {Clusters: 1, Selector: map[string]string{"topology.kubernetes.io/region": "eu"}},
	} {
		got, err := p.ResourcesParameters([]byte(parameters))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", parameters, got, err)
		}
	}
	p.Kind = v1alpha1.PlanKindCluster
	if _, err := p.ResourcesParameters(nil); err == nil {
		t.Error("parameters of a plan that sells no resources")
	}
}

func FuzzSchemas(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"a":{"$ref":"#/definitions/b"}},"definitions":{"b":{}}}`), []byte(`{"a":1}`))
	f.Add([]byte(`{"$ref":"x"}`), []byte(`null`))
	f.Fuzz(func(t *testing.T, document, parameters []byte) {
		o := offering("test", selectable, schemas(string(document), "", ""))
		built, err := newOffering(&o.Spec, known{}, nil, false)
		if err != nil {
			return
		}
		p := built.Plans[0]
		create, _, _ := p.Schemas()
		var advertised map[string]any
		if err := json.Unmarshal(create, &advertised); err != nil || advertised["$schema"] == nil || len(create) > MaxSchemaBytes {
			t.Errorf("advertised %s", create)
		}
		if p.ValidateCreate(parameters) != nil {
			return
		}
		chosen, err := p.ResourcesParameters(parameters)
		if err != nil || chosen.Clusters < 1 || chosen.Clusters > 3 {
			t.Errorf("accepted %q under %q: %+v, %v", parameters, document, chosen, err)
		}
	})
}

func BenchmarkValidateCreate(b *testing.B) {
	p := firstPlan(b, selectable)
	parameters := []byte(`{"clusters":2,"selector":{"topology.kubernetes.io/region":"eu"}}`)
	b.ReportAllocs()
	for b.Loop() {
		if err := p.ValidateCreate(parameters); err != nil {
			b.Fatal(err)
		}
	}
}
