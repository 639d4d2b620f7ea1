//go:build faults

package bindings_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/bindings"
	"github.com/sluice-dev/sluice/internal/crashpoint"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/test/controlplane"
)

// Environment of a child process.
const (
	childHub      = "SLUICE_TEST_CHILD_HUB"
	childKeys     = "SLUICE_TEST_CHILD_KEYS"
	childMembers  = "SLUICE_TEST_CHILD_MEMBERS" // namespace of the member clusters
	childBindings = "SLUICE_TEST_CHILD_BINDING" // namespace
	childBinding  = "SLUICE_TEST_CHILD_NAME"
	crashFile     = "SLUICE_CRASH_FILE"
)

// TestKilledWhileAddressed kills a controller after each of its writes, because the
// test bed of test/crash has no Liqo. The next controller must continue from there: with
// one address for the Service, and with none after unbind.
func TestKilledWhileAddressed(t *testing.T) {
	f := newLiqoFixture(t)
	f.node(t, provider, "worker")
	other := *f
	other.namespace = hubtest.Namespace(t) // the fixture's own controller does not watch it
	other.declarePeering(t, own, provider)
	instance := other.deliverTo(t, other.instance(t), peering(provider, "", ""))
	namespace := v1alpha1.MemberNamespace(instance.Name)
	f.service(t, provider, namespace, "web", corev1.ServiceTypeClusterIP)
	f.pod(t, provider, namespace, "web", "worker")
	b := other.bind(t, instance, "binding-1", "edit")

	child := newChild(t, &other, b)
	child.killedAt(t, "cluster create ips")
	other.bound(t, b)
	if n := len(f.ownAddresses(t, provider, b)); n != 1 || len(b.Status.Services) != 1 {
		t.Errorf("%d addresses and Services %v, want one", n, b.Status.Services)
	}
	if err := f.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	child.killedAt(t, "cluster delete ips")
	other.gone(t, b)
	if n := len(f.ownAddresses(t, provider, b)); n > 0 {
		t.Errorf("unbound, %d addresses are left", n)
	}
}

// TestKilledOnAPool kills a controller after each of its writes for a binding on a pool and its inner one. The next one must
// continue from there, with one inner binding, and with none after unbind.
func TestKilledOnAPool(t *testing.T) {
	f := newLiqoFixture(t)
	other := *f
	other.namespace = hubtest.Namespace(t) // the fixture's own controller does not watch it
	outer := other.instance(t)
	inner := other.onPool(t, outer, "pool-1", hubCluster)
	b := other.bind(t, outer, "binding-1", "edit")

	child := newChild(t, &other, b)
	child.killedAt(t, "hub create servicebindings", "cluster patch serviceaccounts")
	other.works(t, other.bound(t, b), "pool-1", hubCluster, inner)
	if err := f.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	child.killedAt(t, "hub delete servicebindings", "cluster delete serviceaccounts")
	other.gone(t, b)
	if left := other.innerNames(t, b); len(left) > 0 {
		t.Errorf("unbound, it has the inner bindings %q", left)
	}
}

// child runs this test's binary as a controller of one binding.
type child struct {
	environment []string
	armed       string
}

func newChild(t *testing.T, f *fixture, b *v1alpha1.ServiceBinding) *child {
	t.Helper()
	c := &child{armed: filepath.Join(t.TempDir(), "armed")}
	c.environment = append(os.Environ(), childHub+"="+writeKubeconfig(t, hubtest.Start(t).Config), childKeys+"="+f.keyset,
		childMembers+"="+f.connections.Namespace, childBindings+"="+b.Namespace, childBinding+"="+b.Name, crashFile+"="+c.armed)
	return c
}

func writeKubeconfig(t *testing.T, config *rest.Config) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		CurrentContext: "hub",
		Contexts:       map[string]*clientcmdapi.Context{"hub": {Cluster: "hub", AuthInfo: "hub"}},
		Clusters: map[string]*clientcmdapi.Cluster{"hub": {
			Server: config.Host, CertificateAuthorityData: config.CAData, CertificateAuthority: config.CAFile, TLSServerName: config.ServerName, InsecureSkipTLSVerify: config.Insecure,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"hub": {
			Token: config.BearerToken, ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, ClientCertificate: config.CertFile, ClientKey: config.KeyFile,
		}},
	}, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// killedAt runs the controller again and again, killed after each of its writes, until
// it gets to the end. The given writes must be among them.
func (c *child) killedAt(t *testing.T, writes ...string) {
	t.Helper()
	if err := os.WriteFile(c.armed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for {
		command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$", "-test.v")
		command.Env = c.environment
		output, err := command.CombinedOutput()
		if err == nil {
			break
		}
		var ended *exec.ExitError
		if !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("the controller did not get there: %v\n%s", err, output)
		}
	}
	killed, err := os.ReadFile(c.armed)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("killed %d times", strings.Count(string(killed), "\n"))
	for _, write := range writes {
		if !strings.Contains(string(killed), write) {
			t.Errorf("it was not killed after %s, but after\n%s", write, killed)
		}
	}
}

// TestChild is the controller, in a process of its own.
func TestChild(t *testing.T) {
	if os.Getenv(childHub) == "" {
		t.Skip("for TestKilledWhileAddressed, TestKilledOnAPool and TestKilledWithAHook")
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv(childHub))
	if err != nil {
		t.Fatal(err)
	}
	crashpoint.Guard(config, "hub")
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	hub, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := seal.Open(os.Getenv(childKeys))
	if err != nil {
		t.Fatal(err)
	}
	controller := &bindings.Controller{
		Client: hub, Live: hub, Keys: keys, Hub: hubID, Clock: clock.RealClock{}, Patience: time.Hour,
		Connections: &member.Connections{Reader: hub, Namespace: os.Getenv(childMembers), Keys: keys},
	}
	key := client.ObjectKey{Namespace: os.Getenv(childBindings), Name: os.Getenv(childBinding)}
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		var all v1alpha1.ServiceBindingList // with the inner one, on a pool
		if err := hub.List(ctx, &all, client.InNamespace(key.Namespace)); err != nil {
			return false, err
		}
		for i := range all.Items {
			if _, err := controller.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])}); err != nil {
				t.Log(err)
			}
		}
		var b v1alpha1.ServiceBinding
		err := hub.Get(ctx, key, &b)
		return apierrors.IsNotFound(err) || err == nil && b.DeletionTimestamp.IsZero() && in(v1alpha1.StateSucceeded)(&b), nil
	})
	if err != nil {
		t.Fatalf("it did not come to an end: %v", err)
	}
}

// TestKilledWithAHook kills a controller after each of its writes while a hook returns results
// and another revokes them. The next controller must continue from there, and nothing may be left.
func TestKilledWithAHook(t *testing.T) {
	f := newFixtureOf(t, clusters[:1], usualRights, 100*time.Millisecond, controlplane.Node{Name: "node-1"})
	other := *f
	other.namespace = hubtest.Namespace(t) // the fixture's own controller does not watch it
	h := other.deliverWorkload(t, returning(`{"token": "aHVzaC1odXNo", "id": "NDI="}`))
	b := other.bind(t, h.instance, "1", "")
	child := newChild(t, &other, b)
	child.killedAt(t, "cluster patch jobs", "cluster patch rolebindings", "cluster delete jobs", "cluster delete secrets")
	other.bound(t, b)
	if u := h.user(t, b); u.Password != "hush-hush-42" {
		t.Errorf("the credentials have the password %s", u.Password)
	}
	h.nothingOf(t)
	if err := f.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	child.killedAt(t, "cluster patch jobs", "cluster delete jobs")
	other.gone(t, b)
	h.nothingOf(t)
}
