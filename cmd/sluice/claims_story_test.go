package main

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	claimsv1 "github.com/sluice-dev/sluice/api/claims/v1alpha1"
	"github.com/sluice-dev/sluice/internal/claims"
	"github.com/sluice-dev/sluice/test/controlplane"
)

// rooms is an offering with the names of docs/platforms.md. Credentials of the plan small are to be renewed five seconds
// after they were issued, those of the plan large live for a year.
const rooms = `apiVersion: sluice.dev/v1alpha1
kind: ServiceOffering
metadata: {name: kubernetes-resources}
spec:
  id: rooms
  name: kubernetes-resources
  description: Rooms
  planUpdateable: true
  plans:
  - id: rooms-small
    name: small
    description: Short credentials
    maintenanceInfo: {version: 1.0.0, description: First edition}
    kind: resources
    resources: {limits: {cpu: 300m, memory: 256Mi, pods: "10"}}
    credentials: {lifetimeSeconds: 600, renewBeforeSeconds: 595}
  - id: rooms-large
    name: large
    description: Long credentials
    maintenanceInfo: {version: 1.0.0, description: First edition}
    kind: resources
    resources: {limits: {cpu: "1", memory: 1Gi, pods: "20"}}
`

// claimsStory is a consumer's cluster, a controller there, and a Sluice with a member cluster.
type claimsStory struct {
	*served
	gate        *gate
	consumer    client.Client
	folder      string
	environment []string
	blocks      [][2]string // of the page: language and text

	args []string // of the controller
	log  *os.File // of the controller
	mu   sync.Mutex
	// controller is its process. It is guarded by mu.
	controller *exec.Cmd
}

// TestClaimsPage runs the section of docs/platforms.md about claims as it is printed, with the controller in the chart's
// Deployment and the rights of its account: a claim becomes a Secret with a kubeconfig that works, at any moment, though
// it is renewed; the plan changes; and nothing is left at the end. The controller is killed, as by kill -9, at each
// kind of request to the broker, which is carried out though nobody hears the answer.
func TestClaimsPage(t *testing.T) {
	t.Parallel()
	s := newClaimsStory(t)
	s.block("sh", "helm install")
	s.run()
	s.block("yaml", "kind: BindingClaim")
	s.block("sh", "kubectl apply")
	s.block("sh", "room.kubeconfig")
	if _, err := s.kubectl("--kubeconfig", "room.kubeconfig", "get", "nodes"); err == nil {
		t.Error("the credentials reach beyond the namespace")
	}
	s.rights()
	s.told()
	s.renews()
	s.elects()
	s.block("sh", "kubectl patch")
	s.lasts()
	s.block("sh", "kubectl delete")
	s.ended()
}

func newClaimsStory(t *testing.T) *claimsStory {
	t.Helper()
	member := controlplane.Start(t, controlplane.Options{Name: "member", Nodes: []controlplane.Node{{Name: "node", CPU: "2", Memory: "8Gi", Pods: "50"}}})
	consumer := controlplane.Start(t, controlplane.Options{Name: "consumer"})
	s := &claimsStory{served: serveAnother(t, "sluice"), folder: t.TempDir()}
	for name, content := range map[string]string{"eu.kubeconfig": string(member.Kubeconfig()), "rooms.yaml": rooms, "consumer.kubeconfig": string(consumer.Kubeconfig())} {
		if err := os.WriteFile(filepath.Join(s.folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.must("cluster", "add", "eu", "--from-kubeconfig", filepath.Join(s.folder, "eu.kubeconfig"), "--region", "eu-de")
	s.must("catalog", "apply", "-f", filepath.Join(s.folder, "rooms.yaml"))
	known := runtime.NewScheme()
	if err := errors.Join(claims.AddToScheme(known), appsv1.AddToScheme(known)); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.consumer, err = client.New(consumer.Config(), client.Options{Scheme: known}); err != nil {
		t.Fatal(err)
	}
	behind, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	s.gate = newGate(httputil.NewSingleHostReverseProxy(behind))
	s.gate.instead = s.kills()
	front := httptest.NewServer(s.gate)
	t.Cleanup(front.Close)
	s.tools(t)
	s.environment = append(s.environment, "KUBECONFIG="+filepath.Join(s.folder, "consumer.kubeconfig"),
		envURL+"="+front.URL, envUsername+"=first", envPassword+"=first-password")

	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "platforms.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Kubernetes without a platform\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, at := range block.FindAllStringSubmatch(section, -1) {
		s.blocks = append(s.blocks, [2]string{at[1], at[2]})
	}
	t.Cleanup(func() {
		if len(s.blocks) > 0 && !t.Failed() {
			t.Errorf("the page has more blocks: %q", s.blocks)
		}
	})
	return s
}

// tools puts kubectl, helm and the charts where the page finds them.
func (s *claimsStory) tools(t *testing.T) {
	t.Helper()
	binaries, err := controlplane.Binaries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir()
	helm := "#!/bin/sh\nexec \"$(cd '" + root + "' && go tool -modfile=tools/go.mod -n helm)\" \"$@\"\n" // the pinned one
	if err := errors.Join(
		os.Symlink(filepath.Join(binaries, "kubectl"), filepath.Join(path, "kubectl")),
		os.WriteFile(filepath.Join(path, "helm"), []byte(helm), 0o700),
		os.Symlink(filepath.Join(root, "charts"), filepath.Join(s.folder, "charts")),
	); err != nil {
		t.Fatal(err)
	}
	s.environment = append(os.Environ(), "PATH="+path+":"+os.Getenv("PATH"))
}

// block runs the next block of the page, or writes the file that it is.
func (s *claimsStory) block(language, has string) {
	s.Helper()
	if len(s.blocks) == 0 || s.blocks[0][0] != language || !strings.Contains(s.blocks[0][1], has) {
		s.Fatalf("the next block is none of %s with %q: %q", language, has, s.blocks)
	}
	text := s.blocks[0][1]
	s.blocks = s.blocks[1:]
	if language == "yaml" {
		if err := os.WriteFile(filepath.Join(s.folder, "room.yaml"), []byte(text), 0o600); err != nil {
			s.Fatal(err)
		}
		return
	}
	if out, err := s.command("bash", "-euc", text); err != nil {
		s.Fatalf("%s: %v\n%s", text, err, out)
	}
}

// command runs a program in the folder of the story.
func (s *claimsStory) command(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(s.Context(), 2*time.Minute)
	defer cancel()
	run := exec.CommandContext(ctx, name, args...)
	run.Dir, run.Env = s.folder, s.environment
	out, err := run.CombinedOutput()
	return string(out), err
}

func (s *claimsStory) kubectl(args ...string) (string, error) {
	return s.command("bash", append([]string{"-c", `exec kubectl "$@"`, "kubectl"}, args...)...)
}

// rights checks what an editor of the namespace may do.
func (s *claimsStory) rights() {
	s.Helper()
	if out, err := s.kubectl("create", "rolebinding", "dev", "--clusterrole=edit", "--user=dev", "--namespace", "shop"); err != nil {
		s.Fatalf("%v\n%s", err, out)
	}
	s.until("an editor may claim", func(context.Context) error { // roles are aggregated a moment later
		for kind, want := range map[string]string{"serviceclaims": "yes", "bindingclaims": "yes", "bindingclaims --subresource=status": "no"} {
			can := strings.Fields("auth can-i update --as dev --namespace shop " + kind)
			if out, _ := s.kubectl(can...); strings.TrimSpace(out) != want {
				return fmt.Errorf("%s: %s", kind, out)
			}
		}
		return nil
	})
}

// told waits for the Events of both claims: the controller's account may write them.
func (s *claimsStory) told() {
	s.Helper()
	s.until("both claims have the Event Ready", func(context.Context) error {
		for _, kind := range []string{"ServiceClaim", "BindingClaim"} {
			out, err := s.kubectl("get", "events", "--namespace", "shop", "--field-selector", "reason=Ready,type=Normal,involvedObject.name=room,involvedObject.kind="+kind, "-o", "name")
			if err != nil || strings.TrimSpace(out) == "" {
				return fmt.Errorf("%s: %s, %v", kind, out, err)
			}
		}
		return nil
	})
}

// secret reads the Secret, and checks that its kubeconfig works now.
func (s *claimsStory) secret() (*corev1.Secret, error) {
	var secret corev1.Secret
	if err := s.consumer.Get(s.Context(), client.ObjectKey{Namespace: "shop", Name: "room"}, &secret); err != nil {
		return nil, err
	}
	return &secret, s.works(&secret)
}

func (s *claimsStory) works(secret *corev1.Secret) error {
	loaded, err := clientcmd.Load(secret.Data["kubeconfig"])
	if err != nil {
		return err
	}
	config, err := clientcmd.NewDefaultClientConfig(*loaded, nil).ClientConfig()
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	return c.List(s.Context(), &corev1.PodList{}, client.InNamespace(loaded.Contexts[loaded.CurrentContext].Namespace))
}

// renews waits until the credentials have been renewed twice. The Secret works at any moment; the first credentials end.
func (s *claimsStory) renews() {
	s.Helper()
	first, err := s.secret()
	if err != nil {
		s.Fatal(err)
	}
	bindings := map[string]bool{}
	s.until("the credentials are renewed twice", func(context.Context) error {
		now, err := s.secret()
		if err != nil {
			s.Fatalf("the credentials in the Secret do not work: %v", err)
		}
		if bindings[now.Annotations[claimsv1.AnnotationBinding]] = true; len(bindings) < 3 {
			return fmt.Errorf("there were the bindings %v", bindings)
		}
		return nil
	})
	s.until("the first credentials end", func(context.Context) error {
		if err := s.works(first); !apierrors.IsUnauthorized(err) && !apierrors.IsForbidden(err) {
			return fmt.Errorf("with them: %v", err)
		}
		return nil
	})
}

// lasts checks that the instance and its credentials are those of the other plan.
func (s *claimsStory) lasts() {
	s.Helper()
	s.until("the credentials last", func(ctx context.Context) error {
		var claim claimsv1.BindingClaim
		if err := s.consumer.Get(ctx, client.ObjectKey{Namespace: "shop", Name: "room"}, &claim); err != nil {
			return err
		}
		if end := claim.Status.ExpiresAt; end == nil || time.Until(end.Time) < 24*time.Hour || len(claim.Status.Revoking) > 0 || claim.Status.Next != nil {
			return fmt.Errorf("the binding claim is %+v", claim.Status)
		}
		return nil
	})
	if _, err := s.secret(); err != nil {
		s.Error(err)
	}
	s.gate.counts(s.T, 2) // an instance and a binding
	if out := s.must("instance", "list", "-o", "json"); !strings.Contains(out, "rooms-large") {
		s.Errorf("the instances are %s", out)
	}
}

// ended checks that nothing is left on any side.
func (s *claimsStory) ended() {
	s.Helper()
	var secret corev1.Secret
	if err := s.consumer.Get(s.Context(), client.ObjectKey{Namespace: "shop", Name: "room"}, &secret); !apierrors.IsNotFound(err) {
		s.Errorf("the Secret: %v", err)
	}
	if left := s.gate.left(); len(left) > 0 {
		s.Errorf("the broker has %v", left)
	}
	if out := s.must("instance", "list", "-o", "json"); strings.TrimSpace(out) != "[]" {
		s.Errorf("the instances are %s", out)
	}
	out, err := s.kubectl("--kubeconfig", "eu.kubeconfig", "get", "namespaces", "-l", "sluice.dev/instance", "-o", "name")
	if err != nil || strings.TrimSpace(out) != "" {
		s.Errorf("on the member cluster: %s, %v", out, err)
	}
}
