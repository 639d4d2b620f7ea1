package catalog

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/charts"
	"github.com/sluice-dev/sluice/internal/charts/chartstest"
)

// TestParametersOfChartsAreNoTemplates: a chart may execute its values with tpl, with the rights to read all of them. So no
// consumer passes a template, whatever its place in the parameters; plans without charts take such texts.
func TestParametersOfChartsAreNoTemplates(t *testing.T) {
	// The chart executes the title, as many charts do.
	archive := chartstest.Pack(t, chartstest.Web(t, map[string]string{
		"web/templates/title.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: title}\ndata: {title: {{ tpl .Values.title . | quote }}}\n",
	}))
	const described = "workload:\n  parameters: {text: {type: string}, nested: {}}"
	of := strings.Replace(site(charts.Digest(archive)), "workload:", described, 1)
	of = strings.Replace(of, "values: {", `values: {title: "${has(parameters.text) ? parameters.text : ''}", `, 1)
	o := offering("a", sells(t, of))
	known := chartstest.Of(t, archive)
	verdicts, err := judge([]v1alpha1.ServiceOffering{o}, known, nil, nil)
	if err != nil || !verdicts[0].accepted {
		t.Fatal(err, verdicts)
	}
	o.Status.Accepted = verdicts[0].spec
	snapshot, err := Build([]v1alpha1.ServiceOffering{o}, nil, known, nil)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := snapshot.Plan("a-id", "a-small")
	if err != nil {
		t.Fatal(err)
	}
	const because = ": may not contain {{ or end with {, because charts may execute their values as templates"
	for parameters, at := range map[string]string{
		`{"owner": "ann", "text": "{ a } {b", "nested": [{"a}}": "}}"}]}`: "-",
		`{"owner": "ann", "text": "{{ .Values.password }}"}`:              "/text",
		`{"owner": "ann", "text": "\u007b\u007b- 1 }}"}`:                  "/text",
		`{"owner": "{{ .Values }}"}`:                                      "/owner",
		`{"owner": "ann", "text": "ends with {"}`:                         "/text",
		`{"owner": "ann", "nested": {"a/b": [1, {"c": "x{{"}]}}`:          "/nested/a~1b/1/c",
		`{"owner": "ann", "nested": {"a": {"b{{": 1}}}`:                   "/nested/a",
	} {
		for name, check := range map[string]func(json.RawMessage) error{"create": plan.ValidateCreate, "update": plan.ValidateUpdate} {
			err := check(json.RawMessage(parameters))
			wrong := (*ParameterError)(nil)
			switch {
			case at == "-" && err != nil:
				t.Errorf("%s with %s: %v", name, parameters, err)
			case at != "-" && (!errors.As(err, &wrong) || err.Error() != "parameters"+at+because):
				t.Errorf("%s with %s: %v, want %s%s", name, parameters, err, at, because)
			}
		}
	}
	if err := firstPlan(t, sells(t, database)).ValidateCreate(json.RawMessage(`{"owner": "{{ .Values }}"}`)); err != nil {
		t.Errorf("without a chart: %v", err)
	}
}
