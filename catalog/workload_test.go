package catalog

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/charts"
	"github.com/sluice-dev/sluice/internal/charts/chartstest"
	"github.com/sluice-dev/sluice/internal/strictjson"
)

// sells makes the first plan one of kind workload.
func sells(t testing.TB, document string) edit {
	t.Helper()
	var p v1alpha1.Plan
	if err := yaml.UnmarshalStrict([]byte(document), &p); err != nil {
		t.Fatalf("%v in\n%s", err, document)
	}
	return func(o *v1alpha1.ServiceOffering) {
		first := &o.Spec.Plans[0]
		first.Kind, first.Workload, first.Resources, first.Credentials = v1alpha1.PlanKindWorkload, p.Workload, p.Resources, p.Credentials
	}
}

// database is a workload of one component with a required parameter.
const database = `
workload:
  parameters:
    size: {type: string, enum: [small, large], default: small}
    replicas: {type: integer, minimum: 1, maximum: 3, default: 1}
    owner: {type: string, minLength: 2}
  required: [owner]
  secrets: [{name: password}]
  components:
  - name: db
    ports: [{name: sql, port: 5432}]
    container:
      image: db
      env: {OWNER: "${parameters.owner}"}
      replicas: "${parameters.replicas}"
      resources: {cpu: "${parameters.size == 'small' ? '100m' : '1'}", memory: 64Mi}
  credentials: {uri: "sql://${secrets.password}@${components.db.host}"}
`

// kept is a workload with a volume that can be backed up.
const kept = `
workload:
  components:
  - name: db
    container:
      image: db
      volumes: [{name: data, mountPath: /data, storageClass: fast, size: 1Gi}]
      backup: &copy {image: tool, command: [copy, "${target.url}/${backup.id}"], resources: {cpu: 100m, memory: 64Mi}}
      restore: *copy
      resources: {cpu: 100m, memory: 64Mi}
`

// application is a workload of components on clusters of their own.
const application = `
resources: {components: [{name: web}, {name: db}, {name: job}], links: [{between: [web, db]}]}
workload:
  components:
  - {name: web, container: {image: web, resources: {cpu: 100m, memory: 64Mi}}}
  - {name: db, ports: [{name: sql, port: 5432}], container: {image: db, resources: {cpu: 200m, memory: 64Mi}}}
  - {name: job, container: {image: job, resources: {cpu: 300m, memory: 64Mi}}}
`

// scheduled adds backups to a plan.
func scheduled(plan, when string) string {
	return strings.Replace(plan, "workload:\n", "workload:\n  backups: {schedule: \""+when+"\"}\n", 1)
}

func TestWorkloadPlansAreAcceptedWhenTheyRender(t *testing.T) {
	component := strings.ReplaceAll(database, "replicas: {type", "count: {type")
	for _, test := range []struct{ name, plan, because string }{
		{"one that renders", database, ""},
		{"within its limits", database + "resources: {limits: {cpu: 200m, memory: 128Mi, pods: 2}}", ""},
		{"more than its limits", database + "resources: {limits: {cpu: 100m}}", "plan a-small: workload: parameters: the workload takes 200m cpu, the plan allows 100m"},
		{"an expression that fails", component, "plan a-small: workload: parameters: components[db].container.replicas: ${parameters.replicas}: no such key: replicas"},
		{"credentials that fail", strings.Replace(database, "components.db.host", "components.web.host", 1), "plan a-small: workload: credentials.uri: ${components.web.host}: no such key: web"},
		{"an account that the plan does not give", strings.Replace(database, "${components.db.host}", "${kubernetes.token}", 1), "plan a-small: workload: credentials.uri: ${kubernetes.token}: no such key: token"},
		{"an account that the plan gives", strings.Replace(database, "${components.db.host}", "${kubernetes.token}", 1) + "credentials: {role: view}", ""},
		{"a required parameter that is not there", strings.Replace(database, "required: [owner]", "required: [name]", 1), "plan a-small: workload.required: there is no parameter name"},
		{"a parameter twice", strings.Replace(database, "owner: {type", "selector: {type", 1) + "resources: {selectable: [a]}", "plan a-small: workload.parameters: selector is a parameter of resources already"},
		{"a parameter with no schema", strings.Replace(database, "{type: string, minLength: 2}", "{type: 1}", 1), "schema instanceCreate of plan a-small: not a JSON Schema"},
		{"components on clusters of their own", application, ""},
		{"a component without a cluster", strings.Replace(application, "{name: job}", "{name: web2}", 1), "plan a-small: resources.components: job is missing"},
		{"a cluster for no component", strings.Replace(application, "{name: db}", "{name: db}, {name: cache}", 1), "plan a-small: resources.components[cache]: the workload has no such component"},
		{"limits for a component", strings.Replace(application, "{name: db}", "{name: db, limits: {cpu: 1}}", 1), "plan a-small: resources.components[db].limits: cannot be set, because the resources of a workload's components are computed"},
		{"a link to nothing that listens", strings.Replace(application, "[web, db]", "[web, job]", 1), "plan a-small: resources.links[0]: neither web nor job has ports"},
		{"components and a peering", strings.Replace(application, "links", "peering: {gives: Network}, links", 1), ""},
		{"replicas over clusters", strings.ReplaceAll(component, "${parameters.replicas}", "${cluster.replicas}") + "resources: {clusters: 2, replicas: {count: 2}}", ""},
		{"replicas that nothing divides", strings.ReplaceAll(component, "${parameters.replicas}", "1") + "resources: {replicas: {count: 2}}", "plan a-small: workload: parameters: replicas of resources: are divided by no component: what uses ${cluster.replicas} has its share of them"},
		{"a parameter for replicas over clusters", database + "resources: {replicas: {count: 2, max: 3}}", "plan a-small: workload.parameters: replicas is a parameter of resources already"},
		{"nodes of the consumer's", database + "resources: {peering: {gives: Node}}", "plan a-small: resources.peering.gives: Node: cannot be combined with kind: workload"},
		{"a backup", kept, ""},
		{"a backup, and an account that sees the target's credentials", kept + "credentials: {role: edit}", "plan a-small: credentials.role: edit cannot be combined with a backup, because consumers could read the credentials of the target"},
		{"a schedule of backups", scheduled(kept, "0 3 * * *"), ""},
		{"no schedule", scheduled(kept, "daily"), "plan a-small: workload.backups.schedule: want a cron expression with five fields, for instance \"0 3 * * *\": expected exactly 5 fields, found 1: [daily]"},
		{"backups without hooks", scheduled(database, "0 3 * * *"), "plan a-small: workload.backups: all components have to be containers, and those with volumes need backup and restore"},
		{"backups on two clusters", scheduled(kept, "0 3 * * *") + "resources: {clusters: 2}", "plan a-small: workload.backups: cannot be combined with several clusters, or with components on clusters of their own"},
		{"a role of clusters", database + "credentials: {role: admin}", "plan a-small: credentials.role: admin is for cluster plans (cluster.roles); want edit or view"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := offering("a", sells(t, test.plan))
			err := checkAlone(&o.Spec, nil)
			switch {
			case test.because == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.because != "" && (err == nil || !strings.Contains(err.Error(), test.because)):
				t.Errorf("got  %v\nwant %s", err, test.because)
			}
		})
	}
}

func TestOrdersOfWorkloads(t *testing.T) {
	p := firstPlan(t, sells(t, database+"resources: {limits: {cpu: 1500m}}"))
	for _, test := range []struct{ name, parameters, because, cpu string }{
		{"what is required", `{"owner": "me"}`, "", "200m"},
		{"nothing", ``, "parameters: missing property 'owner'", ""},
		{"another type", `{"owner": 1}`, "parameters/owner: got number, want string", ""},
		{"an unknown one", `{"owner": "me", "color": "red"}`, "parameters/color: the plan takes no such parameter", ""},
		{"more replicas", `{"owner": "me", "replicas": 3}`, "", "400m"},
		{"more than the plan has", `{"owner": "me", "size": "large"}`, "parameters: the workload takes 2 cpu, the plan allows 1500m", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := p.ValidateCreate(json.RawMessage(test.parameters))
			var wrong *ParameterError
			switch {
			case test.because == "" && err != nil:
				t.Fatalf("refused: %v", err)
			case test.because == "":
				footprint, err := p.Footprint(json.RawMessage(test.parameters))
				if err != nil {
					t.Fatal(err)
				}
				if cpu := footprint.Takes.Cpu(); cpu.String() != test.cpu {
					t.Errorf("takes %s cpu, want %s", cpu, test.cpu)
				}
			case !errors.As(err, &wrong) || wrong.Error() != test.because:
				t.Errorf("got  %v\nwant %s", err, test.because)
			}
		})
	}
}

func TestWhatEachComponentTakes(t *testing.T) {
	footprint, err := firstPlan(t, sells(t, application+`  bindings: {bind: {image: tool, resources: {cpu: 50m, memory: 64Mi}}}`)).Footprint(nil)
	if err != nil {
		t.Fatal(err)
	}
	// Of each one more pod, for a rollout; and beside the first the hook.
	for name, want := range map[string]string{"web": "250m", "db": "400m", "job": "600m"} {
		taken := footprint.Components[name]
		if cpu := taken.Cpu(); cpu.String() != want {
			t.Errorf("%s takes %s cpu, want %s", name, cpu, want)
		}
	}
	if cpu := footprint.Takes.Cpu(); cpu.String() != "1250m" {
		t.Errorf("all take %s cpu, want 1250m", cpu)
	}
}

func TestARunningWorkloadIsNotThatOfThePlan(t *testing.T) {
	p := firstPlan(t, sells(t, database))
	var before v1alpha1.Plan
	if err := yaml.Unmarshal([]byte(strings.Replace(database, "'100m'", "'300m'", 1)), &before); err != nil {
		t.Fatal(err)
	}
	footprint, err := p.Running(before.Workload).Footprint(json.RawMessage(`{"owner": "me"}`))
	if err != nil {
		t.Fatal(err)
	}
	if cpu := footprint.Takes.Cpu(); cpu.String() != "600m" {
		t.Errorf("takes %s cpu, want 600m", cpu)
	}
}

// TestDocumentedPlan accepts the plans that docs/workloads.md shows, one with the bindings that it
// shows.
func TestDocumentedPlan(t *testing.T) {
	page, err := os.ReadFile("../docs/workloads.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, block := range strings.Split(string(page), "```yaml\n")[1:] {
		blocks = append(blocks, block[:strings.Index(block, "```")])
	}
	if len(blocks) != 13 {
		t.Fatalf("the page has %d blocks of YAML, want a plan of a chart, a plan, one with a public port, one that has TLS, one of plain TCP, one of resources, one over several clusters, one whose pods are divided, a rule of a policy, bindings, bindings with results, a backup, and pull secrets", len(blocks))
	}
	var policy v1alpha1.PlacementPolicySpec
	if err := yaml.UnmarshalStrict([]byte(blocks[8]), &policy); err != nil {
		t.Error(err)
	}
	var with struct{ Bindings *v1alpha1.WorkloadBindings }
	if err := yaml.UnmarshalStrict([]byte(blocks[9]), &with); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{blocks[10], blocks[11]} {
		if err := yaml.UnmarshalStrict([]byte(part), &struct {
			v1alpha1.WorkloadComponent
			Bindings    *v1alpha1.WorkloadBindings
			Credentials *runtime.RawExtension
		}{}); err != nil {
			t.Error(err)
		}
	}
	chart := offering("a", sells(t, strings.TrimPrefix(blocks[0], "kind: workload\n")))
	o := offering("a", sells(t, strings.TrimPrefix(blocks[1], "kind: workload\n")))
	workload := func(block string) v1alpha1.ServiceOffering {
		return offering("a", sells(t, "workload:\n  "+strings.ReplaceAll(strings.TrimSpace(block), "\n", "\n  ")))
	}
	site, sealed, plain := workload(blocks[2]), workload(blocks[3]), workload(blocks[4])
	open := offering("a", sells(t, strings.TrimPrefix(blocks[5], "kind: resources\n")), func(o *v1alpha1.ServiceOffering) { o.Spec.Plans[0].Kind = v1alpha1.PlanKindResources })
	linked := offering("a", sells(t, strings.TrimPrefix(blocks[6], "kind: workload\n")))
	divided := offering("a", sells(t, strings.TrimPrefix(blocks[7], "kind: workload\n")))
	w := o.Spec.Plans[0].Workload
	w.Bindings = with.Bindings
	var pulls v1alpha1.WorkloadPlan
	if err := yaml.UnmarshalStrict([]byte(blocks[12]), &pulls); err != nil {
		t.Fatal(err)
	}
	maps.Copy(w.Parameters, pulls.Parameters)
	w.Required, w.PullSecrets = []string{"registry"}, pulls.PullSecrets
	archive := chartstest.Pack(t, chartstest.Web(t, nil))
	known := chartstest.Of(t, archive)
	chart.Spec.Plans[0].Workload.Components[0].Chart.Digest = charts.Digest(archive) // the page's is made up
	for _, o := range []v1alpha1.ServiceOffering{chart, o, site, sealed, plain, open, linked, divided} {
		verdicts, err := judge([]v1alpha1.ServiceOffering{o}, known, nil, nil)
		if err != nil || !verdicts[0].accepted {
			t.Errorf("%v %v", verdicts, err)
		}
	}
}

// TestServicesTakeTheirLimits renders each plan of charts/services, and that of probes, with the most that its parameters
// allow: it takes its limits, no more and no less.
func TestServicesTakeTheirLimits(t *testing.T) {
	files, err := filepath.Glob("../charts/services/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no services: %v", err)
	}
	for _, file := range append(files, "../charts/probe.yaml") {
		document, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var o v1alpha1.ServiceOffering
		if err := strictjson.DecodeYAML(document, &o); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, plan := range o.Spec.Plans {
			most := map[string]any{}
			for name, parameter := range plan.Workload.Parameters {
				var schema struct {
					Enum    []string
					Maximum *int64
				}
				if err := json.Unmarshal(parameter.Raw, &schema); err != nil {
					t.Fatal(err)
				}
				switch {
				case schema.Maximum != nil:
					most[name] = *schema.Maximum
				case len(schema.Enum) > 0:
					most[name] = schema.Enum[len(schema.Enum)-1]
				case slices.Contains(plan.Workload.Required, name):
					most[name] = "https://broker.example"
				}
			}
			parameters, err := json.Marshal(most)
			if err != nil {
				t.Fatal(err)
			}
			p := newPlan(plan, nil, nil)
			footprint, err := p.Footprint(parameters)
			if err != nil {
				t.Errorf("%s, plan %s: %v", file, plan.Name, err)
				continue
			}
			for name, limit := range p.most() {
				if takes := footprint.Takes[name]; takes.Cmp(limit) != 0 {
					t.Errorf("%s, plan %s: takes %s %s at most, its limit is %s", file, plan.Name, takes.String(), name, limit.String())
				}
			}
		}
	}
}

// An update drops the parameters that it does not repeat, while PostgreSQL names its database at the first start only.
func TestPostgreSQLKeepsItsDatabase(t *testing.T) {
	document, err := os.ReadFile("../charts/services/postgresql.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var o v1alpha1.ServiceOffering
	if err := strictjson.DecodeYAML(document, &o); err != nil {
		t.Fatal(err)
	}
	for _, plan := range o.Spec.Plans {
		fixed, err := json.Marshal([]any{plan.Workload.Components[0].Container.Env, plan.Workload.Bindings, plan.Workload.Credentials})
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(fixed), "parameters.") {
			t.Errorf("plan %s: the environment, a hook or the credentials depend on a parameter: %s", plan.Name, fixed)
		}
	}
}
