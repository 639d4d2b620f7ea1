//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cf "github.com/cloudfoundry/go-cfclient/v3/client"
	"github.com/cloudfoundry/go-cfclient/v3/config"
	"github.com/cloudfoundry/go-cfclient/v3/resource"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/test/korifi"
)

// TestKorifi takes the steps of docs/platforms.md through a real Korifi, from the broker's registration to its
// deletion. Each step is the request of the CF API that the page's command makes; the cf CLI itself is not run.
func TestKorifi(t *testing.T) {
	t.Parallel()
	must(t, loadEcho())
	k := korifi.Start(t)
	s := serve(t)
	kubeconfig := filepath.Join(t.TempDir(), "korifi.kubeconfig")
	must(t, os.WriteFile(kubeconfig, k.Kubeconfig(), 0o600))
	s.sluice("cluster", "add", "here", "--from-kubeconfig", kubeconfig)
	s.sluice("catalog", "apply", "-f", filepath.Join(root, "docs/examples/offering.yaml"))
	w := &cloudFoundry{Client: login(t, k), server: s, cluster: kubernetes.NewForConfigOrDie(k.Config())}
	steps := []struct {
		command string
		take    func(*testing.T)
	}{
		{`cf create-service-broker sluice "$SLUICE_USERNAME" "$SLUICE_PASSWORD" "$SLUICE_URL"`, w.register},
		{`cf enable-service-access kubernetes-resources`, w.enable},
		{`cf create-org acme && cf create-space shop -o acme && cf target -o acme -s shop`, w.space},
		{`cf marketplace -e kubernetes-resources`, w.marketplace},
		{`cf create-service kubernetes-resources small room --wait`, w.create},
		{`cf create-service-key room key --wait`, w.key},
		{`cf service-key room key`, w.useKey},
		{`cf create-app front && cf bind-service front room --wait`, w.bind},
		{`cf unbind-service front room --wait`, w.unbind},
		{`cf delete-service-key room key -f --wait`, w.deleteKey},
		{`cf delete-service room -f --wait`, w.delete},
		{`cf delete-service-broker sluice -f`, w.unregister},
	}
	var commands []string
	for _, step := range steps {
		commands = append(commands, step.command)
	}
	if page := pageCommands(t, "docs/platforms.md"); !slices.Equal(page, commands) {
		t.Errorf("docs/platforms.md has the commands\n%s\nbut these steps are taken:\n%s", strings.Join(page, "\n"), strings.Join(commands, "\n"))
	}
	for _, step := range steps {
		if !t.Run(step.command, step.take) {
			break
		}
	}
}

// pageCommands returns the cf commands of a page, those of its console blocks.
func pageCommands(t *testing.T, file string) []string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, file))
	must(t, err)
	var commands []string
	console := false
	for line := range strings.Lines(string(content)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "```"):
			console = line == "```console"
		case console && strings.HasPrefix(line, "$ "):
			commands = append(commands, strings.TrimPrefix(line, "$ "))
		}
	}
	return commands
}

// login returns a client of the CF API with the administrator's token.
func login(t *testing.T, k *korifi.Korifi) *cf.Client {
	t.Helper()
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(k.Authority)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authorities}}}
	c, err := config.New(k.URL, config.HttpClient(client), config.Token(k.Token, ""), config.AuthTokenURL(k.URL, k.URL))
	must(t, err)
	api, err := cf.New(c)
	must(t, err)
	return api
}

// cloudFoundry is the state that the steps share.
type cloudFoundry struct {
	*cf.Client
	server  server
	cluster kubernetes.Interface

	org, spaceID, plan, instance, keyID, binding string
}

// done waits until a job has ended well.
func (w *cloudFoundry) done(t *testing.T, job string, err error) {
	t.Helper()
	must(t, err)
	must(t, w.Jobs.PollComplete(t.Context(), job, &cf.PollingOptions{FailedState: "FAILED", Timeout: 2 * time.Minute, CheckInterval: 200 * time.Millisecond}))
}

func (w *cloudFoundry) register(t *testing.T) {
	b := w.server.broker
	job, err := w.ServiceBrokers.Create(t.Context(), resource.NewServiceBrokerCreate("sluice", b.url, b.username, b.password))
	w.done(t, job, err)
}

func (w *cloudFoundry) enable(t *testing.T) {
	plans, err := w.ServicePlans.ListAll(t.Context(), nil)
	must(t, err)
	for _, plan := range plans {
		_, err := w.ServicePlansVisibility.Apply(t.Context(), plan.GUID, resource.NewServicePlanVisibilityUpdate(resource.ServicePlanVisibilityPublic))
		must(t, err)
	}
}

func (w *cloudFoundry) space(t *testing.T) {
	org, err := w.Organizations.Create(t.Context(), resource.NewOrganizationCreate("acme"))
	must(t, err)
	space, err := w.Spaces.Create(t.Context(), resource.NewSpaceCreate("shop", org.GUID))
	must(t, err)
	w.org, w.spaceID = org.GUID, space.GUID
}

// marketplace finds the plans that Sluice offers, with what makes them fit for sale.
func (w *cloudFoundry) marketplace(t *testing.T) {
	plans, err := w.ServicePlans.ListAll(t.Context(), nil)
	must(t, err)
	catalog := w.server.broker.must(t, "GET", "/v2/catalog", nil, nil, http.StatusOK)
	offered := 0
	for _, offering := range catalog.body["services"].([]any) {
		offered += len(offering.(map[string]any)["plans"].([]any))
	}
	if len(plans) != offered || offered == 0 {
		t.Errorf("the marketplace has %d plans, Sluice offers %d", len(plans), offered)
	}
	small := w.server.broker.findPlan(t, "kubernetes-resources", "small")
	for _, plan := range plans {
		if plan.BrokerCatalog.ID != small.id {
			continue
		}
		w.plan = plan.GUID
		if plan.Schemas.ServiceInstance.Create.Parameters == nil {
			t.Error("the plan small shows no schema of its parameters")
		}
	}
	if w.plan == "" {
		t.Error("the marketplace has no plan small")
	}
}

// order asks for an instance, and returns the job.
func (w *cloudFoundry) order(t *testing.T, name, parameters string) string {
	t.Helper()
	order := resource.NewServiceInstanceCreateManaged(name, w.spaceID, w.plan)
	raw := json.RawMessage(parameters)
	order.Parameters = &raw
	job, err := w.ServiceInstances.CreateManaged(t.Context(), order)
	must(t, err)
	return job
}

// find returns the instance of a name.
func (w *cloudFoundry) find(ctx context.Context, name string) (*resource.ServiceInstance, error) {
	options := cf.NewServiceInstanceListOptions()
	options.Names.EqualTo(name)
	return w.ServiceInstances.Single(ctx, options)
}

// create orders an instance, after one with a parameter that Sluice refuses, which fails and can be deleted.
func (w *cloudFoundry) create(t *testing.T) {
	w.order(t, "refused", `{"colour": "blue"}`)
	var refused *resource.ServiceInstance
	eventually(t, time.Minute, "the order with an unknown parameter fails", func(ctx context.Context) string {
		var err error
		if refused, err = w.find(ctx, "refused"); err != nil || refused.LastOperation.State != "failed" {
			return fmt.Sprint(refused, err)
		}
		return ""
	})
	job, err := w.ServiceInstances.Delete(t.Context(), refused.GUID)
	w.done(t, job, err)

	w.done(t, w.order(t, "room", `{}`), nil)
	room, err := w.find(t.Context(), "room")
	must(t, err)
	if room.LastOperation.Type != "create" || room.LastOperation.State != "succeeded" {
		t.Errorf("the last operation is %+v", room.LastOperation)
	}
	w.instance = room.GUID
	if known := w.server.instanceOf(t, w.instance).Spec; known.OrganizationGUID != w.org || known.SpaceGUID != w.spaceID {
		t.Errorf("Sluice knows the instance of organization %q and space %q, want %s and %s", known.OrganizationGUID, known.SpaceGUID, w.org, w.spaceID)
	}
}

func (w *cloudFoundry) key(t *testing.T) {
	job, _, err := w.ServiceCredentialBindings.Create(t.Context(), resource.NewServiceCredentialBindingCreateKey(w.instance, "key"))
	w.done(t, job, err)
	options := cf.NewServiceCredentialBindingListOptions()
	options.ServiceInstanceGUIDs.EqualTo(w.instance)
	binding, err := w.ServiceCredentialBindings.Single(t.Context(), options)
	must(t, err)
	w.keyID = binding.GUID
}

// useKey works with what the key gives.
func (w *cloudFoundry) useKey(t *testing.T) {
	details, err := w.ServiceCredentialBindings.GetDetails(t.Context(), w.keyID)
	must(t, err)
	credentials := map[string]any{}
	for name, value := range details.Credentials {
		credentials[name] = value
	}
	useIt(t, "the key", consume(t, answer{body: map[string]any{"credentials": credentials}}))
}

// bind gives an app the credentials, as a Secret by the specification of service bindings for Kubernetes.
func (w *cloudFoundry) bind(t *testing.T) {
	app, err := w.Applications.Create(t.Context(), resource.NewAppCreate("front", w.spaceID))
	must(t, err)
	job, _, err := w.ServiceCredentialBindings.Create(t.Context(), resource.NewServiceCredentialBindingCreateApp(w.instance, app.GUID))
	w.done(t, job, err)
	options := cf.NewServiceCredentialBindingListOptions()
	options.AppGUIDs.EqualTo(app.GUID)
	binding, err := w.ServiceCredentialBindings.Single(t.Context(), options)
	must(t, err)
	w.binding = binding.GUID
	secrets, err := w.cluster.CoreV1().Secrets(w.spaceID).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	if !slices.ContainsFunc(secrets.Items, func(s corev1.Secret) bool {
		return strings.HasPrefix(string(s.Type), "servicebinding.io/") && len(s.Data["kubeconfig"]) > 0
	}) {
		t.Errorf("no Secret for the app has the kubeconfig")
	}
}

func (w *cloudFoundry) unbind(t *testing.T) {
	job, err := w.ServiceCredentialBindings.Delete(t.Context(), w.binding)
	w.done(t, job, err)
}

func (w *cloudFoundry) deleteKey(t *testing.T) {
	job, err := w.ServiceCredentialBindings.Delete(t.Context(), w.keyID)
	w.done(t, job, err)
}

// delete gives the instance back; nothing of it is left.
func (w *cloudFoundry) delete(t *testing.T) {
	job, err := w.ServiceInstances.Delete(t.Context(), w.instance)
	w.done(t, job, err)
	left, err := w.cluster.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.LabelInstance})
	must(t, err)
	if len(left.Items) > 0 {
		t.Errorf("left: %v", left.Items)
	}
}

// unregister deletes the broker. Its offering and plans stay in Korifi's marketplace, whatever the broker was.
func (w *cloudFoundry) unregister(t *testing.T) {
	brokers, err := w.ServiceBrokers.ListAll(t.Context(), nil)
	must(t, err)
	for _, b := range brokers {
		job, err := w.ServiceBrokers.Delete(t.Context(), b.GUID)
		w.done(t, job, err)
	}
	if left, err := w.ServiceBrokers.ListAll(t.Context(), nil); err != nil || len(left) > 0 {
		t.Errorf("brokers are left: %v, %v", left, err)
	}
}
