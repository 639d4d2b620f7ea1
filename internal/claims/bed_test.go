package claims

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	claimsv1 "github.com/sluice-dev/sluice/api/claims/v1alpha1"
	"github.com/sluice-dev/sluice/internal/crdtest"
	"github.com/sluice-dev/sluice/internal/osbclient"
	"github.com/sluice-dev/sluice/test/controlplane"
	"github.com/sluice-dev/sluice/test/osb/suitetest"
)

// consumer is the cluster of the tests.
var consumer = sync.OnceValues(func() (*controlplane.ControlPlane, error) {
	cp, err := controlplane.New(context.Background(), controlplane.Options{Name: "consumer", APIServerOnly: true})
	if err != nil {
		return nil, err
	}
	c, err := client.New(cp.Config(), client.Options{Scheme: scheme()})
	if err != nil {
		return cp, err
	}
	var definitions []*apiextensionsv1.CustomResourceDefinition
	files, err := filepath.Glob("../../charts/claims/crds/*.yaml")
	if err != nil || len(files) != 2 {
		return cp, fmt.Errorf("%d definitions, %w", len(files), err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return cp, err
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(content, definition); err != nil {
			return cp, err
		}
		definitions = append(definitions, definition)
	}
	return cp, crdtest.Define(context.Background(), c, definitions...)
})

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(AddToScheme(s), apiextensionsv1.AddToScheme(s)); err != nil {
		panic(err)
	}
	return s
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	code := m.Run()
	if cp, _ := consumer(); cp != nil {
		_ = cp.Stop()
	}
	os.Exit(code)
}

// bed is a namespace in a consumer's cluster, a broker, and the process of a controller.
type bed struct {
	*testing.T
	cluster   *controlplane.ControlPlane
	client    client.Client
	namespace string
	shop      *shop
	clock     *clocktesting.FakePassiveClock
	overlap   time.Duration
	// dies, if set, kills the process. whileDead, if set, is called before it is started again.
	dies      *death
	whileDead func()
	*Controller
}

// newBed makes a namespace, and starts a controller.
func newBed(t *testing.T, broker http.Handler) *bed {
	t.Helper()
	cp, err := consumer()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cp.Config(), client.Options{Scheme: scheme()})
	if err != nil {
		t.Fatal(err)
	}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "shop-"}}
	if err := c.Create(t.Context(), space); err != nil {
		t.Fatal(err)
	}
	b := &bed{T: t, cluster: cp, client: c, namespace: space.Name, shop: newShop(t, broker), clock: clocktesting.NewFakePassiveClock(time.Now()), overlap: time.Minute}
	b.shop.clock = b.clock
	b.start()
	return b
}

// start starts the process, again if it was killed: nothing is left of what it had in memory.
func (b *bed) start() {
	b.Helper()
	config := b.cluster.Config()
	broker := configOf(b.shop.url)
	known, err := client.New(config, client.Options{Scheme: scheme()})
	if err != nil {
		b.Fatal(err)
	}
	cluster, err := LookUp(b.Context(), known)
	if err != nil {
		b.Fatal(err)
	}
	if b.dies != nil {
		dies := b.dies
		config.Wrap(dies.wrap)
		broker.Wrap = dies.wrap
	}
	live, err := client.New(config, client.Options{Scheme: scheme()})
	if err != nil {
		b.Fatal(err)
	}
	opened := open(b.T, broker)
	b.Controller = &Controller{Client: live, Broker: func() *osbclient.Client { return opened }, Name: claimsv1.DefaultBroker, Cluster: cluster, Overlap: b.overlap, Clock: b.clock}
}

// configOf returns the configuration of a client of a broker on this machine.
func configOf(url string) osbclient.Config {
	return osbclient.Config{
		URL: url, Credentials: osbclient.Credentials{Username: suitetest.FirstUsername, Password: suitetest.FirstPassword},
		Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	}
}

func open(t *testing.T, config osbclient.Config) *osbclient.Client {
	t.Helper()
	opened, err := osbclient.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

// until lets the controller look at the claims again and again until a check succeeds, at most a minute.
func (b *bed) until(what string, check func() error) {
	b.Helper()
	key := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: b.namespace, Name: "db"}}
	limit := time.Now().Add(time.Minute)
	for {
		_, one := b.ReconcileService(b.Context(), key)
		_, two := b.ReconcileBinding(b.Context(), key)
		if b.dies != nil && b.dies.isDead() {
			if b.dies = nil; b.whileDead != nil {
				b.whileDead()
			}
			b.start()
			continue
		}
		err := check()
		if err == nil {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-b.Context().Done():
		}
		if time.Now().After(limit) {
			b.Fatalf("wait until %s: %v; the passes say %v", what, err, errors.Join(one, two))
		}
	}
}

// claim creates the two claims.
func (b *bed) claim(service claimsv1.ServiceClaimSpec, binding *claimsv1.BindingClaimSpec) {
	b.Helper()
	service.Service = "name-of-service"
	b.create(&claimsv1.ServiceClaim{ObjectMeta: b.named(), Spec: service})
	if binding != nil {
		binding.ServiceClaim = "db"
		b.create(&claimsv1.BindingClaim{ObjectMeta: b.named(), Spec: *binding})
	}
}

func (b *bed) named() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: b.namespace, Name: "db"}
}

func (b *bed) create(object client.Object) {
	b.Helper()
	if err := b.client.Create(b.Context(), object); err != nil {
		b.Fatal(err)
	}
}

func (b *bed) service() *claimsv1.ServiceClaim {
	b.Helper()
	return get(b, &claimsv1.ServiceClaim{})
}

func (b *bed) binding() *claimsv1.BindingClaim {
	b.Helper()
	return get(b, &claimsv1.BindingClaim{})
}

func (b *bed) secret() *corev1.Secret {
	b.Helper()
	return get(b, &corev1.Secret{})
}

// get reads the object named db; its name is empty if there is none.
func get[T client.Object](b *bed, into T) T {
	b.Helper()
	into.SetNamespace(b.namespace)
	into.SetName("db")
	err := b.client.Get(b.Context(), client.ObjectKeyFromObject(into), into)
	if client.IgnoreNotFound(err) != nil {
		b.Fatal(err)
	}
	if apierrors.IsNotFound(err) {
		into.SetName("")
	}
	return into
}

// changes changes a claim.
func changes[T client.Object](b *bed, claim T, change func(T)) {
	b.Helper()
	change(claim)
	if err := b.client.Update(b.Context(), claim); err != nil {
		b.Fatal(err)
	}
}

func (b *bed) remove(object client.Object) {
	b.Helper()
	if err := b.client.Delete(b.Context(), object); err != nil {
		b.Fatal(err)
	}
}

// is returns an error unless the condition Ready of the claim as it is now has a reason, and says something.
func is(conditions []metav1.Condition, generation int64, reason, says string) error {
	ready := meta.FindStatusCondition(conditions, claimsv1.ConditionReady)
	if ready == nil || ready.ObservedGeneration != generation || ready.Reason != reason || !strings.Contains(ready.Message, says) {
		return fmt.Errorf("generation %d: %+v, want %s: %s", generation, ready, reason, says)
	}
	return nil
}

// serviceIs waits until the service claim has a reason, and says something.
func (b *bed) serviceIs(reason, says string) {
	b.Helper()
	b.until("the service claim is "+reason, func() error {
		claim := b.service()
		return is(claim.Status.Conditions, claim.Generation, reason, says)
	})
}

// bindingIs waits likewise.
func (b *bed) bindingIs(reason, says string) {
	b.Helper()
	b.until("the binding claim is "+reason, func() error {
		claim := b.binding()
		return is(claim.Status.Conditions, claim.Generation, reason, says)
	})
}

// gone waits until both claims and the Secret are gone, and checks that nothing is left at the broker.
func (b *bed) gone() {
	b.Helper()
	b.until("all is gone", func() error {
		if names := b.service().Name + b.binding().Name + b.secret().Name; names != "" {
			return fmt.Errorf("left: %s", names)
		}
		return nil
	})
	if left := b.shop.left(); len(left) > 0 {
		b.Errorf("the broker still has %v", left)
	}
}
