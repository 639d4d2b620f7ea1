package workload

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/charts/chartstest"
)

// planOf parses a plan.
func planOf(t testing.TB, document string) *v1alpha1.WorkloadPlan {
	t.Helper()
	plan := &v1alpha1.WorkloadPlan{}
	if err := yaml.UnmarshalStrict([]byte(document), plan); err != nil {
		t.Fatalf("%v in\n%s", err, document)
	}
	return plan
}

// container returns a plan of one container with further fields; {…} of the field is YAML.
func container(fields string) string {
	return "components: [{name: a, container: {image: i, resources: {cpu: 1, memory: 1Gi}, " + fields + "}}]"
}

// public returns a plan of one container with a public port at a host.
func public(host string) string {
	return "components: [{name: a, ports: [{name: http, port: 80, reach: public, host: \"" + host + "\"}], container: {image: i, resources: {cpu: 1, memory: 1Gi}}}]"
}

// manifest returns a plan of one object.
func manifest(object string) string {
	return "components: [{name: a, manifests: [" + object + "]}]"
}

// chart returns a plan of the chart that tests have, with further fields.
func chart(fields string) string {
	return "components: [{name: a, chart: {from: web.tgz, digest: web, " + fields + "}}]"
}

// deployment returns a plan of one Deployment with the given pod spec.
func deployment(spec string) string {
	return manifest("{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {template: {spec: " + spec + "}}}")
}

func TestRefused(t *testing.T) {
	const limits = "resources: {limits: {cpu: 1, memory: 1Gi}}"
	known := chartstest.Charts{"web": chartstest.Of(t, chartstest.Pack(t, chartstest.Web(t, nil)))[webDigest(t)]}
	for _, test := range []struct{ name, plan, parameters, because string }{
		{"an unknown variable", container("args: ['${secret.x}']"), "", "components[a].container.args[0]: ${secret.x}: column 1: undeclared reference to 'secret' (in container ''); write $${ for a literal ${"},
		{"a secret that is not there", container("env: {A: '${secrets.x}'}"), "", "components[a].container.env[A]: ${secrets.x}: no such key: x"},
		{"an expression that does not end", container("args: ['${secrets']"), "", "components[a].container.args[0]: an expression that starts with ${ has no }; write $${ for a literal ${"},
		{"a list in a text", container("args: ['a ${[1]}']"), "", "components[a].container.args[0]: ${[1]}: is a list or an object, which cannot be part of a text"},
		{"too few replicas", container("replicas: '${parameters.n}'"), `{"n": -1}`, `components[a].container.replicas: "-1" is not a whole number from 0 to 1000`},
		{"too many replicas", container("replicas: 1001"), "", `components[a].container.replicas: "1001" is not a whole number from 0 to 1000`},
		{"fewer at most than at least", container("replicas: 3, autoscaling: {max: 2}"), "", `components[a].container.autoscaling.max: "2" is not a whole number from 3 to 1000`},
		{"no quantity", "components: [{name: a, container: {image: i, resources: {cpu: '${parameters.c}', memory: 1Gi}}}]", `{"c": "much"}`, `components[a].container.resources[cpu]: "much" is not a quantity, for instance 500m or 1Gi`},
		{"nothing of a resource", "components: [{name: a, container: {image: i, resources: {cpu: 0, memory: 1Gi}}}]", "", "components[a].container.resources[cpu]: 0: want more than 0"},
		{"a probe of another host", container("readinessProbe: {tcpSocket: {host: 10.0.0.1, port: 1}}"), "", "component a: Deployment a: spec.template: probes and hooks ask the pod itself: host is refused, as the node would ask it past every NetworkPolicy"},
		{"another namespace", manifest("{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: kube-system}}"), "", `components[a].manifests[0].metadata.namespace: is "kube-system"; objects go to the instance's own namespace, so that it must be empty`},
		{"a cluster-scoped object", manifest("{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: c}}"), "", `component a: ClusterRole c: kind ClusterRole of "rbac.authorization.k8s.io/v1" is refused; a workload has ConfigMap, Secret, Service, PersistentVolumeClaim, Deployment, StatefulSet, Job, CronJob, HorizontalPodAutoscaler`},
		{"a kind of another group", manifest("{apiVersion: example.org/v1, kind: Deployment, metadata: {name: c}}"), "", `component a: Deployment c: kind Deployment of "example.org/v1" is refused; a workload has ConfigMap, Secret, Service, PersistentVolumeClaim, Deployment, StatefulSet, Job, CronJob, HorizontalPodAutoscaler`},
		{"no name", manifest("{apiVersion: v1, kind: ConfigMap}"), "", "component a: ConfigMap : metadata.name: is empty"},
		{"a name of Sluice's own", manifest("{apiVersion: v1, kind: ConfigMap, metadata: {name: sluice}}"), "", "component a: ConfigMap sluice: metadata.name: names that start with sluice are Sluice's own"},
		{"two of one name", "components: [{name: a, manifests: [{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}]}, {name: b, manifests: [{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}]}]", "", "component b: ConfigMap c: another object of this kind has the same name"},
		{"a port of the nodes", manifest("{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {type: NodePort}}"), "", "component a: Service s: spec.type: NodePort is refused; Services are ClusterIP"},
		{"an address that is not its own", manifest("{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {externalIPs: [192.0.2.1]}}"), "", "component a: Service s: spec.externalIPs: is refused"},
		{"a NetworkPolicy", manifest("{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: p}}"), "", "components[a].manifests[0].kind: NetworkPolicy is refused: ports and their reach say who may connect"},
		{"an EndpointSlice", manifest("{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: r}}"), "", "components[a].manifests[0].kind: EndpointSlice is refused: Services have them"},
		{"a DNS record", manifest("{apiVersion: externaldns.k8s.io/v1alpha1, kind: DNSEndpoint, metadata: {name: r}}"), "", "components[a].manifests[0].kind: DNSEndpoint is refused: a port with reach public has one where the operator wants it"},
		{"an HTTPRoute", manifest("{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: r}}"), "", "components[a].manifests[0].kind: HTTPRoute is refused: a port with reach public has one"},
		{"a host that is none", public("${parameters.h}"), `{"h": "A_b"}`, `components[a].ports[http].host: "A_b" is not a valid label of a host: a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`},
		{"a whole host that is none", public("a..b"), "", `components[a].ports[http].host: "a..b" is not a valid host: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`},
		{"a host like a generated one", public("web-0123456789abcdef"), "", `components[a].ports[http].host: "web-0123456789abcdef" ends like a generated host, with 16 hexadecimal digits`},
		{"a host with a secret", public("${secrets.x}"), "", "components[a].ports[http].host: may use only parameters that are not writeOnly: ${secrets.x}: no such key: x"},
		{"a host with a hidden parameter", public("${parameters.h}") + "\nparameters: {h: {type: string, writeOnly: true}}", `{"h": "x"}`, "components[a].ports[http].host: may use only parameters that are not writeOnly: ${parameters.h}: no such key: h"},
		{"two with the same host", strings.TrimSuffix(public("same"), "]") + ", {name: b, ports: [{name: p, port: 1, reach: public, host: same}], container: {image: i, resources: {cpu: 1, memory: 1Gi}}}]", "", `components[b].ports[p].host: "same" is the host of a already`},
		{"a port that nothing serves", "components: [{name: a, service: s, ports: [{name: p, port: 2}], manifests: [{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {ports: [{port: 1}]}}]}]", "", "components[a].ports[p]: no Service s serves port 2"},
		{"a privileged pod", deployment("{containers: [{name: c, securityContext: {privileged: true}, " + limits + "}]}"), "", "component a: Deployment d: spec.template: privileged containers are refused"},
		{"a disk of the node", deployment("{volumes: [{name: v, hostPath: {path: /}}], containers: [{name: c, " + limits + "}]}"), "", "component a: Deployment d: spec.template: volumes are configMap, secret, emptyDir, projected, downwardAPI, persistentVolumeClaim or ephemeral: others the node mounts from its own disks, or over the network past every NetworkPolicy"},
		{"a priority", deployment("{priorityClassName: gold, containers: [{name: c, " + limits + "}]}"), "", "component a: Deployment d: spec.template.spec.priorityClassName: is refused: pods have the default priority of their cluster, as a higher one evicts the pods of others"},
		{"the network of the node", deployment("{hostNetwork: true, containers: [{name: c, " + limits + "}]}"), "", "component a: Deployment d: spec.template: a pod has no namespaces of its node: hostNetwork, hostPID and hostIPC are refused"},
		{"no containers", deployment("{}"), "", "component a: Deployment d: its pods have no containers"},
		{"a pod that does not say what it takes", deployment("{containers: [{name: c, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1}}}]}"), "", "component a: Deployment d: container c: resources.limits.memory: is missing; without it the resources of the pod are unknown"},
		{"a claim of each pod that nothing counts", deployment("{volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: s, resources: {requests: {storage: 1Gi}}}}}}], containers: [{name: c, " + limits + "}]}"), "", "component a: Deployment d: volume v: ephemeral is refused: its claims are made and deleted with each pod, so that their number is unknown; use emptyDir, a PersistentVolumeClaim, or volumeClaimTemplates of a StatefulSet"},
		{"a field that is not there", manifest("{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replica: 2}}"), "", `component a: Deployment d: strict decoding error: unknown field "spec.replica"`},
		{"a claim of no class", manifest("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c}, spec: {resources: {requests: {storage: 1Gi}}}}"), "", "component a: PersistentVolumeClaim c: storageClassName: is missing; storage is sold by class"},
		{"a job that would run again and again", manifest("{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {ttlSecondsAfterFinished: 60}}"), "", "components[a].manifests[0].spec.ttlSecondsAfterFinished: is refused: a Job that Kubernetes deletes would be created, and run, again"},
		{"jobs without a bound", manifest("{apiVersion: batch/v1, kind: CronJob, metadata: {name: c}, spec: {jobTemplate: {spec: {template: {spec: {containers: [{name: c, " + limits + "}]}}}}}}"), "", "component a: CronJob c: spec.concurrencyPolicy: want Forbid or Replace; otherwise nothing limits the resources of its Jobs"},
		{"a value of a chart with an expression that fails", chart("values: {owner: '${parameters.x}'}"), "", "components[a].chart.values.owner: ${parameters.x}: no such key: x"},
		{"a value that a chart does not take", chart("values: {owner: ann, replicas: '${parameters.n}'}"), `{"n": 6}`, "components[a].chart: values/replicas of web: maximum: got 6, want 5"},
		{"a pod of a chart that does not say what it takes", chart("values: {owner: ann, resources: {limits: null}}"), "", "component a: Deployment a: container web: resources.limits.cpu: is missing; without it the resources of the pod are unknown"},
		{"a port that no Service of a chart serves", strings.Replace(chart("values: {owner: ann}"), "name: a,", "name: a, ports: [{name: http, port: 80}],", 1), "", "components[a].ports[http]: no Service a serves port 80"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := FootprintOf(planOf(t, test.plan), known, json.RawMessage(test.parameters), 0)
			var refused *RefusedError
			if !errors.As(err, &refused) {
				t.Fatalf("got %v, want a refusal", err)
			}
			if got := refused.Error(); got != test.because {
				t.Errorf("got  %s\nwant %s", got, test.because)
			}
		})
	}
}

// The sums below were made by hand, from Kubernetes' documentation of each kind.
func TestTaken(t *testing.T) {
	const pod = "template: {spec: {containers: [{name: c, resources: {limits: {cpu: 100m, memory: 10Mi}, requests: {cpu: 50m}}}]}}"
	for _, test := range []struct{ name, plan, cpu, pods, storage string }{
		{"a rollout adds one", container("replicas: 3"), "4", "4", "0"},
		{"none run", container("replicas: 0"), "0", "0", "0"},
		{"as many as the autoscaler allows, and one", container("replicas: 2, autoscaling: {max: 5}"), "6", "6", "0"},
		{"a volume, and no rollout beside it", container("volumes: [{name: v, mountPath: /v, storageClass: s, size: 2Gi}]"), "1", "1", "2Gi"},
		{"a quarter, rounded up", manifest("{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: 5, " + pod + "}}"), "700m", "7", "0"},
		{"none while it is recreated", manifest("{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: 5, strategy: {type: Recreate}, " + pod + "}}"), "500m", "5", "0"},
		{"a claim for each pod", manifest("{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: d}, spec: {replicas: 3, volumeClaimTemplates: [{metadata: {name: v}, spec: {storageClassName: s, resources: {requests: {storage: 1Gi}}}}], " + pod + "}}"), "300m", "3", "3Gi"},
		{"pods of a job at once", manifest("{apiVersion: batch/v1, kind: Job, metadata: {name: d}, spec: {completions: 9, parallelism: 2, " + pod + "}}"), "200m", "2", "0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			footprint, err := FootprintOf(planOf(t, test.plan), nil, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range map[corev1.ResourceName]string{
				corev1.ResourceCPU: test.cpu, corev1.ResourcePods: test.pods, v1alpha1.StorageResource("s"): test.storage,
			} {
				if amount := footprint.Takes[name]; amount.String() != want {
					t.Errorf("%s: got %s, want %s", name, amount.String(), want)
				}
			}
		})
	}
}

// Of the pods, those count that no other exceeds; a limit without a request is requested, and hooks do not count.
func TestLargestPods(t *testing.T) {
	pod := func(name, resources string) string {
		return "{apiVersion: batch/v1, kind: Job, metadata: {name: " + name + "}, spec: {template: {spec: {containers: [{name: c, image: i, resources: " + resources + "}]}}}}"
	}
	plan := planOf(t, manifest(strings.Join([]string{
		pod("small", "{limits: {cpu: 1, memory: 1Gi}}"), pod("smaller", "{limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 500m}}"),
		pod("cores", "{limits: {cpu: 4, memory: 1Gi}}"), pod("memory", "{limits: {cpu: 9, memory: 4Gi}, requests: {cpu: 2}}"),
	}, ", ")))
	large := planOf(t, strings.Replace(container("args: []"), "cpu: 1", "cpu: 64", 1)).Components[0].Container.Resources
	plan.Bindings = &v1alpha1.WorkloadBindings{Unbind: &v1alpha1.WorkloadHook{WorkloadProcess: v1alpha1.WorkloadProcess{
		Image: "hook", Resources: large,
	}}}
	footprint, err := FootprintOf(plan, nil, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	amounts := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	want := map[string][]corev1.ResourceList{plan.Components[0].Name: {amounts("4", "1Gi"), amounts("2", "4Gi")}}
	if diff := cmp.Diff(want, footprint.LargestPods); diff != "" {
		t.Error(diff)
	}
}

func TestImages(t *testing.T) {
	const pod = "{initContainers: [{name: i, image: first, resources: {limits: {cpu: 1, memory: 1Gi}}}], containers: [{name: c, image: main, resources: {limits: {cpu: 1, memory: 1Gi}}}]}"
	plan := planOf(t, deployment(pod))
	plan.Components = append(plan.Components, planOf(t, container("args: []")).Components[0])
	plan.Components[1].Name = "b"
	plan.Bindings = &v1alpha1.WorkloadBindings{Unbind: &v1alpha1.WorkloadHook{WorkloadProcess: v1alpha1.WorkloadProcess{Image: "hook", Resources: plan.Components[1].Container.Resources}}}
	footprint, err := FootprintOf(plan, nil, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"first", "hook", "i", "main"}, footprint.Images); diff != "" {
		t.Error(diff)
	}
}

// What consumers may set of a chart is described by the chart, with the plan's values as defaults.
func TestOffered(t *testing.T) {
	known := chartstest.Charts{"web": chartstest.Of(t, chartstest.Pack(t, chartstest.Web(t, nil)))[webDigest(t)]}
	plan := planOf(t, chart("values: {replicas: 2}, parameters: [replicas, title, owner]"))
	got, err := Offered(plan, known)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"replicas": `{"default":2,"description":"Number of pods.","maximum":5,"minimum":0,"type":"integer"}`,
		"title":    `{"default":"Welcome","maxLength":40,"type":"string"}`,
		"owner":    `{"minLength":2,"type":"string"}`,
	}
	for name, schema := range got.Parameters {
		if string(schema.Raw) != want[name] {
			t.Errorf("%s: got %s, want %s", name, schema.Raw, want[name])
		}
	}
	if len(got.Parameters) != len(want) || !slices.Equal(got.Required, []string{"owner"}) || len(plan.Parameters) > 0 {
		t.Errorf("got %v, required %v; the plan has %v", got.Parameters, got.Required, plan.Parameters)
	}
	for _, row := range []struct{ fields, because string }{
		{"parameters: [none]", "component a: chart.parameters: none: the chart's values.schema.json does not describe it"},
		{"values: {title: '${instance.name}'}, parameters: [title]", "component a: chart.parameters: title: chart.values sets it with an expression; either the plan sets it, or the consumer"},
		{"parameters: [title]}}, {name: b, chart: {from: web.tgz, digest: web, parameters: [title]", "component b: chart.parameters: title: is already described by the plan or another chart"},
	} {
		if _, err := Offered(planOf(t, chart(row.fields)), known); err == nil || err.Error() != row.because {
			t.Errorf("got  %v\nwant %s", err, row.because)
		}
	}
}

// TestDefaultPriority: a plan that was accepted when it could name a priority class runs with the cluster's default.
func TestDefaultPriority(t *testing.T) {
	objects, err := planOrder(t, deployment("{priorityClassName: gold, containers: [{name: c}]}")).Render(nil, Cluster{}, "n")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if class, has, _ := unstructured.NestedString(o.Object, "spec", "template", "spec", "priorityClassName"); has {
			t.Errorf("%s has the priority class %s", o.GetName(), class)
		}
	}
}
