//go:build faults

package crash

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/test/capi"
)

// makers is a supervised Sluice with one management cluster, and nothing else to place
// anything on.
type makers struct {
	*bed
	management *capi.Bed
	kubeconfig string // of its administrator
}

func newMakers(ctx context.Context, t *testing.T, stop context.CancelCauseFunc) *makers {
	t.Helper()
	m := &makers{management: capi.Start(t, capi.Options{})}
	if err := m.management.Apply(ctx, capi.Class); err != nil {
		t.Fatal(err)
	}
	m.kubeconfig = filepath.Join(t.TempDir(), "management.kubeconfig")
	if err := os.WriteFile(m.kubeconfig, m.management.Kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	m.bed = &bed{members: map[string]*member{}, server: serve(ctx, t, stop, m.kubeconfig)}
	m.platform = platform{"http://" + m.address}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for _, command := range [][]string{
		{"cluster", "add", "makers", "--from-kubeconfig", m.kubeconfig, "--driver", "capi", "--capacity", "sluice.dev/clusters=5,cpu=64,memory=256Gi,pods=1000"},
		{"catalog", "apply", "-f", "testdata/clusters.yaml"},
	} {
		if err := m.operate(ctx, command...); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// step times a step of a test, and fails it.
func (m *makers) step(ctx context.Context, t *testing.T, name string, do func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	began := time.Now()
	if err := do(ctx); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	t.Logf("%-45s %6.1f s", name, time.Since(began).Seconds())
}

// killedStep is a step during which the process dies after each of its writes.
func (m *makers) killedStep(ctx context.Context, t *testing.T, name string, do func(context.Context) error) {
	t.Helper()
	m.step(ctx, t, name, func(ctx context.Context) error {
		before := len(m.deaths)
		defer func() { t.Logf("%-45s killed %d times", name, len(m.deaths)-before) }()
		return m.killed(nil, func() error { return do(ctx) })
	})
}

// nodes that a binding's credentials show.
func nodes(ctx context.Context, credentials map[string]any) ([]corev1.Node, kubernetes.Interface, error) {
	text, _ := credentials["kubeconfig"].(string)
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(text))
	if err != nil {
		return nil, nil, err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	list, err := kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	return list.Items, kube, nil
}

// bindCluster binds with a role, and returns the credentials.
func (i *instance) bindCluster(ctx context.Context, id, role string) (map[string]any, error) {
	body := map[string]any{"service_id": "clusters", "plan_id": "cluster", "parameters": map[string]any{"role": role}}
	if err := i.succeed(ctx, http.MethodPut, i.bindingPath(id), async, body); err != nil {
		return nil, err
	}
	a, err := i.send(ctx, http.MethodGet, i.bindingPath(id), nil, nil, http.StatusOK)
	if err != nil {
		return nil, err
	}
	credentials, _ := a.body["credentials"].(map[string]any)
	return credentials, nil
}

// A cluster is a service like any other: ordered, bound in two roles, grown, unbound and given back,
// without a trace on the management cluster. In between it serves as a provider's member cluster, however
// often Sluice is killed while it joins and leaves.
func TestClusterAsAService(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	m := newMakers(ctx, t, stop)
	m.imports(ctx, t)
	i := &instance{bed: m.bed, id: "mine", name: v1alpha1.InstanceName(platformName, "mine"), plan: "cluster"}
	body := map[string]any{
		"service_id": "clusters", "plan_id": "cluster", "organization_guid": "organization", "space_guid": "space",
		"maintenance_info": map[string]any{"version": "1.0.0"},
	}
	query := url.Values{"service_id": {"clusters"}, "plan_id": {"cluster"}, "accepts_incomplete": {"true"}}

	m.step(ctx, t, "provision", func(ctx context.Context) error {
		return m.succeed(ctx, http.MethodPut, i.path(), async, body)
	})
	var admin, viewer map[string]any
	m.step(ctx, t, "bind as cluster-admin", func(ctx context.Context) (err error) {
		admin, err = i.bindCluster(ctx, "admin", "cluster-admin")
		return err
	})
	m.step(ctx, t, "bind as viewer", func(ctx context.Context) (err error) {
		viewer, err = i.bindCluster(ctx, "viewer", "view")
		return err
	})
	m.step(ctx, t, "use it", func(ctx context.Context) error {
		have, kube, err := nodes(ctx, admin)
		if err != nil || len(have) != 1 {
			return fmt.Errorf("%d nodes, want 1: %w", len(have), err)
		}
		if _, err := kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, metav1.CreateOptions{}); err != nil {
			return err
		}
		return mayNot(ctx, viewer, "create", "namespaces")
	})
	m.step(ctx, t, "update to two workers", func(ctx context.Context) error {
		change := map[string]any{"service_id": "clusters", "parameters": map[string]any{"workers": map[string]any{"pool": 2}}}
		if err := m.succeed(ctx, http.MethodPatch, i.path(), async, change); err != nil {
			return err
		}
		have, _, err := nodes(ctx, admin)
		if err == nil && len(have) != 2 {
			err = fmt.Errorf("%d nodes, want 2", len(have))
		}
		return err
	})
	m.step(ctx, t, "ask for more than there may be made", func(ctx context.Context) error {
		change := map[string]any{"service_id": "clusters", "parameters": map[string]any{"workers": map[string]any{"pool": 4}}}
		_, err := m.send(ctx, http.MethodPatch, i.path(), async, change, http.StatusBadRequest)
		return err
	})
	var small *instance
	m.killedStep(ctx, t, "join as a provider, and place on it", func(ctx context.Context) error {
		change := map[string]any{"service_id": "clusters", "parameters": map[string]any{"workers": map[string]any{"pool": 2}, "join": "provider"}}
		if err := m.succeed(ctx, http.MethodPatch, i.path(), async, change); err != nil {
			return err
		}
		small = &instance{bed: m.bed, id: "small", name: v1alpha1.InstanceName(platformName, "small"), plan: "small"}
		return m.succeed(ctx, http.MethodPut, small.path(), async, small.body("small", 0))
	})
	m.step(ctx, t, "no deprovision while it is in use", func(ctx context.Context) error {
		a, err := m.send(ctx, http.MethodDelete, i.path(), query, nil, http.StatusUnprocessableEntity)
		if err == nil && !strings.Contains(a.text("description"), "by the service instances small: delete them first") {
			err = fmt.Errorf("it says %q", a.text("description"))
		}
		return err
	})
	m.killedStep(ctx, t, "leave, once nothing is on it", func(ctx context.Context) error {
		if err := m.remove(ctx, small.path(), small.query()); err != nil {
			return err
		}
		change := map[string]any{"service_id": "clusters", "parameters": map[string]any{"workers": map[string]any{"pool": 2}}}
		if err := m.succeed(ctx, http.MethodPatch, i.path(), async, change); err != nil {
			return err
		}
		return m.withHub(ctx, func(hub client.Client) error {
			var members v1alpha1.MemberClusterList
			err := hub.List(ctx, &members, client.InNamespace(namespace))
			if err == nil && len(members.Items) != 1 {
				err = fmt.Errorf("%d member clusters, want the makers alone", len(members.Items))
			}
			return err
		})
	})
	m.step(ctx, t, "unbind the viewer", func(ctx context.Context) error {
		if err := m.remove(ctx, i.bindingPath("viewer"), query); err != nil {
			return err
		}
		_, kube, err := nodes(ctx, admin)
		if err != nil {
			return err
		}
		roles, err := kube.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelBinding})
		if err == nil && len(roles.Items) != 1 {
			err = fmt.Errorf("%d bindings have a role, want 1", len(roles.Items))
		}
		return err
	})
	m.step(ctx, t, "deprovision, with a binding left", func(ctx context.Context) error {
		return m.remove(ctx, i.path(), query)
	})
	m.nothingLeft(ctx, t)
}

// What cannot be made fails with the reason, before the platform stops asking, and
// leaves nothing; what is not finished can be given back.
func TestClustersThatFail(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	m := newMakers(ctx, t, stop)
	order := func(plan string) (path string, body map[string]any, query url.Values) {
		return "/v2/service_instances/" + plan,
			map[string]any{"service_id": "clusters", "plan_id": plan, "organization_guid": "organization", "space_guid": "space"},
			url.Values{"service_id": {"clusters"}, "plan_id": {plan}, "accepts_incomplete": {"true"}}
	}
	for plan, why := range map[string]string{
		"doomed":    "not delivered in time",
		"classless": "a cluster rejected it",
	} {
		m.step(ctx, t, "provision what fails: "+plan, func(ctx context.Context) error {
			path, body, query := order(plan)
			a, err := m.fail(ctx, http.MethodPut, path, async, body)
			if err == nil && !strings.Contains(a.text("description"), why) {
				err = fmt.Errorf("it fails with %q, want %q", a.text("description"), why)
			}
			if err == nil { // it goes away without being asked to
				err = until(ctx, func(context.Context) error {
					if n := m.management.Workloads(); n > 0 {
						return fmt.Errorf("%d clusters are left", n)
					}
					return nil
				})
			}
			return errors.Join(err, m.remove(ctx, path, query))
		})
	}
	m.step(ctx, t, "give back what is not finished", func(ctx context.Context) error {
		path, body, query := order("cluster")
		if _, err := m.send(ctx, http.MethodPut, path, async, body, http.StatusAccepted); err != nil {
			return err
		}
		err := until(ctx, func(context.Context) error {
			if m.management.Workloads() == 0 {
				return errors.New("nothing is being made")
			}
			return nil
		})
		return errors.Join(err, m.remove(ctx, path, query))
	})
	m.nothingLeft(ctx, t)
}

// mayNot checks that credentials do not allow something.
func mayNot(ctx context.Context, credentials map[string]any, verb, resource string) error {
	_, kube, err := nodes(ctx, credentials)
	if kube == nil {
		text, _ := credentials["kubeconfig"].(string)
		config, err := clientcmd.RESTConfigFromKubeConfig([]byte(text))
		if err != nil {
			return err
		}
		if kube, err = kubernetes.NewForConfig(config); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Resource: resource},
	}}
	answer, err := kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err == nil && answer.Status.Allowed {
		err = fmt.Errorf("it may %s %s", verb, resource)
	}
	return err
}

// nothingLeft waits until neither the management cluster nor the hub has anything of an instance.
func (m *makers) nothingLeft(ctx context.Context, t *testing.T) {
	t.Helper()
	m.step(ctx, t, "nothing is left", func(ctx context.Context) error { return until(ctx, m.left) })
}

// left returns an error while the management cluster or the hub has something of an instance.
func (m *makers) left(ctx context.Context) error {
	management := kubernetes.NewForConfigOrDie(m.management.Config())
	namespaces, err := management.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelHub})
	if err != nil {
		return err
	}
	if n, w := len(namespaces.Items), m.management.Workloads(); n+w > 0 {
		return fmt.Errorf("left behind: %d namespaces and %d clusters", n, w)
	}
	return m.withHub(ctx, func(hub client.Client) error {
		var instances v1alpha1.ServiceInstanceList
		var members v1alpha1.MemberClusterList
		err := errors.Join(hub.List(ctx, &instances, client.InNamespace(namespace)), hub.List(ctx, &members, client.InNamespace(namespace)))
		if err == nil && (len(instances.Items) > 0 || len(members.Items) != 1) {
			err = fmt.Errorf("left behind: %d instances, %d member clusters", len(instances.Items), len(members.Items))
		}
		return err
	})
}
