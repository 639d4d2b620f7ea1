package console

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/broker"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
	"github.com/sluice-dev/sluice/internal/identity/identitytest"
	"github.com/sluice-dev/sluice/internal/market"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/replay"
)

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	hubtest.Main(m)
}

// scheme has the resources of Sluice.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		panic(err)
	}
	return s
}()

// consoleOf is a console on a hub of its own namespace.
type consoleOf struct {
	*testing.T
	client.Client
	namespace string
	config    *rest.Config
	catalog   *catalog.Catalog
	keys      *seal.Keyset
	changes   *Changes
	console   *server
	handler   http.Handler
	server    *httptest.Server
	tokens    *access.Tokens
	platforms string // the file
	// untried is how many of the instances on a cluster there is no time for when its drain or loss is played.
	untried int
}

const platformsFile = `platforms:
- {name: shop, basic: [{username: shop, password: secret}]}
- {name: cf-eu, basic: [{username: cf, password: another}]}
`

func newConsole(t *testing.T) *consoleOf {
	t.Helper()
	h := hubtest.Start(t)
	c, err := client.NewWithWatch(h.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "platforms.yaml")
	if err := os.WriteFile(file, []byte(platformsFile), 0o600); err != nil {
		t.Fatal(err)
	}
	platforms, err := broker.LoadPlatforms(file)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	if err != nil {
		t.Fatal(err)
	}
	of := &consoleOf{T: t, Client: c, config: h.Config, namespace: hubtest.Namespace(t), catalog: &catalog.Catalog{}, keys: keys, changes: NewChanges(), platforms: file}
	of.tokens = &access.Tokens{Hub: c, Live: c, Writer: c, Namespace: of.namespace, Seal: keys, Platforms: platforms}
	platforms.AcceptTokens(of.tokens)
	identitytest.Rotate(t, c, of.namespace, keys, "did:web:broker.example", "first")
	of.create(&v1alpha1.Provider{ObjectMeta: metav1.ObjectMeta{Name: "acme"}, Spec: v1alpha1.ProviderSpec{
		Identified: v1alpha1.Identified{DID: "did:web:acme.example"}, Joins: &v1alpha1.ProviderJoins{AtMost: 4, Proven: true},
	}})
	silent := slog.New(slog.DiscardHandler)
	osb, err := broker.New(broker.Options{
		Client: c, Namespace: of.namespace, Hub: h.ID, Catalog: of.catalog, Platforms: platforms, Keys: keys, BindWait: time.Millisecond, Logger: silent,
	})
	if err != nil {
		t.Fatal(err)
	}
	sells := market.New(market.Options{Hub: c, Live: c, Namespace: of.namespace, Catalog: of.catalog, Tokens: of.tokens, Platforms: platforms, Policies: checked{}, Moves: of.moves, Logger: silent}, osb)
	of.console, err = newServer(Options{
		Hub: c, Live: c, Namespace: of.namespace, Catalog: of.catalog, Tokens: of.tokens, OSB: osb, Market: sells, Explain: of.explain, Changes: of.changes,
		Platforms: platforms,
	})
	if err != nil {
		t.Fatal(err)
	}
	of.handler = of.console.handle(osb)
	of.start(false)
	return of
}

// start starts the server, with TLS or without.
func (c *consoleOf) start(secure bool) {
	c.server = httptest.NewUnstartedServer(c.handler)
	if secure {
		c.server.StartTLS()
	} else {
		c.server.Start()
	}
	c.Cleanup(c.server.Close)
}

// as returns a browser in which a caller has logged in; the zero caller has not.
func (c *consoleOf) as(caller access.Caller) *http.Client {
	c.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		c.Fatal(err)
	}
	if caller != (access.Caller{}) {
		token, err := c.tokens.Issue(c.Context(), caller, time.Hour)
		if err != nil {
			c.Fatal(err)
		}
		at, _ := url.Parse(c.server.URL)
		jar.SetCookies(at, []*http.Cookie{{Name: "sluice", Value: token, Path: "/"}})
	}
	return &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// create creates a resource with its status.
func (c *consoleOf) create(o client.Object) {
	c.Helper()
	o.SetNamespace(c.namespace)
	wanted := o.DeepCopyObject().(client.Object)
	if err := c.Create(c.Context(), o); err != nil {
		c.Fatal(err)
	}
	wanted.SetResourceVersion(o.GetResourceVersion())
	wanted.SetUID(o.GetUID())
	if err := c.Status().Update(c.Context(), wanted); err != nil && !strings.Contains(err.Error(), "not found") {
		c.Fatal(err)
	}
	o.SetResourceVersion(wanted.GetResourceVersion())
}

// since is a time in the past.
func since(d time.Duration) metav1.Time { return metav1.NewTime(time.Now().Add(-d)) }

func condition(kind string, is bool, reason, message string, ago time.Duration) metav1.Condition {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: since(ago)}
}

func resources(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

// cluster that is ready.
func cluster(name, region, provider, cpu, memory string) *v1alpha1.MemberCluster {
	return &v1alpha1.MemberCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"environment": "production"}},
		Spec: v1alpha1.MemberClusterSpec{
			Region: region, Provider: provider, Tier: v1alpha1.TierCloud, Access: v1alpha1.ClusterAccess{SealedKubeconfig: []byte("sealed")},
			Prices: &v1alpha1.PriceList{Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{corev1.ResourceCPU: resource.MustParse("12m"), corev1.ResourceMemory: resource.MustParse("3m")}},
		},
		Status: v1alpha1.MemberClusterStatus{
			Conditions: []metav1.Condition{
				condition(v1alpha1.ConditionReachable, true, "Answered", "its API server answers", 50*time.Hour),
				condition(v1alpha1.ConditionAccessVerified, true, "Verified", "Sluice may do there what its driver needs", 50*time.Hour),
				condition(v1alpha1.ConditionCapacityKnown, true, "Read", "its nodes have been read", 50*time.Hour),
				condition(v1alpha1.ConditionReady, true, v1alpha1.ReasonReady, "it takes instances", 50*time.Hour),
			},
			KubernetesVersion: "v1.34.2", Nodes: 12, Allocatable: resources(cpu, memory), ForeignUse: resources("3500m", "9Gi"), Latency: &metav1.Duration{Duration: 14 * time.Millisecond},
		},
	}
}

// instanceOf returns an instance that is delivered.
func instanceOf(platform, id, plan string, clusters ...string) *v1alpha1.ServiceInstance {
	i := &v1alpha1.ServiceInstance{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.InstanceName(platform, id)},
		Spec: v1alpha1.ServiceInstanceSpec{
			Platform: platform, InstanceID: id, ServiceID: "postgresql", OrganizationGUID: "default", SpaceGUID: "default", Desired: v1alpha1.InstanceState{PlanID: plan},
		},
	}
	price := resource.MustParse("84m")
	d := v1alpha1.Decision{Generation: 1, Considered: 11, Rejections: []v1alpha1.Rejection{
		{Reason: "Policy", Count: 4, Examples: []v1alpha1.RejectionExample{{Cluster: "us-east-1", Message: "eu-only: claim datacenter.country is US, want one of EU"}, {Cluster: "us-west-1", Message: "eu-only: nothing is proven of datacenter.country"}}},
		{Reason: "InsufficientCPU", Count: 3, Examples: []v1alpha1.RejectionExample{{Cluster: "eu-south-1", Message: "needs 4 cpu, 1.5 free of 32 after 27 reserved and 3.5 used by others"}}},
		{Reason: "NotReady", Count: 1, Examples: []v1alpha1.RejectionExample{{Cluster: "eu-north-2", Message: "has not answered since 05:51"}}},
	}}
	for n, name := range clusters {
		d.Placements = append(d.Placements, v1alpha1.Placement{Cluster: name, Reserved: resources("4", "16Gi"), Score: int32(91 - 7*n), PricePerHour: &price, Currency: "EUR"})
	}
	if len(clusters) > 0 {
		d.RunnerUp = &v1alpha1.RunnerUp{Cluster: "eu-west-2", Score: 78}
	}
	done := since(2*time.Hour - 40*time.Second)
	i.Status = v1alpha1.ServiceInstanceStatus{
		Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, true, v1alpha1.ReasonReady, "", 2*time.Hour)},
		Operation:  &v1alpha1.Operation{Type: v1alpha1.OperationProvision, Generation: 1, State: v1alpha1.StateSucceeded, StartedAt: since(2 * time.Hour), FinishedAt: &done},
		Decision:   &d, Delivered: &v1alpha1.DeliveredState{State: i.Spec.Desired, Decision: d},
	}
	by := &v1alpha1.OriginatingIdentity{Platform: "cloudfoundry", Value: runtime.RawExtension{Raw: []byte(`{"user_id": "683ea748-3092-4ff4-b656-39cacc4d5360", "username": "ada@example.com"}`)}}
	event := func(ago time.Duration, e v1alpha1.Event) {
		e.At, e.PlanID = metav1.NewMicroTime(time.Now().Add(-ago)), plan
		v1alpha1.AddEvent(&i.Status.Events, e)
	}
	event(2*time.Hour, v1alpha1.Event{Type: v1alpha1.EventOrdered, Operation: v1alpha1.OperationProvision, By: by})
	event(2*time.Hour-time.Second, v1alpha1.Event{Type: v1alpha1.EventPlaced, Operation: v1alpha1.OperationProvision, Clusters: clusters, Message: "score 91 of 100, 3 clusters fit of 11"})
	event(2*time.Hour-38*time.Second, v1alpha1.Event{Type: v1alpha1.EventDelivered, Operation: v1alpha1.OperationProvision, Clusters: clusters, After: &metav1.Duration{Duration: 38 * time.Second}})
	return i
}

// ticket returns a ticket for an operator.
func (c *consoleOf) ticket() string {
	c.Helper()
	ticket, err := c.tokens.Ticket(c.Context(), access.Caller{Role: access.Operator})
	if err != nil {
		c.Fatal(err)
	}
	return ticket
}

// explain decides for an instance of a plan, as sluice serve does.
func (c *consoleOf) explain(ctx context.Context, i *v1alpha1.ServiceInstance, leaving []string) ([]placement.Verdict, error) {
	p, err := c.catalog.Snapshot().Plan(i.Spec.ServiceID, i.Spec.Desired.PlanID)
	if err != nil {
		return nil, err
	}
	order := replay.Order{ID: i.Name, PlanID: p.ID, Parameters: i.Spec.Desired.Raw(), Leaving: leaving}
	_, verdicts, err := replay.Record(ctx, c, c.namespace, *p.Offering.ServiceOfferingSpec, order, time.Now())
	return verdicts, err
}
