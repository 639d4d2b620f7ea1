//go:build e2e

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/test/gatewayapi"
)

// As gateway.yaml has them.
const (
	gatewayNamespace = "sluice-e2e-gateway"
	publicDomain     = "apps.example"
	publicPort       = "30443"
	tlsPort          = "30444"
	ownDomain        = "acme.example"
)

// exposure orders a site: everyone reaches its public port at its host, by HTTPS through the Gateway of
// its cluster, and nothing else of it.
func exposure(t *testing.T) {
	open := members[0]
	node, roots := gateway(t, open)
	get := browser(node, roots)
	s := serve(t)
	page := strings.Join(commandsUnder(t, filepath.Join(root, "docs/operating.md"), "### Public ports"), "")
	add := strings.NewReplacer("sluice ", "", "--context eu-1", "--from-kubeconfig "+kubeconfig(open)+" --region region-of-"+open,
		"infra/public", gatewayNamespace+"/public", "apps.eu-1.example.org", publicDomain, "eu-1", open).Replace(page)
	s.sluice(append(strings.Fields(add), "--public-port", publicPort, "--public-tls", "tls:"+tlsPort,
		"--public-tcp", "30445-30446", "--public-consumer-domain", ownDomain+"=first/org@acme")...)
	s.sluice("cluster", "add", members[1], "--from-kubeconfig", kubeconfig(members[1]), "--region", "region-of-"+members[1])
	offering, err := os.ReadFile("exposure.yaml")
	must(t, err)
	here := filepath.Join(t.TempDir(), "exposure.yaml")
	must(t, os.WriteFile(here, []byte(strings.ReplaceAll(string(offering), "ECHO", echoImage)), 0o600))
	s.sluice("catalog", "apply", "-f", here)

	const id = "e2e-site"
	p := s.broker.findPlan(t, "sites", "small")
	s.broker.provision(t, id, p, map[string]any{"name": "shop"})
	if on := clusterOf(t, id); on != open {
		t.Fatalf("the site is on %s, which has no Gateway", on)
	}
	site := "https://shop." + publicDomain + ":" + publicPort
	if credentials := s.broker.bind(t, id, "site", p, nil); credentials["url"] != site {
		t.Errorf("the credentials are %v, want the url %s", credentials, site)
	}
	endpoints, err := json.Marshal(s.broker.must(t, "GET", "/v2/service_instances/"+id+"/service_bindings/site", nil, nil, http.StatusOK).body["endpoints"])
	must(t, err)
	if want := `{"host":"shop.` + publicDomain + `","ports":["` + publicPort + `"],"protocol":"tcp"}`; !strings.Contains(string(endpoints), want) {
		t.Errorf("the endpoints are %s, want %s among them", endpoints, want)
	}

	rollout(t, s.broker, id, p, open, site, get)
	for _, host := range []string{v1alpha1.PublicLabel("inner", v1alpha1.InstanceName("first", id)), "inner", "other"} {
		status, body, err := get(t.Context(), "https://"+host+"."+publicDomain+":"+publicPort)
		if err != nil || status != http.StatusNotFound {
			t.Errorf("%s answers %d %s (%v), want 404", host, status, body, err)
		}
	}
	whoMayConnect(t, open, v1alpha1.MemberNamespace(v1alpha1.InstanceName("first", id)))

	t.Run("side by side", func(t *testing.T) {
		besides(t, "a consumer's own pods", func(t *testing.T) { ownPods(t, s.broker, get) })
		besides(t, "the consumer's certificate", func(t *testing.T) {
			ownCertificate(t, s.broker, node, "e2e-sealed", "sealed", "sealed."+publicDomain)
		})
		besides(t, "the consumer's certificate and domain", func(t *testing.T) {
			ownCertificate(t, s.broker, node, "e2e-sealed-own", "sealed."+ownDomain, "sealed."+ownDomain)
		})
		besides(t, "the consumer's domain", func(t *testing.T) { ownHost(t, s.broker, p, get) })
		besides(t, "plain ports", func(t *testing.T) { plainPorts(t, s.broker, get) })
	})
	orderFails(t, s.broker, p, "shop", "shop is taken by another instance")
	orderFails(t, s.broker, p, "www.bank.example", "www.bank.example is in no domain that is yours")
	s.broker.unbind(t, id, "site", p)
	s.broker.deprovision(t, id, p)
	eventually(t, 30*time.Second, "the host is gone", func(ctx context.Context) string {
		if status, body, err := get(ctx, site); err != nil || status != http.StatusNotFound {
			return fmt.Sprint(status, body, err)
		}
		return ""
	})
}

// whoMayConnect asks the components of a site past the Gateway: its namespace reaches the public port and
// no other, and other namespaces reach none.
func whoMayConnect(t *testing.T, cluster, site string) {
	t.Helper()
	kubectl, err := buildKubectl()
	must(t, err)
	admin, _ := administrator(t, cluster)
	for _, namespace := range []string{gatewayNamespace, metav1.NamespaceDefault} {
		pods := admin.CoreV1().Pods(namespace)
		_, err := pods.Create(t.Context(), pod("asks", "50m"), metav1.CreateOptions{})
		must(t, err)
		t.Cleanup(func() { _ = pods.Delete(context.Background(), "asks", metav1.DeleteOptions{}) })
		eventually(t, time.Minute, "a pod in "+namespace+" runs", func(ctx context.Context) string {
			return unlessRunning(pods.Get(ctx, "asks", metav1.GetOptions{}))
		})
	}
	ask := func(from, component string) func() (string, error) {
		return func() (string, error) {
			return inPod(kubectl, cluster, from, "asks", "get", "http://"+component+"."+site+".svc.cluster.local")
		}
	}
	answers(t, "the Gateway asks web", ask(gatewayNamespace, "web"))
	silent(t, "the Gateway asks inner", ask(gatewayNamespace, "inner"))
	silent(t, "another namespace asks web", ask(metav1.NamespaceDefault, "web"))
}

// ownPods makes a pod public that the consumer runs itself, and closes it again.
func ownPods(t *testing.T, b broker, get func(context.Context, string) (int, string, error)) {
	t.Helper()
	const id, host = "e2e-room", "market." + publicDomain
	room := b.findPlan(t, "sites", "room")
	b.provision(t, id, room, map[string]any{"expose": []any{map[string]any{"name": "own", "port": 8080, "host": "market"}}})
	credentials := b.bind(t, id, "room", room, nil)
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(credentials["kubeconfig"].(string)))
	must(t, err)
	own := pod("own-1", "50m")
	own.Labels = map[string]string{v1alpha1.LabelComponent: "own"}
	pods := kubernetes.NewForConfigOrDie(config).CoreV1().Pods(credentials["namespace"].(string))
	_, err = pods.Create(t.Context(), own, metav1.CreateOptions{})
	must(t, err)
	serves(t, get, "https://"+host+":"+publicPort, "own-1")
	b.unbind(t, id, "room", room)
	b.deprovision(t, id, room)
}

// ownCertificate orders a site with a certificate of the consumer's own, which the Gateway does not have.
func ownCertificate(t *testing.T, b broker, node, id, name, host string) {
	t.Helper()
	site := "https://" + host + ":" + tlsPort
	sealed := b.findPlan(t, "sites", "sealed")
	chain, key := selfSigned(t, host)
	b.provision(t, id, sealed, map[string]any{"name": name, "certificate": map[string]any{"chain": string(chain), "key": string(key)}})
	if credentials := b.bind(t, id, "sealed", sealed, nil); credentials["url"] != site {
		t.Errorf("the credentials are %v, want the url %s", credentials, site)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(chain)
	serves(t, browser(node, roots), site, "web-")
	b.unbind(t, id, "sealed", sealed)
	b.deprovision(t, id, sealed)
}

// ownHost orders a site at a host in the consumer's own domain, for which the Gateway has a certificate.
func ownHost(t *testing.T, b broker, p plan, get func(context.Context, string) (int, string, error)) {
	t.Helper()
	const id, site = "e2e-own", "https://www." + ownDomain + ":" + publicPort
	b.provision(t, id, p, map[string]any{"name": "www." + ownDomain})
	if credentials := b.bind(t, id, "own", p, nil); credentials["url"] != site {
		t.Errorf("the credentials are %v, want the url %s", credentials, site)
	}
	serves(t, get, site, "web-")
	b.unbind(t, id, "own", p)
	b.deprovision(t, id, p)
}

// plainPorts orders two components at ports of plain TCP: each has its own, and there is none left for a third, which
// waits until one is given back.
func plainPorts(t *testing.T, b broker, get func(context.Context, string) (int, string, error)) {
	t.Helper()
	plain := b.findPlan(t, "sites", "plain")
	urls, pods := map[string]string{}, map[string]string{}
	order := func(id string) {
		t.Helper()
		url, _ := b.bind(t, id, "plain", plain, nil)["url"].(string)
		host := v1alpha1.PublicLabel("web", v1alpha1.InstanceName("first", id)) + "." + publicDomain
		if url != "http://"+host+":30445" && url != "http://"+host+":30446" {
			t.Errorf("the credentials have the url %s", url)
		}
		urls[id], pods[id] = url, serves(t, get, url, "web-")
	}
	for _, id := range []string{"e2e-plain-1", "e2e-plain-2"} {
		b.provision(t, id, plain, nil)
		order(id)
	}
	if urls["e2e-plain-1"][len(urls["e2e-plain-1"])-1] == urls["e2e-plain-2"][len(urls["e2e-plain-2"])-1] || pods["e2e-plain-1"] == pods["e2e-plain-2"] {
		t.Errorf("both answer at %v, with %v", urls, pods)
	}
	b.must(t, "PUT", "/v2/service_instances/e2e-plain-3", plain.query(), map[string]any{
		"service_id": plain.service, "plan_id": plain.id, "organization_guid": "org", "space_guid": "space",
	}, http.StatusAccepted)
	eventually(t, 30*time.Second, "a third order waits", func(ctx context.Context) string {
		a, err := b.do(ctx, "GET", "/v2/service_instances/e2e-plain-3/last_operation", nil, nil)
		if description, _ := a.body["description"].(string); err != nil || a.body["state"] != "in progress" || !strings.Contains(description, "InsufficientSluiceDevPublicPorts") {
			return fmt.Sprint(a, err)
		}
		return ""
	})
	b.unbind(t, "e2e-plain-1", "plain", plain)
	b.deprovision(t, "e2e-plain-1", plain)
	b.await(t, "e2e-plain-3", "provision e2e-plain-3")
	order("e2e-plain-3")
	for _, id := range []string{"e2e-plain-2", "e2e-plain-3"} {
		b.unbind(t, id, "plain", plain)
		b.deprovision(t, id, plain)
	}
}

// serves waits until a URL answers as pods do whose names begin with a prefix, and returns the pod's name.
func serves(t *testing.T, get func(context.Context, string) (int, string, error), url, prefix string) string {
	t.Helper()
	pod := ""
	answers(t, "everyone asks "+url, func() (string, error) {
		status, body, err := get(t.Context(), url)
		if err != nil || status != http.StatusOK || !strings.HasPrefix(body, prefix) {
			return "", fmt.Errorf("%d %s %w", status, body, err)
		}
		pod = body
		return body, nil
	})
	return pod
}

// orderFails orders a site at a host that it cannot have.
func orderFails(t *testing.T, b broker, p plan, host, why string) {
	t.Helper()
	const id = "e2e-refused-site"
	b.must(t, "PUT", "/v2/service_instances/"+id, p.query(), map[string]any{
		"service_id": p.service, "plan_id": p.id, "organization_guid": "org", "space_guid": "space", "parameters": map[string]any{"name": host},
	}, http.StatusAccepted)
	eventually(t, 30*time.Second, "the order of "+host+" fails", func(ctx context.Context) string {
		a, err := b.do(ctx, "GET", "/v2/service_instances/"+id+"/last_operation", nil, nil)
		if err != nil || a.body["state"] != "failed" || a.body["description"] != "components[web].ports[http].host: "+why {
			return fmt.Sprint(a, err)
		}
		return ""
	})
	b.must(t, "DELETE", "/v2/service_instances/"+id, p.query(), nil, http.StatusOK, http.StatusAccepted)
	b.await(t, id, "deprovision "+id)
}

// gateway gives a cluster a Gateway for the length of the test. It returns the address of the cluster's node, and
// who trusts the Gateway's certificate.
func gateway(t *testing.T, cluster string) (node string, roots *x509.CertPool) {
	t.Helper()
	archive, reference := program(t, "traefik")
	must(t, run("test/kind/load.sh", cluster, archive))
	kubectl, err := buildKubectl()
	must(t, err)
	admin, config := administrator(t, cluster)
	must(t, gatewayapi.Install(t.Context(), config))
	manifest, err := os.ReadFile("gateway.yaml")
	must(t, err)
	apply := func(verb string, args ...string) {
		cmd := exec.Command(kubectl, append([]string{"--kubeconfig", kubeconfig(cluster), verb, "-f", "-"}, args...)...)
		cmd.Stdin = strings.NewReader(strings.ReplaceAll(string(manifest), "TRAEFIK", reference))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("kubectl %s: %v\n%s", verb, err, out)
		}
	}
	apply("delete", "--ignore-not-found") // what a run that was killed left
	t.Cleanup(func() { apply("delete", "--ignore-not-found") })
	apply("apply")
	roots = certificates(t, admin)
	eventually(t, 2*time.Minute, "Traefik runs", func(ctx context.Context) string {
		d, err := admin.AppsV1().Deployments(gatewayNamespace).Get(ctx, "traefik", metav1.GetOptions{})
		if err != nil || d.Status.ReadyReplicas != 1 {
			return fmt.Sprint("not ready: ", err)
		}
		return ""
	})
	nodes, err := admin.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, a := range nodes.Items[0].Status.Addresses {
		if a.Type == corev1.NodeInternalIP && node == "" {
			node = a.Address
		}
	}
	return node, roots
}

// browser returns a function that asks a URL from outside, as a browser does that resolves its host to an address and
// trusts some certificates.
func browser(node string, roots *x509.CertPool) func(ctx context.Context, url string) (status int, body string, err error) {
	browser := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			_, port, _ := net.SplitHostPort(address)
			return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(node, port))
		},
	}}
	return func(ctx context.Context, url string) (int, string, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return 0, "", err
		}
		response, err := browser.Do(request)
		if err != nil {
			return 0, "", err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
		return response.StatusCode, strings.TrimSpace(string(body)), err
	}
}

// certificates makes those of the Gateway, each for every host of a domain, and returns who trusts them.
func certificates(t *testing.T, admin kubernetes.Interface) *x509.CertPool {
	t.Helper()
	roots := x509.NewCertPool()
	for name, domain := range map[string]string{"apps": publicDomain, "acme": ownDomain} {
		chain, private := selfSigned(t, "*."+domain)
		_, err := admin.CoreV1().Secrets(gatewayNamespace).Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.SecretTypeTLS,
			Data: map[string][]byte{corev1.TLSCertKey: chain, corev1.TLSPrivateKeyKey: private},
		}, metav1.CreateOptions{})
		must(t, err)
		roots.AppendCertsFromPEM(chain)
	}
	return roots
}

// selfSigned makes a certificate for a host, and its key, in PEM.
func selfSigned(t *testing.T, host string) (chain, private []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{host}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	document, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: document})
}
