package placement

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

var update = flag.Bool("update", false, "rewrite the golden decisions in testdata")

// Each file of testdata/decisions is a fleet, its reservations and a request; -update writes
// the decision and its explanation beside them.
func TestDecisionsAreAsRecorded(t *testing.T) {
	files, err := filepath.Glob("testdata/decisions/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden decisions: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sections := map[string]string{}
			for _, f := range archive.Files {
				sections[f.Name] = string(f.Data)
			}
			decision, table := replay(t, sections)
			if *update {
				archive.Files = setSection(archive.Files, "decision", decision)
				archive.Files = setSection(archive.Files, "explanation", table)
				if err := os.WriteFile(file, txtar.Format(archive), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if decision != sections["decision"] {
				t.Errorf("decision is\n%s\nrecorded is\n%s", decision, sections["decision"])
			}
			if table != sections["explanation"] {
				t.Errorf("explanation is\n%s\nrecorded is\n%s", table, sections["explanation"])
			}
		})
	}
}

// goldenTime is the time of the golden decisions.
var goldenTime = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

func replay(t *testing.T, sections map[string]string) (decision, table string) {
	t.Helper()
	inventory := NewInventory()
	for _, row := range decode[[]placementtest.Cluster](t, sections["clusters"]) {
		inventory.UpsertCluster(ClusterOf(row.MemberCluster(), goldenTime))
	}
	held := map[string]Holding{}
	for _, row := range decode[[]reservationRow](t, sections["reservations"]) {
		h, known := held[row.Instance]
		if !known {
			h = Holding{
				Instance: row.Instance, Consumer: row.Consumer, Class: row.Class, Hub: row.Hub, Hosts: row.Hosts,
				Held: map[string]Resources{}, Ports: map[string]Ports{row.Cluster: row.Ports}, Pods: map[string][]Resources{},
			}
		}
		h.Held[row.Cluster], h.Preemption = ResourcesOf(row.Resources), row.Preemption
		h.Pods[row.Cluster] = podsOf(row.Pods)
		held[row.Instance] = h
	}
	for _, h := range held {
		inventory.Reserve(h)
	}
	request := decode[requestRow](t, sections["request"]).request(t, sections["plan"], sections["cluster plan"])
	inventory.SetPolicies(CompilePolicies(decode[[]v1alpha1.PlacementPolicy](t, sections["policies"])))
	request = inventory.Snapshot().Govern(request, request.Consumer)
	if request.Weights == (v1alpha1.ScoreWeights{}) {
		request.Weights.Balance = 1 // with it, who is best is seen at a glance
	}

	got, err := Place(request, inventory.Snapshot())
	if err != nil {
		got.Preemption = Preempt(request, inventory.Snapshot())
	}
	out, marshalErr := yaml.Marshal(got.API(1))
	if marshalErr != nil {
		t.Fatal(marshalErr)
	}
	decision = string(out)
	if p := request.Peering; p != nil && err == nil {
		// The part that the controller adds to the engine's decision.
		placed := p.Placed(request.ID, got.Placements[0].Cluster)
		decision = fmt.Sprintf("delivered to %s, hub %q, node %q\n", placed.Consumer, placed.Hub, placed.Node) + decision
	}
	if err != nil {
		decision = "error: " + err.Error() + "\n" + decision
	}
	var b strings.Builder
	if err := WriteTable(&b, Explain(request, inventory.Snapshot())); err != nil {
		t.Fatal(err)
	}
	return decision, b.String()
}

func setSection(files []txtar.File, name, content string) []txtar.File {
	for i := range files {
		if files[i].Name == name {
			files[i].Data = []byte(content)
			return files
		}
	}
	return append(files, txtar.File{Name: name, Data: []byte(content)})
}

func decode[T any](t *testing.T, section string) T {
	t.Helper()
	var v T
	if err := yaml.UnmarshalStrict([]byte(section), &v); err != nil {
		t.Fatalf("%v in\n%s", err, section)
	}
	return v
}

type reservationRow struct {
	Instance  string              `json:"instance"`
	Cluster   string              `json:"cluster"`
	Resources corev1.ResourceList `json:"resources"`
	Consumer  Consumer            `json:"consumer"`
	// Pods that it is meant to run.
	Pods []corev1.ResourceList `json:"pods"`
	// Class of an instance without an operation under way; Preemption is the room that is being
	// made for it.
	Class      string               `json:"class"`
	Hub        string               `json:"hub"`
	Preemption *v1alpha1.Preemption `json:"preemption"`
	Hosts      []string             `json:"hosts"`
	Ports      Ports                `json:"ports"`
}

// requestRow is a request: of a plan, if the file has one, or else as written here.
type requestRow struct {
	ID string `json:"id"`
	// Parameters of an instance of the plan.
	Parameters *runtime.RawExtension `json:"parameters"`
	Leaving    []string              `json:"leaving"`
	External   map[string]int32      `json:"external"`
	// Delivered is how an instance already reaches its consumer's cluster.
	Delivered *v1alpha1.PlacementPeering `json:"delivered"`

	Resources   corev1.ResourceList   `json:"resources"`
	Clusters    int                   `json:"clusters"`
	Selector    string                `json:"selector"`
	Tolerations []corev1.Toleration   `json:"tolerations"`
	Tier        v1alpha1.Tier         `json:"tier"`
	MaxPrice    *v1alpha1.Price       `json:"maxPrice"`
	Weights     v1alpha1.ScoreWeights `json:"weights"`
	Current     []string              `json:"current"`
	Consumer    Consumer              `json:"consumer"`
	Require     []v1alpha1.PolicyRule `json:"require"`
	Class       string                `json:"class"`
	// Public is the host of the public port of its workload; "*" asks for none. AppProtocol is that of the port.
	Public      string               `json:"public"`
	AppProtocol v1alpha1.AppProtocol `json:"appProtocol"`
}

func (r requestRow) request(t *testing.T, resourcesPlan, clusterPlan string) Request {
	t.Helper()
	if resourcesPlan != "" || clusterPlan != "" {
		plan := v1alpha1.Plan{ID: "plan", Name: "plan"}
		if clusterPlan != "" {
			sold := decode[v1alpha1.ClusterPlan](t, clusterPlan)
			plan.Kind, plan.Cluster = v1alpha1.PlanKindCluster, &sold
		} else {
			sold := decode[v1alpha1.ResourcesPlan](t, resourcesPlan)
			plan.Kind, plan.Resources = v1alpha1.PlanKindResources, &sold
		}
		request := r.ofPlan(t, plan)
		if r.Delivered != nil {
			request.Peering.Stay(&v1alpha1.Decision{Placements: []v1alpha1.Placement{{Peering: r.Delivered}}})
		}
		request.Current, request.Leaving, request.External, request.At = r.Current, r.Leaving, r.External, goldenTime
		r.Consumer.Application, r.Consumer.Plan = request.Consumer.Application, request.Consumer.Plan
		request.Consumer = r.Consumer
		return request
	}
	selector, err := labels.Parse(r.Selector)
	if err != nil {
		t.Fatal(err)
	}
	var rules []Rule
	for _, from := range r.Require {
		rule, err := CompileRule("plan", "", from)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, rule)
	}
	var runs *v1alpha1.WorkloadPlan
	var public []v1alpha1.AppProtocol
	var tcp []string
	hosts := map[string]string{}
	if r.Public != "" {
		runs = &v1alpha1.WorkloadPlan{Components: []v1alpha1.WorkloadComponent{{Name: "web", Ports: []v1alpha1.WorkloadPort{{Name: "http", Port: 80, Reach: v1alpha1.ReachPublic, AppProtocol: r.AppProtocol}}}}}
		public, tcp = runs.Speaks(""), runs.TCP()
		if r.Public != "*" {
			hosts[r.Public] = "components[web].ports[http].host"
		}
	}
	return Request{
		Workload: runs, Public: public, Hosts: hosts, TCP: tcp, Consumer: r.Consumer, Rules: rules,
		ID: r.ID, Resources: takeTCP(ResourcesOf(r.Resources), len(tcp)), Clusters: r.Clusters, Selector: selector,
		Tolerations: r.Tolerations, Tier: r.Tier, MaxPrice: PriceOf(r.MaxPrice), Weights: r.Weights, Current: r.Current, Class: r.Class,
	}
}

// ofPlan returns the request of an instance of a plan.
func (r requestRow) ofPlan(t *testing.T, plan v1alpha1.Plan) Request {
	t.Helper()
	spec := v1alpha1.ServiceOfferingSpec{ID: "service", Name: "service", Plans: []v1alpha1.Plan{plan}}
	snapshot, err := catalog.Build([]v1alpha1.ServiceOffering{{Status: v1alpha1.ServiceOfferingStatus{Accepted: &spec}}}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	sold, err := snapshot.Plan("service", "plan")
	if err != nil {
		t.Fatal(err)
	}
	var parameters []byte
	if r.Parameters != nil {
		parameters = r.Parameters.Raw
	}
	request, err := NewRequest(r.ID, sold, parameters)
	if err != nil {
		t.Fatal(err)
	}
	return request
}
