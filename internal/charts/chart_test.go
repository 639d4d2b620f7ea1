package charts_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/internal/charts"
	"github.com/sluice-dev/sluice/internal/charts/chartstest"
)

// open returns the chart of the web server with other files.
func open(t testing.TB, others map[string]string) *charts.Chart {
	t.Helper()
	chart, err := charts.Open(chartstest.Pack(t, chartstest.Web(t, others)))
	if err != nil {
		t.Fatal(err)
	}
	return chart
}

func TestRender(t *testing.T) {
	for _, row := range []struct {
		name   string
		file   map[string]string
		values map[string]any
		want   []string
	}{
		{"its own objects; no tests, no notes", nil, nil, []string{"Secret web", "Service web", "Deployment web"}},
		{"a dependency whose condition holds", nil, map[string]any{"cache": map[string]any{"enabled": true}}, []string{"ConfigMap web-cache", "Secret web", "Service web", "Deployment web"}},
		{"a schema of more work than others may ask for", map[string]string{"web/values.schema.json": `{"anyOf": [` + strings.Repeat("{}, ", 5000) + `{}]}`}, nil, []string{"Secret web", "Service web", "Deployment web"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			values := map[string]any{"owner": "ann"}
			maps.Copy(values, row.values)
			objects, err := open(t, row.file).Render(charts.Release{Name: "web", Namespace: "n", Values: values})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, o := range objects {
				got = append(got, o.GetKind()+" "+o.GetName())
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A rendering changes neither the chart nor the values that it was given.
func TestRenderAgain(t *testing.T) {
	chart := open(t, nil)
	values := map[string]any{"owner": "ann", "pages": map[string]any{"a": "b"}}
	var renderings []any
	for range 2 {
		objects, err := chart.Render(charts.Release{Name: "web", Namespace: "n", Values: values})
		if err != nil {
			t.Fatal(err)
		}
		renderings = append(renderings, objects)
	}
	if diff := cmp.Diff(renderings[0], renderings[1]); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]any{"owner": "ann", "pages": map[string]any{"a": "b"}}, values); diff != "" {
		t.Error(diff)
	}
}

// Two renderings may have the same order of a map, and a later one another.
func TestRenderInTheOrderOfKeys(t *testing.T) {
	const file = `{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, data: {k: "{{ keys .Values.pages | join "" }}", v: "{{ values .Values.pages | join "" }}", none: "{{ keys dict | toJson }}{{ values dict | toJson }}"}}`
	objects, err := open(t, map[string]string{"web/templates/x.yaml": file}).Render(charts.Release{Name: "web", Namespace: "n", Values: map[string]any{
		"owner": "ann", "pages": map[string]any{"a": "5", "b": "4", "c": "3", "d": "2", "e": "1"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"k": "abcdeindex", "v": "54321hello", "none": "[][]"}
	if diff := cmp.Diff(want, objects[len(objects)-1].Object["data"]); diff != "" {
		t.Error(diff)
	}
}

func TestRefused(t *testing.T) {
	const differs = "web/templates/x.yaml: differs each time it is rendered, because of a function such as randAlphaNum or now; set the value that it generates"
	telling := func(expression string) map[string]string {
		return map[string]string{"web/templates/x.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, annotations: {a: \"{{ " + expression + " }}\"}}\n"}
	}
	const job = "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: migrate\n  annotations: {helm.sh/hook: 'pre-install, pre-upgrade'}\n"
	for _, row := range []struct {
		name    string
		file    map[string]string
		values  map[string]any
		because string
	}{
		{name: "a hook", file: map[string]string{"web/templates/job.yaml": job}, because: "web/templates/job.yaml: Job migrate is a pre-install, pre-upgrade hook; hooks of charts are not run, but those of the plan's bindings are"},
		{name: "a hook that Helm does not know", file: map[string]string{"web/templates/job.yaml": strings.Replace(job, "pre-install, pre-upgrade", "crd-install", 1)}, because: "web/templates/job.yaml: Job migrate is a crd-install hook; hooks of charts are not run, but those of the plan's bindings are"},
		{name: "a random password", file: map[string]string{"web/templates/s.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {p: {{ randAlphaNum 20 }}}\n"}, because: "web/templates/s.yaml: differs each time it is rendered, because of a function such as randAlphaNum or now; set the value that it generates"},
		{name: "the time in seconds", file: telling("now | unixEpoch"), because: differs},
		{name: "the year", file: telling(`now | date "2006"`), because: differs},
		{name: "the day of the week", file: telling(`now | date "Mon"`), because: differs},
		{name: "the date of nothing", file: telling(`htmlDate "x"`), because: differs},
		{name: "the date of nothing in a zone", file: telling(`dateInZone "2006" "x" "UTC"`), because: differs},
		{name: "the time since", file: telling("ago 1700000000"), because: differs},
		{name: "the years since", file: telling(`toDate "2006" "1990" | durationRound`), because: differs},
		{name: "one of two random numbers", file: telling("randInt 0 2"), because: differs},
		{name: "a random digit", file: telling("randNumeric 1"), because: differs},
		{name: "a random letter", file: telling("randAlpha 1"), because: differs},
		{name: "a shuffled text", file: telling(`shuffle "ab"`), because: differs},
		{name: "a value of another type", values: map[string]any{"replicas": "two"}, because: "values/replicas of web: got string, want integer"},
		{name: "a value of a dependency", values: map[string]any{"cache": map[string]any{"enabled": true, "megabytes": 0}}, because: "values/megabytes of cache: minimum: got 0, want 1"},
		{name: "a missing value", values: map[string]any{"owner": nil}, because: "values of web: missing property 'owner'"},
		{name: "a template that fails", file: map[string]string{"web/templates/x.yaml": `{{ fail "no storage" }}`}, because: "execution error at (web/templates/x.yaml:1:3): no storage"},
		{name: "no YAML", file: map[string]string{"web/templates/x.yaml": "a: b: c"}, because: "web/templates/x.yaml: is not YAML: yaml: mapping values are not allowed in this context"},
		{name: "no object", file: map[string]string{"web/templates/x.yaml": "a: b"}, because: "web/templates/x.yaml: has no apiVersion and kind"},
		{name: "a loop of any length", file: map[string]string{"web/templates/x.yaml": "{{ range until 2000000000 }}x{{ end }}"}, because: "2000000000 items are more than 10000"},
		{name: "a text of any length", file: map[string]string{"web/templates/x.yaml": `{{ repeat 2000000000 "xxx" }}`}, because: "2000000000 times 3 bytes are more than 4194304"},
		{name: "a loop longer than numbers", file: map[string]string{"web/templates/x.yaml": "{{ range untilStep -9223372036854775807 9223372036854775807 1 }}x{{ end }}"}, because: "18446744073709551616 items are more than 10000"},
		{name: "a long text many times", file: map[string]string{"web/templates/x.yaml": `{{ range until 10000 }}{{ repeat 4000 "x" }}{{ end }}`}, because: "its templates repeat texts to more than 4194304 bytes"},
		{name: "a loop in a loop", file: map[string]string{"web/templates/x.yaml": "{{ range until 10000 }}{{ range untilStep 0 10000 1 }}{{ end }}{{ end }}"}, because: "its templates count more than 100000 items"},
		{name: "a schema of another host", file: map[string]string{"web/values.schema.json": `{"$ref": "https://example.org/schema.json"}`}, because: `values.schema.json of web: refers to "https://example.org/schema.json"; only references within the schema, starting with #, are allowed`},
	} {
		t.Run(row.name, func(t *testing.T) {
			values := map[string]any{"owner": "ann"}
			maps.Copy(values, row.values)
			if values["owner"] == nil {
				delete(values, "owner")
			}
			_, err := open(t, row.file).Render(charts.Release{Name: "web", Namespace: "n", Values: values})
			if err == nil || !strings.Contains(err.Error(), row.because) {
				t.Errorf("got  %v\nwant %s", err, row.because)
			}
		})
	}
}

func TestNotOpened(t *testing.T) {
	for _, row := range []struct {
		name    string
		file    map[string]string
		because string
	}{
		{"custom resources", map[string]string{"web/crds/crd.yaml": "kind: CustomResourceDefinition"}, "web/crds/crd.yaml: custom resource definitions belong to a whole cluster"},
		{"a library", map[string]string{"web/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\ntype: library\n"}, "web is a library, which installs nothing"},
		{"no chart", map[string]string{"web/Chart.yaml": ""}, "Chart.yaml file is missing"},
		{"a schema that is no JSON", map[string]string{"web/values.schema.json": "x"}, "values.schema.json: "},
		{"a bomb", map[string]string{"web/files/zeros": strings.Repeat("0", 17<<20)}, "unpacked it has "},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := charts.Open(chartstest.Pack(t, chartstest.Web(t, row.file)))
			if err == nil || !strings.Contains(err.Error(), row.because) {
				t.Errorf("got  %v\nwant %s", err, row.because)
			}
		})
	}
}

func TestParameter(t *testing.T) {
	for _, row := range []struct {
		value string
		want  *charts.Parameter
		not   string
	}{
		{value: "replicas", want: &charts.Parameter{Schema: map[string]any{"type": "integer", "minimum": int64(0), "maximum": int64(5), "description": "Number of pods.", "default": float64(1)}}},
		{value: "title", want: &charts.Parameter{Schema: map[string]any{"type": "string", "maxLength": int64(40), "default": "Welcome"}}},
		{value: "owner", want: &charts.Parameter{Schema: map[string]any{"type": "string", "minLength": int64(2)}, Required: true}},
		{value: "pages", not: "the chart's values.schema.json describes it with a $ref, which cannot be shown alone"},
		{value: "cache", not: "the chart's values.schema.json does not describe it"},
	} {
		t.Run(row.value, func(t *testing.T) {
			got, err := open(t, nil).Parameter(row.value)
			if diff := cmp.Diff(row.want, got); diff != "" || (row.not != "" && (err == nil || err.Error() != row.not)) {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
	if _, err := open(t, map[string]string{"web/values.schema.json": ""}).Parameter("title"); err == nil || !strings.Contains(err.Error(), "no values.schema.json") {
		t.Errorf("without a schema: %v", err)
	}
}

func BenchmarkRender(b *testing.B) {
	chart := open(b, nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := chart.Render(charts.Release{Name: "web", Namespace: "n", Values: map[string]any{"owner": "ann"}}); err != nil {
			b.Fatal(err)
		}
	}
}
