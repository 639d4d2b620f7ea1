package capi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/placement/capi"
	testbed "github.com/sluice-dev/sluice/test/capi"
)

// A class with one variable of each sort, in place of the variables of the class simulated.
const chooses = `  variables:
    - {name: flavor, required: false, schema: {openAPIV3Schema: {type: string, enum: [m1.small, m1.large], default: m1.small}}}
    - {name: disk, required: false, schema: {openAPIV3Schema: {type: integer, minimum: 10, exclusiveMinimum: true, maximum: 100}}}
    - {name: lifetime, required: false, schema: {openAPIV3Schema: {type: string, format: duration}}}
    - {name: port, required: false, schema: {openAPIV3Schema: {x-kubernetes-int-or-string: true}}}
    - name: network
      required: false
      schema:
        openAPIV3Schema:
          type: object
          required: [cidr, mtu]
          minProperties: 2
          anyOf: [{required: [mtu]}, {required: [proxy]}]
          properties:
            cidr: {type: string, pattern: '^[0-9./]+$'}
            mtu: {type: integer, default: 1500}
            proxy: {type: string}
            peers: {type: array, maxItems: 2, items: {type: object, required: [name], properties: {name: {type: string, maxLength: 3}}}}
            labels: {type: object, additionalProperties: {type: string}}
            extra: {type: object, x-kubernetes-preserve-unknown-fields: true}
    - {name: long, required: false, schema: {openAPIV3Schema: {type: object, properties: {LONG}}}}
`

// The schemas of a class's variables are written to the member cluster's status. With them the
// catalog refuses values that the class refuses, and none that it accepts.
func variablesThatConsumersSet(f *fixture) {
	whole, _, _ := strings.Cut(string(testbed.Class), "\n---\n")
	head, _, _ := strings.Cut(whole, "  variables:\n")
	head = strings.Replace(head, "  name: simulated\n", "  name: choosing\n", 1)
	var long []string
	for i := range 5 {
		long = append(long, fmt.Sprintf("part%d: {type: string, description: %s}", i, strings.Repeat("x", 4000)))
	}
	document := head + strings.Replace(chooses, "LONG", strings.Join(long, ", "), 1)
	must(f, f.bed.Apply(f.Context(), []byte(document)))

	offering := &v1alpha1.ServiceOffering{}
	offering.Namespace, offering.Name = f.namespace, "choosing"
	must(f, yaml.UnmarshalStrict([]byte(`{id: choosing, name: choosing, description: Clusters., plans: [{
		id: choosing, name: choosing, description: One., kind: cluster, cluster: {class: choosing, versions: [v1.34.4],
		settable: [flavor, disk, lifetime, port, network, long, colour]}}]}`), &offering.Spec))
	must(f, f.hub.Create(f.Context(), offering))
	offering.Status.Accepted = &offering.Spec
	must(f, f.hub.Status().Update(f.Context(), offering))

	classes := &capi.Classes{Client: f.hub, Connections: f.driver.Connections}
	cluster := &v1alpha1.MemberCluster{}
	look := func(ctx context.Context) {
		_, err := classes.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: f.namespace, Name: management}})
		must(f, err)
		must(f, f.hub.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: management}, cluster))
	}
	err := f.again(time.Minute, func(ctx context.Context) (bool, error) {
		look(ctx) // Cluster API has to read the class first
		return len(cluster.Status.Classes) == 1, nil
	})
	if err != nil || cluster.Status.Classes[0].Name != "choosing" || len(cluster.Status.Classes[0].Variables) != 5 {
		f.Fatalf("%v: the classes are %+v", err, cluster.Status.Classes)
	}
	for _, says := range []string{"colour: the class has no such variable", "long: its schema has 20", "more than 16384"} {
		if !strings.Contains(cluster.Status.Classes[0].LeftOut, says) {
			f.Errorf("what is left out: %q, want it to say %q", cluster.Status.Classes[0].LeftOut, says)
		}
	}
	before := cluster.ResourceVersion
	if look(f.Context()); cluster.ResourceVersion != before {
		f.Error("a look at what has not changed has written the status")
	}

	sold, err := catalog.Build([]v1alpha1.ServiceOffering{*offering}, []v1alpha1.MemberCluster{*cluster}, nil, nil)
	must(f, err)
	plan, err := sold.Plan("choosing", "choosing")
	must(f, err)
	for _, row := range []struct {
		variable, value string
		path            string // of what the catalog refuses; none: it takes it
		taken           bool   // by Cluster API
	}{
		{"flavor", `"m1.large"`, "", true},
		{"flavor", `"m2.large"`, "/variables/flavor", false},
		{"flavor", `1`, "/variables/flavor", false},
		{"disk", `11`, "", true},
		{"disk", `10`, "/variables/disk", false},
		{"disk", `101`, "/variables/disk", false},
		{"lifetime", `"1h30m"`, "", true}, // ISO 8601 would have PT1H30M
		{"lifetime", `"long"`, "", false},
		{"port", `80`, "", true},
		{"port", `"http"`, "", true},
		{"port", `true`, "/variables/port", false},
		{"network", `{"cidr":"10.0.0.0/8"}`, "", true}, // with the default
		{"network", `{"cidr":"10.0.0.0/8","mtu":9000,"labels":{"a":"b"},"extra":{"a":1},"peers":[{"name":"a"}]}`, "", true},
		{"network", `{}`, "/variables/network", false},
		{"network", `{"cidr":"ten"}`, "/variables/network/cidr", false},
		{"network", `{"cidr":"10.0.0.0/8","colour":"red"}`, "/variables/network/colour", false},
		{"network", `{"cidr":"10.0.0.0/8","labels":{"a":1}}`, "/variables/network/labels/a", false},
		{"network", `{"cidr":"10.0.0.0/8","peers":[{"name":"long"}]}`, "/variables/network/peers/0/name", false},
		{"network", `{"cidr":"10.0.0.0/8","peers":[{}]}`, "/variables/network/peers/0", false},
		{"long", `1`, "", false},
	} {
		err := plan.ValidateCreate(json.RawMessage(fmt.Sprintf(`{"variables":{%q:%s}}`, row.variable, row.value)))
		refused := (*catalog.ParameterError)(nil)
		if errors.As(err, &refused) != (row.path != "") || refused != nil && refused.Path != row.path {
			f.Errorf("%s of %s: %v, want it refused at %q", row.variable, row.value, err, row.path)
		}
		if err := f.topology(row.variable, row.value); (err == nil) != row.taken {
			f.Errorf("%s of %s: Cluster API says %v, want it taken: %t", row.variable, row.value, err, row.taken)
		}
	}

	must(f, f.hub.Delete(f.Context(), offering))
	if look(f.Context()); len(cluster.Status.Classes) != 0 {
		f.Errorf("no plan names the class, and there is %+v", cluster.Status.Classes)
	}
}

// topology asks Cluster API whether it takes a Cluster with this value of a variable.
func (f *fixture) topology(variable, value string) error {
	f.Helper()
	cluster := &unstructured.Unstructured{}
	must(f, yaml.Unmarshal([]byte(fmt.Sprintf(`{apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster,
		metadata: {namespace: default, name: asked}, spec: {topology: {classRef: {name: choosing}, version: v1.34.4,
		variables: [{name: %s, value: %s}]}}}`, variable, value)), &cluster.Object))
	return f.bed.Client.Create(f.Context(), cluster, client.DryRunAll)
}
