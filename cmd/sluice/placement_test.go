package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
)

// readyCluster creates a member cluster with some cores that answers.
func readyCluster(t *testing.T, c client.Client, namespace, name string, cores int64) *v1alpha1.MemberCluster {
	t.Helper()
	cluster := &v1alpha1.MemberCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.MemberClusterSpec{Access: v1alpha1.ClusterAccess{SealedKubeconfig: []byte("sealed")}, Region: name},
	}
	if err := c.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	cluster.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(cores, resource.DecimalSI)}
	for _, condition := range []string{v1alpha1.ConditionReachable, v1alpha1.ConditionAccessVerified} {
		v1alpha1.SetCondition(&cluster.Status.Conditions, 1, condition, metav1.ConditionTrue, "Fine", "fine")
	}
	if err := c.Status().Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	return cluster
}

// servedOffering creates an offering with a plan of two cores.
func servedOffering(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	spec := v1alpha1.ServiceOfferingSpec{ID: "service-1", Name: "compute", Description: "Cores.", Bindable: true, Plans: []v1alpha1.Plan{{
		ID: "plan-1", Name: "small", Description: "Two cores.", Kind: v1alpha1.PlanKindResources,
		Resources: &v1alpha1.ResourcesPlan{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}, Score: v1alpha1.ScoreWeights{Balance: 1}},
	}}}
	offering := &v1alpha1.ServiceOffering{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "compute"}, Spec: spec}
	if err := c.Create(t.Context(), offering); err != nil {
		t.Fatal(err)
	}
	offering.Status.Accepted = offering.Spec.DeepCopy()
	if err := c.Status().Update(t.Context(), offering); err != nil {
		t.Fatal(err)
	}
}

// deliveredInstance creates an instance with two cores on a cluster.
func deliveredInstance(t *testing.T, c client.Client, namespace, name, cluster string) *v1alpha1.ServiceInstance {
	t.Helper()
	instance := &v1alpha1.ServiceInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.ServiceInstanceSpec{
			Platform: "cf", InstanceID: name, ServiceID: "service-1", Desired: v1alpha1.InstanceState{PlanID: "plan-1"},
		},
	}
	if err := c.Create(t.Context(), instance); err != nil {
		t.Fatal(err)
	}
	decision := v1alpha1.Decision{Generation: 1, Placements: []v1alpha1.Placement{{
		Cluster: cluster, Reserved: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")},
	}}}
	now := metav1.Now()
	instance.Status = v1alpha1.ServiceInstanceStatus{
		Operation: &v1alpha1.Operation{Type: v1alpha1.OperationProvision, Generation: 1, State: v1alpha1.StateSucceeded, StartedAt: now, FinishedAt: &now},
		Decision:  &decision, Delivered: &v1alpha1.DeliveredState{State: instance.Spec.Desired, Decision: decision},
	}
	if err := c.Status().Update(t.Context(), instance); err != nil {
		t.Fatal(err)
	}
	return instance
}

func TestOperatorOfPlacement(t *testing.T) {
	h, c, operator, must := operatedHub(t)
	eu := readyCluster(t, c, h.Namespace, "eu", 4)
	readyCluster(t, c, h.Namespace, "us", 64)
	servedOffering(t, c, h.Namespace)
	instance := deliveredInstance(t, c, h.Namespace, "si-1", "eu")
	reload := func(object client.Object) {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Fatal(err)
		}
	}

	t.Run("an instance that exists stays, or moves, and either is replayed", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "decision.yaml")
		ask := []string{"place", "--service", "compute", "--plan", "small", "--dry-run", "--instance", "si-1", "--record", file}
		for want, more := range map[string][]string{"eu       Chosen": nil, "us       Chosen": {"--leaving", "eu"}} {
			asked := must(append(ask, more...)...)
			if replayed, err := sluice(t, "place", "--replay", file); err != nil || replayed != asked || !strings.Contains(asked, want) {
				t.Errorf("%v: %v; asked\n%s\nreplayed\n%s", more, err, asked, replayed)
			}
		}
	})

	t.Run("an order book is played against the hub's fleet", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "orders.csv")
		if err := os.WriteFile(file, []byte("plan,count\nsmall,40\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for want, more := range map[string][]string{"sold: 33 of 40 orders": nil, "sold: 34 of 40 orders": {"--empty"}} {
			if out := must(append([]string{"simulate", "--orders", file}, more...)...); !strings.Contains(out, want) || !strings.Contains(out, "InsufficientCPU") {
				t.Errorf("simulate %v:\n%s", more, out)
			}
		}
	})

	t.Run("a decision is recorded and replayed without a hub", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "decision.yaml")
		asked := must("place", "--service", "compute", "--plan", "small", "--dry-run", "--record", file)
		if !strings.Contains(asked, "us       Chosen") {
			t.Fatalf("asked: %s", asked)
		}
		replayed, err := sluice(t, "place", "--replay", file)
		if err != nil || replayed != asked {
			t.Errorf("%v; replayed\n%s\nrecorded\n%s", err, replayed, asked)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), "sealed") {
			t.Error("the recording has the access to a cluster")
		}
		changed := strings.Replace(string(data), `cpu: "64"`, `cpu: "1"`, 1)
		if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := sluice(t, "place", "--replay", file); err == nil || !strings.Contains(err.Error(), "differs from the recorded one, which was: [us]") {
			t.Errorf("a changed fleet is replayed with %v", err)
		}
		for was, want := range map[string]string{"": "it is no recording, or not the whole of one", "version: 2": "this Sluice reads version 1", "version: 1\nclutsers: []": `unknown field "clutsers"`} {
			if err := os.WriteFile(file, []byte(strings.Replace(string(data), "version: 1", was, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := sluice(t, "place", "--replay", file); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("a recording with %q is replayed with %v, want %q", was, err, want)
			}
		}
	})
	t.Run("a better place is proposed and, when applied, asked for", func(t *testing.T) {
		if out := must("rebalance"); !strings.Contains(out, "si-1") || !strings.Contains(out, "+46") {
			t.Errorf("proposed: %s", out)
		}
		if out := must("rebalance", "--least-gain", "60"); !strings.Contains(out, "no move gains 60 points or more") {
			t.Errorf("proposed: %s", out)
		}
		if out := must("rebalance", "--least-gain", "60", "-o", "json"); out != "[]\n" {
			t.Errorf("the document of no proposal is %q", out)
		}
		reload(instance)
		if len(instance.Annotations) > 0 {
			t.Error("a proposal was a surprise")
		}
		var proposals []placement.Proposal
		if out := must("rebalance", "--apply", "-o", "json"); json.Unmarshal([]byte(out), &proposals) != nil || len(proposals) != 1 {
			t.Errorf("the document is %s", out)
		}
		reload(instance)
		if instance.Annotations[v1alpha1.AnnotationLeave] != "eu" {
			t.Errorf("annotations are %v", instance.Annotations)
		}
	})
	t.Run("a move is judged before it is asked for", func(t *testing.T) {
		before := len(instance.Annotations)
		for _, row := range []struct{ args, want string }{
			{"move si-1 --to us --dry-run", "instance si-1: it would move from eu to us\n"},
			{"move si-2", `no instance "si-2"`},
			{"move si-1 --to nowhere", `there is no member cluster "nowhere"; `},
			{"move si-1 --from us", `--from: it is not on "us", but on eu`},
			{"move si-1 --to eu", "it stays on eu: none of 2 clusters fits: "},
		} {
			out, err := operator(append([]string{"instance"}, strings.Fields(row.args)...)...)
			if err != nil {
				out = err.Error()
			}
			if !strings.Contains(out, row.want) {
				t.Errorf("%s: %s, want %q", row.args, out, row.want)
			}
		}
		if reload(instance); len(instance.Annotations) != before {
			t.Errorf("it is asked to move: %v", instance.Annotations)
		}
		out := must("instance", "move", "si-1", "--to", "us", "--wait", "0")
		if reload(instance); instance.Annotations[v1alpha1.AnnotationLeave] != "eu" || instance.Annotations[v1alpha1.AnnotationMoveTo] != "us" || out != "instance si-1: moving from eu\n" {
			t.Errorf("annotations are %v; %s", instance.Annotations, out)
		}
	})
	t.Run("one cluster is described", func(t *testing.T) {
		out := must("cluster", "describe", "eu")
		for _, want := range []string{
			"Cluster:         eu\n", "Reachable:       True (Fine), ", ": fine\n", "Capacity:        4 cpu, of which 2 sold, 0 used by others, 2 free\n", "Instances:       1\n", "si-1 (cf/si-1)\n",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("it has no %q:\n%s", want, out)
			}
		}
		if out := must("cluster", "describe", "eu", "-o", "jsonpath={.metadata.name}"); out != "eu\n" {
			t.Errorf("as a document it is %s", out)
		}
	})
	t.Run("what a drain would do is shown, and nothing is drained", func(t *testing.T) {
		for cluster, want := range map[string]string{"eu": "si-1      us  -\ncluster eu: 1 instance would move, 0 would stay\n", "us": "cluster us: 0 instances would move, 0 would stay\n"} {
			if out := must("cluster", "drain", cluster, "--dry-run"); !strings.HasSuffix(out, want) {
				t.Errorf("a drain of %s would be %q, want %q", cluster, out, want)
			}
		}
		if out := must("cluster", "drain", "eu", "--dry-run", "--output", "jsonpath={[0].to[0]}"); out != "us\n" {
			t.Errorf("a drain would move it to %q", out)
		}
		if out := must("cluster", "loss", "eu"); !strings.HasSuffix(out, "si-1      us  -\ncluster eu: 1 instance would move, 0 would stay\n") {
			t.Errorf("its loss would be %q", out)
		}
		if _, err := operator("cluster", "drain", "eu", "-o", "json"); err == nil || !strings.Contains(err.Error(), "--dry-run") {
			t.Errorf("an output without a dry run: %v", err)
		}
		if _, err := operator("cluster", "drain", "absent", "--dry-run"); err == nil || !strings.Contains(err.Error(), `no member cluster "absent"`) {
			t.Errorf("of no cluster: %v", err)
		}
		if reload(eu); eu.Spec.Unschedulable || eu.IsDraining() {
			t.Errorf("the cluster is %+v", eu.Spec)
		}
	})
	t.Run("a cluster is drained until it is empty, and takes placements again", func(t *testing.T) {
		if out, err := operator("cluster", "drain", "eu", "--wait", "1s"); err == nil || !strings.Contains(err.Error(), "not empty after 1s, 1 instance left") ||
			!strings.Contains(out, "1 instance left, 0 moving") {
			t.Errorf("drained: %s, %v", out, err)
		}
		reload(eu)
		if !eu.Spec.Unschedulable || !eu.IsDraining() {
			t.Errorf("the cluster is %+v", eu.Spec)
		}
		reload(instance)
		instance.Status.Decision.Placements[0].Cluster, instance.Status.Delivered.Decision.Placements[0].Cluster = "us", "us"
		if err := c.Status().Update(t.Context(), instance); err != nil {
			t.Fatal(err)
		}
		if out := must("cluster", "drain", "eu", "--wait", time.Minute.String()); !strings.Contains(out, "cluster eu: empty") {
			t.Errorf("drained: %s", out)
		}
		must("cluster", "uncordon", "eu")
		reload(eu)
		if eu.Spec.Unschedulable || len(eu.Spec.Taints) > 0 {
			t.Errorf("the cluster is %+v", eu.Spec)
		}
	})
	t.Run("a latency is reported once for each vantage", func(t *testing.T) {
		must("cluster", "latency", "eu", "--from", "stockholm", "--median", "12ms")
		must("cluster", "latency", "eu", "--from", "stockholm", "--median", "14ms")
		reload(eu)
		if l := eu.Spec.Latencies; len(l) != 1 || l[0].Median.Duration != 14*time.Millisecond {
			t.Errorf("latencies are %+v", l)
		}
	})
}
