//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	hubconfig "github.com/sluice-dev/sluice/internal/hub"
	"github.com/sluice-dev/sluice/selfdescription"
)

// publicURL is the name that the broker has in these tests; it is reached at another one.
const publicURL, brokerDID = "https://broker.example", "did:web:broker.example"

// TestTrust is the third act of the demo: two providers join with the demo's own
// script, one certified in Germany, one in the United States that only speaks for
// itself; a policy asks for the European Union and more than the provider's word.
func TestTrust(t *testing.T) {
	t.Parallel()
	needMembers(t)
	var proxy httputil.ReverseProxy
	reached, address := listenOnKind(t, &proxy)
	s := serve(t, "--public-url", publicURL, "--vantage", "kind", "--probe-every", "2s", "--probe-allow-addresses", address+"/32")
	inside, err := url.Parse(s.broker.url)
	must(t, err)
	proxy.Rewrite = func(r *httputil.ProxyRequest) { r.SetURL(inside) }
	german, american := members[0], members[1]
	for _, name := range members {
		s.sluice("cluster", "add", name, "--from-kubeconfig", kubeconfig(name))
	}
	s.sluice("catalog", "apply", "-f", filepath.Join(root, "docs/examples/offering.yaml"))
	w := &trustedWorld{server: s, hub: s.hub(t), dir: t.TempDir(), german: german, american: american}
	w.shell(t, fmt.Sprintf("test/demo/providers.sh %q %q %q %q %q %q", w.dir, s.broker.url, german, kubeconfig(german), american, kubeconfig(american)))
	for _, name := range members {
		w.awaitCluster(t, name, "admitted", func(c *v1alpha1.MemberCluster) bool { return isTrue(c.Status.Conditions, v1alpha1.ConditionAdmitted) })
	}
	s.sluice("policy", "apply", "-f", filepath.Join(root, "docs/examples/policy.yaml"))

	t.Run("claims say who stands for them", w.claims)
	t.Run("the catalog shows the facts", w.facts)
	t.Run("a buyer verifies them without Sluice's word", w.buyer)
	t.Run("the policy decides and explains", w.decides)
	t.Run("a probe answers the broker", func(t *testing.T) { w.probe(t, reached) })
	t.Run("revocation stops new placements only", w.revocation)
	for _, name := range members {
		nothingLeft(t, name)
	}
}

// probe has a policy measure the German cluster: the probe's pod, confined as every pod there is, reaches the broker. It is
// gone after the policy.
func (w *trustedWorld) probe(t *testing.T, broker string) {
	archive := filepath.Join(t.TempDir(), "probe.tar")
	const image = "sluice-dev/sluice:0.1.0" // as the offering has it
	must(t, run("test/kind/image.sh", image, filepath.Join(mustAbs(t, root), "bin/sluice"), archive))
	must(t, run("test/kind/load.sh", w.german, archive))
	w.sluice("catalog", "apply", "-f", filepath.Join(root, "charts/probe.yaml"))
	policy := filepath.Join(t.TempDir(), "measure.yaml")
	must(t, os.WriteFile(policy, fmt.Appendf(nil, `apiVersion: sluice.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: measure}
spec:
  measure:
    clusters: {matchLabels: {sluice.dev/cluster: %s}}
    serviceID: 5b1cf1c0-4c2e-4a35-9d6b-0b6d6f5d2a00
    planID: 5b1cf1c0-4c2e-4a35-9d6b-0b6d6f5d2a01
    parameters: {broker: %q}
`, w.german, broker), 0o600))
	w.sluice("policy", "apply", "-f", policy)
	admin, _ := administrator(t, w.german)
	namespace := v1alpha1.MemberNamespace(v1alpha1.InstanceName(v1alpha1.PlatformSelf, v1alpha1.ProbeID(w.german)))
	eventually(t, time.Minute, "the probe answers", func(ctx context.Context) string {
		pods, err := admin.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil || len(pods.Items) == 0 {
			return fmt.Sprintf("%d pods, %v", len(pods.Items), err)
		}
		log, err := admin.CoreV1().Pods(namespace).GetLogs(pods.Items[0].Name, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err != nil || !strings.Contains(string(log), "msg=connected") {
			return fmt.Sprintf("%s, %v: %s", pods.Items[0].Status.Phase, err, log)
		}
		return ""
	})
	w.sluice("policy", "remove", "measure")
	eventually(t, time.Minute, "the probe is gone", func(ctx context.Context) string {
		_, err := admin.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Sprintf("its namespace: %v", err)
		}
		return ""
	})
}

// trustedWorld holds the state that the steps of TestTrust share.
type trustedWorld struct {
	server
	hub              client.Client
	dir              string // one folder for each organisation
	german, american string
}

// hub returns a client of the server's embedded hub.
func (s server) hub(t *testing.T) client.Client {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", hubconfig.KubeconfigPath(s.dataDir))
	must(t, err)
	scheme := runtime.NewScheme()
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	c, err := client.New(config, client.Options{Scheme: scheme})
	must(t, err)
	return c
}

// shell runs a script as the operator and the organisations would.
func (w *trustedWorld) shell(t *testing.T, script string) {
	t.Helper()
	shell(t, root, script, newcomer(t, "SLUICE_DATA_DIR="+w.dataDir, "PATH="+filepath.Join(mustAbs(t, root), "bin")+":"+os.Getenv("PATH")))
}

func isTrue(conditions []metav1.Condition, kind string) bool {
	return slices.ContainsFunc(conditions, func(c metav1.Condition) bool { return c.Type == kind && c.Status == metav1.ConditionTrue })
}

// awaitCluster waits until a member cluster is as it should be.
func (w *trustedWorld) awaitCluster(t *testing.T, name, what string, holds func(*v1alpha1.MemberCluster) bool) *v1alpha1.MemberCluster {
	t.Helper()
	cluster := &v1alpha1.MemberCluster{}
	eventually(t, time.Minute, name+" "+what, func(ctx context.Context) string {
		if err := w.hub.Get(ctx, client.ObjectKey{Namespace: "sluice", Name: name}, cluster); err != nil {
			return err.Error()
		}
		if holds(cluster) {
			return ""
		}
		return fmt.Sprintf("%v %v %v", cluster.Status.Conditions, cluster.Status.Admission, cluster.Status.Claims)
	})
	return cluster
}

func claim(c *v1alpha1.MemberCluster, name string) v1alpha1.Claim {
	for _, claim := range c.Status.Claims {
		if claim.Name == name {
			return claim
		}
	}
	return v1alpha1.Claim{}
}

func (w *trustedWorld) claims(t *testing.T) {
	for cluster, want := range map[string]v1alpha1.Claim{
		w.german:   {Value: "DE", Assurance: v1alpha1.AssuranceCertified, Issuer: "did:web:certifier.example"},
		w.american: {Value: "US", Assurance: v1alpha1.AssuranceSelf, Issuer: "did:web:liberty.example"},
	} {
		got := claim(w.awaitCluster(t, cluster, "there", func(*v1alpha1.MemberCluster) bool { return true }), v1alpha1.ClaimDatacenterCountry)
		if got.Value != want.Value || got.Assurance != want.Assurance || got.Issuer != want.Issuer {
			t.Errorf("%s: data centre %+v, want %+v", cluster, got, want)
		}
	}
}

// description is an entry of metadata.selfDescriptions.
type description struct {
	Type, Href, DigestSRI, Issuer, Verification string
	Countries                                   []any
}

// descriptions of a plan in the catalog.
func (w *trustedWorld) descriptions(t *testing.T, name string) []description {
	t.Helper()
	catalog := w.broker.must(t, "GET", "/v2/catalog", nil, nil, http.StatusOK)
	var list []description
	for _, service := range catalog.body["services"].([]any) {
		for _, p := range service.(map[string]any)["plans"].([]any) {
			p := p.(map[string]any)
			metadata, _ := p["metadata"].(map[string]any)
			entries, _ := metadata["selfDescriptions"].([]any)
			for _, entry := range entries {
				entry := entry.(map[string]any)
				text := func(name string) string { s, _ := entry[name].(string); return s }
				countries, _ := entry["countries"].([]any)
				if p["name"] == name {
					list = append(list, description{text("type"), text("href"), text("digestSRI"), text("issuer"), text("verification"), countries})
				}
			}
		}
	}
	return list
}

func (w *trustedWorld) facts(t *testing.T) {
	eventually(t, 30*time.Second, "both offerings in the catalog", func(context.Context) string {
		issuers := map[string]bool{}
		list := w.descriptions(t, "small")
		for _, d := range list {
			if d.Type == "ComputeServiceOffering" && d.Verification == "verified" {
				issuers[d.Issuer] = true
			}
		}
		if issuers["did:web:rhein.example"] && issuers["did:web:liberty.example"] {
			return ""
		}
		return fmt.Sprintf("%+v", list)
	})
}

// buyer fetches what the catalog links, and verifies it with the issuers' keys only.
func (w *trustedWorld) buyer(t *testing.T) {
	list := w.descriptions(t, "small")
	if len(list) == 0 {
		t.Fatal("nothing is linked")
	}
	for _, d := range list {
		response, err := http.Get(w.broker.url + d.Href)
		must(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		must(t, err)
		if got := selfdescription.DigestOf(string(text)).SRI(); got != d.DigestSRI {
			t.Errorf("%s: digest %s, the catalog says %s", d.Href, got, d.DigestSRI)
		}
		file := filepath.Join(t.TempDir(), "credential.jwt")
		must(t, os.WriteFile(file, text, 0o600))
		owner := strings.TrimSuffix(strings.TrimPrefix(d.Issuer, "did:web:"), ".example")
		w.shell(t, fmt.Sprintf("sluice sd verify %q --keys %q", file, filepath.Join(w.dir, owner, "did.json")))
	}
}

// explain returns the line of `sluice place` about a cluster.
func (w *trustedWorld) explain(t *testing.T, cluster string) string {
	t.Helper()
	out, err := exec.Command(filepath.Join(root, "bin/sluice"), "place", "--service", "kubernetes-resources", "--plan", "small", "--dry-run", "--data-dir", w.dataDir).CombinedOutput()
	if err != nil {
		t.Fatalf("sluice place: %v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, cluster) {
			return line
		}
	}
	t.Fatalf("sluice place says nothing of %s:\n%s", cluster, out)
	return ""
}

func (w *trustedWorld) decides(t *testing.T) {
	for _, want := range []string{"datacenter.country", "US", "self", "did:web:liberty.example"} {
		if line := w.explain(t, w.american); !strings.Contains(line, want) {
			t.Errorf("the explanation does not name %s: %s", want, line)
		}
	}
	w.broker.provision(t, "trusted", w.broker.findPlan(t, "kubernetes-resources", "small"), nil)
	if on := w.placedOn(t, "trusted"); on != w.german {
		t.Errorf("placed on %s, want %s", on, w.german)
	}
}

// placedOn is the cluster that an instance is on.
func (w *trustedWorld) placedOn(t *testing.T, id string) string {
	t.Helper()
	instance := &v1alpha1.ServiceInstance{}
	must(t, w.hub.Get(t.Context(), client.ObjectKey{Namespace: "sluice", Name: v1alpha1.InstanceName("first", id)}, instance))
	if instance.Status.Decision == nil || len(instance.Status.Decision.Placements) != 1 {
		return ""
	}
	return instance.Status.Decision.Placements[0].Cluster
}

// revocation withdraws the certification while an instance is bound: it stays, a
// new one waits until the body has signed again.
func (w *trustedWorld) revocation(t *testing.T) {
	p := w.broker.findPlan(t, "kubernetes-resources", "small")
	bound := w.broker.must(t, "PUT", bindingPath("trusted"), nil, map[string]any{"service_id": p.service, "plan_id": p.id}, http.StatusCreated)
	c := consume(t, bound)
	certification := filepath.Join(w.dir, "rhein/credentials/certification.jwt")
	w.shell(t, fmt.Sprintf("sluice sd revoke %q --because 'the certificate was withdrawn'", certification))
	w.awaitCluster(t, w.german, "no longer certified", func(c *v1alpha1.MemberCluster) bool {
		return claim(c, v1alpha1.ClaimDatacenterCountry).Assurance == v1alpha1.AssuranceSelf
	})

	w.broker.must(t, "PUT", "/v2/service_instances/waiting", url.Values{"accepts_incomplete": {"true"}}, map[string]any{
		"service_id": p.service, "plan_id": p.id, "organization_guid": "org", "space_guid": "space",
	}, http.StatusAccepted)
	eventually(t, 20*time.Second, "the new instance waits, and says for what", func(ctx context.Context) string {
		a, err := w.broker.do(ctx, "GET", "/v2/service_instances/waiting/last_operation", nil, nil)
		if err != nil {
			return err.Error()
		}
		if description, _ := a.body["description"].(string); a.body["state"] == "in progress" && strings.Contains(description, "Policy") {
			return ""
		}
		return a.String()
	})
	if on := w.placedOn(t, "waiting"); on != "" {
		t.Errorf("the new instance was placed on %s", on)
	}
	useIt(t, "trusted", c)
	w.broker.must(t, "GET", bindingPath("trusted"), nil, nil, http.StatusOK)

	w.shell(t, fmt.Sprintf(`cd %q
sluice sd sign --dir certifier --type Certification --standard "ISO/IEC 27001" --out rhein/credentials/certification.jwt \
  --about rhein/credentials/offering-%s.jwt --about rhein/credentials/datacenter-main.jwt
sluice sd present --dir rhein --to %s --audience %s`, w.dir, w.german, w.broker.url, brokerDID))
	w.broker.await(t, "waiting", "the new instance is placed once the certification is there again")
	if on := w.placedOn(t, "waiting"); on != w.german {
		t.Errorf("placed on %s, want %s", on, w.german)
	}
	w.broker.must(t, "DELETE", bindingPath("trusted"), url.Values{"service_id": {p.service}, "plan_id": {p.id}}, nil, http.StatusOK)
	for _, id := range []string{"trusted", "waiting"} {
		w.broker.deprovision(t, id, p)
	}
}

// TestTrustDocs runs the blocks of docs/trust.md one after the other, as a reader would.
func TestTrustDocs(t *testing.T) {
	t.Parallel()
	needMembers(t)
	s := serve(t, "--public-url", publicURL)
	s.sluice("catalog", "apply", "-f", filepath.Join(root, "docs/examples/offering.yaml"))
	script := "cd " + t.TempDir() + "\n" + strings.Join(commands(t, "docs/trust.md"), "\n")
	shell(t, root, script, newcomer(t,
		"SLUICE_DATA_DIR="+s.dataDir, "BROKER="+s.broker.url, "MEMBER_KUBECONFIG="+kubeconfig(members[0]),
		"PATH="+filepath.Join(mustAbs(t, root), "bin")+":"+os.Getenv("PATH")))
	cluster := &v1alpha1.MemberCluster{}
	eventually(t, time.Minute, "the cluster is admitted and certified", func(ctx context.Context) string {
		if err := s.hub(t).Get(ctx, client.ObjectKey{Namespace: "sluice", Name: "eu"}, cluster); err != nil {
			return err.Error()
		}
		if isTrue(cluster.Status.Conditions, v1alpha1.ConditionAdmitted) && claim(cluster, v1alpha1.ClaimDatacenterCountry).Assurance == v1alpha1.AssuranceCertified {
			return ""
		}
		return fmt.Sprintf("%v %v", cluster.Status.Admission, cluster.Status.Claims)
	})
}
