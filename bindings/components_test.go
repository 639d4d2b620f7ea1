package bindings

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
)

// running is an instance that runs a workload of two components, on two clusters or peered.
func running(peered bool, components ...v1alpha1.WorkloadComponent) *v1alpha1.ServiceInstance {
	first, second := plain("a"), plain("b")
	if peered {
		first, second = peeredWith("a", "", ""), peeredWith("b", "", "")
	}
	first.Components, second.Components = []string{"web"}, []string{"db"}
	i := deliveredTo(first, second)
	i.Status.Delivered.Decision.Workload = &v1alpha1.WorkloadPlan{Components: components}
	return i
}

var components = []v1alpha1.WorkloadComponent{
	{Name: "web", Ports: []v1alpha1.WorkloadPort{{Port: 80, Reach: v1alpha1.ReachConsumer}, {Port: 9000, Reach: v1alpha1.ReachComponent}}},
	{Name: "db", Ports: []v1alpha1.WorkloadPort{{Port: 53, Protocol: corev1.ProtocolUDP, Reach: v1alpha1.ReachConsumer}}},
	{Name: "queue", Ports: []v1alpha1.WorkloadPort{{Port: 5672, Reach: v1alpha1.ReachComponent}}},
}

// Pods of the same cluster reach the components that are for consumers by the names of their Services; with a peering
// they have addresses instead.
func TestComponentSockets(t *testing.T) {
	i := running(false, components...)
	host := func(c int) string {
		return components[c].ServiceName() + "." + v1alpha1.MemberNamespace("si-1") + ".svc"
	}
	want := []socket{{host(0), "80", "tcp", components[0].ServiceName()}, {host(1), "53", "udp", components[1].ServiceName()}}
	if got := componentSockets(i); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for name, none := range map[string]*v1alpha1.ServiceInstance{"peered": running(true, components...), "no workload": deliveredTo(plain("a"))} {
		if got := componentSockets(none); got != nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A bind waits for the address of each component that the consumer is to reach.
func TestUnaddressed(t *testing.T) {
	at := func(which ...int) (found findings) {
		for _, c := range which {
			found.sockets = append(found.sockets, socket{host: "10.61.0.9", service: components[c].ServiceName()})
		}
		return found
	}
	for name, row := range map[string]struct {
		instance *v1alpha1.ServiceInstance
		found    findings
		want     string
	}{
		"nothing is found": {running(true, components...), findings{}, "web"},
		"one is found":     {running(true, components...), at(0), "db"},
		"all are found":    {running(true, components...), at(1, 0), ""},
		"not peered":       {running(false, components...), findings{}, ""},
		"no workload":      {deliveredTo(peeredWith("a", "", "")), findings{}, ""},
	} {
		if got := unaddressed(row.instance, row.found); got != row.want {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
}

// Hooks run beside the first component, wherever the others are.
func TestWhereHooksRun(t *testing.T) {
	i := running(false, components...)
	whole := deliveredTo(plain("a"))
	whole.Status.Delivered.Decision.Workload = i.Status.Delivered.Decision.Workload
	for name, row := range map[string]struct {
		instance *v1alpha1.ServiceInstance
		cluster  string
		want     bool
	}{
		"with the first component": {i, "a", true},
		"without it":               {i, "b", false},
		"where the instance was":   {i, "c", true},
		"with all of them":         {whole, "a", true},
	} {
		if got := runsHooks(row.instance, row.cluster); got != row.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Consumers of a workload have an account only if the plan gives them a role; those of another broker's have none.
func TestAccounts(t *testing.T) {
	for name, row := range map[string]struct {
		instance   *v1alpha1.ServiceInstance
		role       string
		want, made bool
	}{
		"of a namespace":                   {deliveredTo(plain("a")), "", true, false},
		"of a workload":                    {running(false, components...), "", false, false},
		"of a workload, with a role":       {running(false, components...), "view", true, false},
		"of a cluster":                     {deliveredTo(madeOn("a")), "", true, true},
		"of another broker's, with a role": {deliveredTo(atBroker("a")), "view", false, false},
	} {
		b := &v1alpha1.ServiceBinding{Spec: v1alpha1.ServiceBindingSpec{InstanceName: "si-1", Credentials: v1alpha1.CredentialsPolicy{Role: row.role}}}
		if got := hasAccount(b, row.instance); got != row.want {
			t.Errorf("%s: %t", name, got)
		}
		a := &account{binding: b, namespace: "n", made: isMade(row.instance)}
		if usual := map[bool]string{true: "default", false: "n"}[row.made]; a.usual() != usual {
			t.Errorf("%s: its usual namespace is %s, want %s", name, a.usual(), usual)
		}
	}
}

func TestCIDRsOfAddresses(t *testing.T) {
	for address, want := range map[string]string{"10.0.0.1": "10.0.0.1/32", "fd00::1": "fd00::1/128", "kubernetes.example": "kubernetes.example"} {
		if got := only(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

// While it is not known how a cluster is reached from outside, the endpoints stay as they were; a cluster that is gone has none.
func TestPublicEndpointsThatAreNotKnown(t *testing.T) {
	public := running(false, v1alpha1.WorkloadComponent{Name: "web", Ports: []v1alpha1.WorkloadPort{{Name: "http", Port: 80, Reach: v1alpha1.ReachPublic}}})
	for name, row := range map[string]struct {
		fails    error
		instance *v1alpha1.ServiceInstance
		unread   bool
	}{
		"the hub is away":     {errors.New("away"), public, true},
		"the cluster is gone": {nil, public, false},
		"nothing is public":   {errors.New("away"), running(false, components...), false},
	} {
		hub := interceptor.NewClient(hubOf(t, new(int)).(client.WithWatch), interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if row.fails != nil {
				return row.fails
			}
			return c.Get(ctx, key, o, options...)
		}})
		c := &Controller{Client: hub, Connections: &member.Connections{Reader: hub, Namespace: "sluice"}}
		if found := c.findEndpoints(t.Context(), bindingOf("", nil), row.instance); found.unread != row.unread {
			t.Errorf("%s: %+v, want unread %t", name, found, row.unread)
		}
	}
}
