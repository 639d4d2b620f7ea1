package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func written(t *testing.T, tab table, wide bool) string {
	t.Helper()
	var out strings.Builder
	output := &outputFlag{format: outputTable}
	if wide {
		output.format = outputWide
	}
	if err := tab.write(&out, output); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestTableShowsWhatIsThere: the author of a text controls only the text of one cell.
func TestTableShowsWhatIsThere(t *testing.T) {
	for text, want := range map[string]string{
		"plain":                    "plain",
		"Grüße, 東京":                "Grüße, 東京",
		"x\nfake  yes  eu":         `x\nfake  yes  eu`,
		"x\ty":                     `x\ty`,
		"\x1b[2J\x1b[31mred":       `\x1b[2J\x1b[31mred`,
		"abc\u202etxt.exe":         `abc\u202etxt.exe`,
		"zero\u200bwidth":          `zero\u200bwidth`,
		"bell\a, nul\x00, del\x7f": `bell\a, nul\x00, del\x7f`,
		"bad\xffutf8":              `bad\ufffdutf8`,
		"line\u2028separator":      `line\u2028separator`,
	} {
		if got := printable(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
		got := written(t, table{header: []string{"A", "B"}, rows: [][]string{{text, "b"}}}, true)
		if strings.Count(got, "\n") != 2 || !strings.Contains(got, want) {
			t.Errorf("%q in a table: %q", text, got)
		}
	}
}

func TestTableCutsLongCells(t *testing.T) {
	tab := table{header: []string{"NAME", "WHY", "MORE", "AGE"}, rows: [][]string{{"eu", strings.Repeat("ö", 300), "more", "3d"}}, wide: []string{"MORE"}}
	narrow := written(t, tab, false)
	if line := strings.Split(narrow, "\n")[1]; !strings.Contains(line, strings.Repeat("ö", 59)+"…  3d") || strings.Contains(narrow, "MORE") {
		t.Errorf("narrow:\n%s", narrow)
	}
	if wide := written(t, tab, true); !strings.Contains(wide, strings.Repeat("ö", 300)+"  more  3d") {
		t.Errorf("wide:\n%s", wide)
	}
}

// TestOutputFormats: the documents and the table of one list, by the values of the flags.
func TestOutputFormats(t *testing.T) {
	list := []v1alpha1.MemberCluster{soldCluster("eu"), soldCluster("us")}
	tab := table{header: []string{"NAME", "DRIVER"}, rows: [][]string{{"eu", "kube"}, {"us", "kube"}}}
	for _, row := range []struct {
		flags []string
		want  string // or a part of the error
	}{
		{nil, "NAME  DRIVER\neu    kube\nus    kube\n"},
		{[]string{"--no-headers"}, "eu  kube\nus  kube\n"},
		{[]string{"-o", `jsonpath={range [*]}{.metadata.name}={.spec.tier} {end}`}, "eu=cloud us=cloud \n"},
		{[]string{"-o", `jsonpath={[?(@.metadata.name=="us")].status.allocatable.cpu}`}, "16\n"},
		{[]string{"-o", "jsonpath={[*].spec.none}"}, "\n"},
		{[]string{"-o", "jsonpath={.metadata"}, "the template, for instance {range"},
		{[]string{"-o", "jsonpath={[5]}"}, "`--output json` shows the fields"},
		{[]string{"-o", "jsonpath"}, "want table, wide, json, yaml or jsonpath=TEMPLATE"},
		{[]string{"-o", "text"}, "want table, wide, json, yaml or jsonpath=TEMPLATE"},
	} {
		var output outputFlag
		var out strings.Builder
		cmd := &cobra.Command{RunE: func(cmd *cobra.Command, _ []string) error { return output.print(&out, list, tab) }, SilenceErrors: true, SilenceUsage: true}
		output.bind(cmd)
		cmd.SetArgs(row.flags)
		if err := cmd.Execute(); err != nil && !strings.Contains(err.Error(), row.want) || err == nil && out.String() != row.want {
			t.Errorf("%q: %v\n%s, want %q", row.flags, err, out.String(), row.want)
		}
	}
}

// soldCluster has 16 cores and 64Gi, of which pods of others use 2 and 4.
func soldCluster(name string) v1alpha1.MemberCluster {
	cluster := v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MemberClusterSpec{Driver: v1alpha1.DriverKube, Tier: v1alpha1.TierCloud}}
	cluster.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("16"), "memory": resource.MustParse("64Gi")}
	cluster.Status.ForeignUse = corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("4Gi")}
	v1alpha1.SetCondition(&cluster.Status.Conditions, 1, v1alpha1.ConditionReady, metav1.ConditionTrue, "Ready", "takes placements")
	return cluster
}

// soldInstance reserves 4 cores and 8Gi of a cluster.
func soldInstance(cluster string) v1alpha1.ServiceInstance {
	instance := v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Name: "si-" + cluster}, Spec: v1alpha1.ServiceInstanceSpec{
		Platform: "cf", InstanceID: "first", ServiceID: "1111", Desired: v1alpha1.InstanceState{PlanID: "2222"},
	}}
	price := resource.MustParse("13250u")
	decision := v1alpha1.Decision{Generation: 1, Considered: 1, Placements: []v1alpha1.Placement{{
		Cluster: cluster, Score: 58, PricePerHour: &price, Currency: "EUR",
		Reserved: corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi")},
	}}}
	instance.Status.Decision, instance.Status.Delivered = &decision, &v1alpha1.DeliveredState{Decision: decision}
	return instance
}

// TestClusterList: reservations, free capacity, and the operator's marks on a cluster.
func TestClusterList(t *testing.T) {
	cordoned, draining, leaving, lost := soldCluster("cordoned"), soldCluster("draining"), soldCluster("leaving"), soldCluster("lost")
	cordoned.Spec.Unschedulable, draining.Spec.Unschedulable = true, true
	draining.Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintDrain, Effect: corev1.TaintEffectNoExecute}}
	now := metav1.NewTime(time.Now())
	leaving.DeletionTimestamp = &now
	v1alpha1.SetCondition(&lost.Status.Conditions, 1, v1alpha1.ConditionReady, metav1.ConditionFalse, "Unreachable", strings.Repeat("it does not answer ", 20))
	clusters := []v1alpha1.MemberCluster{soldCluster("plain"), cordoned, draining, leaving, lost}
	list := clusterTable(clusters, []v1alpha1.ServiceInstance{soldInstance("plain"), soldInstance("elsewhere")})
	cell := func(cluster, column string) string {
		t.Helper()
		row := slices.IndexFunc(list.rows, func(row []string) bool { return row[0] == cluster })
		at := slices.Index(list.header, column)
		if row < 0 || at < 0 {
			t.Fatalf("no %s of %s", column, cluster)
		}
		return list.rows[row][at]
	}
	for _, row := range [][3]string{
		{"plain", "READY", "yes"}, {"cordoned", "READY", "cordoned, yes"}, {"draining", "READY", "draining, yes"}, {"leaving", "READY", "leaving, yes"},
		{"plain", "CPU", "16"}, {"plain", "CPU SOLD", "4"}, {"plain", "CPU OTHERS", "2"}, {"plain", "CPU FREE", "10"},
		{"plain", "MEMORY", "64Gi"}, {"plain", "MEMORY SOLD", "8Gi"}, {"plain", "MEMORY OTHERS", "4Gi"}, {"plain", "MEMORY FREE", "52Gi"},
		{"lost", "CPU SOLD", "0"}, {"lost", "CPU FREE", "14"},
	} {
		if got := cell(row[0], row[1]); got != row[2] {
			t.Errorf("%s of %s: %q, want %q", row[1], row[0], got, row[2])
		}
	}
	if len(clusterTable(nil, nil).rows) != 0 {
		t.Error("rows without clusters")
	}
	for line := range strings.Lines(written(t, list, false)) {
		if len([]rune(line)) > 200 {
			t.Errorf("a line of %d characters: %s", len([]rune(line)), line)
		}
	}
}

// TestInstanceDescribe: names instead of ids, money in the usual form, each sentence once,
// nothing that a terminal obeys.
func TestInstanceDescribe(t *testing.T) {
	instance := soldInstance("eu")
	instance.Spec.InstanceID = "evil\x1b[31m\nPlaced on:  nowhere"
	why := "none of 1 clusters fits: eu has 1 cpu free"
	instance.Status.Operation = &v1alpha1.Operation{Type: v1alpha1.OperationUpdate, State: v1alpha1.StateInProgress, Description: why, StartedAt: metav1.Now()}
	for _, condition := range []string{v1alpha1.ConditionPlaced, v1alpha1.ConditionReady} {
		v1alpha1.SetCondition(&instance.Status.Conditions, 1, condition, metav1.ConditionFalse, "Unplaceable", why)
	}
	instance.Status.Decision.Rejections = []v1alpha1.Rejection{{Reason: "Capacity", Count: 1, Examples: []v1alpha1.RejectionExample{{Cluster: "us", Message: "needs 4 cpu"}}}}
	var out strings.Builder
	if err := describeInstance(&out, &instance, instance.Status.Events, planNames{"1111 2222": "compute/small"}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`evil\x1b[31m\nPlaced on:  nowhere`, "compute/small", "0.01325 EUR/h", "Considered:  1 cluster\n", "Ready:       False (Unplaceable)\n", "us: needs 4 cpu"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if n := strings.Count(out.String(), why); n != 1 {
		t.Errorf("it says %d times why:\n%s", n, out.String())
	}
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, ":") || strings.HasPrefix(line, "Placed on:  nowhere") {
			t.Errorf("line %q", line)
		}
	}
}

// TestClusterDescribeDevices: how devices are divided, and why some do not count.
func TestClusterDescribeDevices(t *testing.T) {
	cluster := soldCluster("eu")
	cluster.Status.Allocatable[v1alpha1.DevicesResource("large-gpu")] = resource.MustParse("4")
	cluster.Status.DeviceClasses = []v1alpha1.DeviceClass{{Name: "gpu", Uncounted: "4 of its devices overlap with those of nvidia"}, {Name: "large-gpu"}}
	var out strings.Builder
	if err := describeCluster(&out, &cluster, nil, nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"4 large-gpu.deviceclass.resource.k8s.io/devices, of which 0 sold, 0 used by others, 4 free", "devices of class gpu: 4 of its devices overlap with those of nvidia\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Count(out.String(), "devices of class") != 1 {
		t.Errorf("classes without a reason are shown:\n%s", out.String())
	}
}

func TestCatalogList(t *testing.T) {
	quantity := resource.MustParse
	resources := func(clusters int32) v1alpha1.Plan {
		return v1alpha1.Plan{Resources: &v1alpha1.ResourcesPlan{Limits: corev1.ResourceList{"cpu": quantity("1")}, Clusters: clusters}}
	}
	made := &v1alpha1.ClusterPlan{Versions: []string{"v1.34.4", "v1.33.8"}, Workers: []v1alpha1.WorkerPool{
		{Name: "a", Machines: v1alpha1.Machines{Replicas: 1, Machine: corev1.ResourceList{"cpu": quantity("4")}}},
		{Name: "b", Machines: v1alpha1.Machines{Replicas: 2, Max: 5}},
	}}
	for _, row := range []struct {
		got, want string
	}{
		{buys(resources(1)), "1 cpu"},
		{buys(resources(2)), "1 cpu × 2 clusters"},
		{buys(v1alpha1.Plan{Cluster: made}), "a cluster v1.34.4: 1 worker of 4 cpu; 2 to 5 workers"},
		{buys(v1alpha1.Plan{Cluster: &v1alpha1.ClusterPlan{Versions: []string{"v1.34.4"}}}), "a cluster v1.34.4"},
		{costs(v1alpha1.Plan{Costs: []v1alpha1.Cost{{Amount: map[string]resource.Quantity{"eur": quantity("13250u"), "usd": quantity("40m")}, Unit: "HOURLY"}}}), "0.01325 EUR hourly, 0.04 USD hourly"},
		{costs(v1alpha1.Plan{Costs: []v1alpha1.Cost{{Amount: map[string]resource.Quantity{"eur": quantity("1200")}, Unit: "MONTHLY"}}}), "1200 EUR monthly"},
		{count(0, "node"), "0 nodes"}, {count(1, "node"), "1 node"}, {count(2, "node"), "2 nodes"},
		{fmt.Sprint(planNames{}.of(&v1alpha1.ServiceInstance{Spec: v1alpha1.ServiceInstanceSpec{ServiceID: "s", Desired: v1alpha1.InstanceState{PlanID: "p"}}})), "s/p"},
	} {
		if row.got != row.want {
			t.Errorf("got %q, want %q", row.got, row.want)
		}
	}
}
