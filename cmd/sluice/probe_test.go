package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/websocket"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/test/controlplane"
)

// TestProbe: a policy orders a probe on each cluster that it selects. What its Deployment runs, started by hand because
// nodes are simulated, connects to the broker, again after that was killed, and is refused once it is not wanted any more. It
// leaves with its cluster, also when Sluice is uninstalled.
func TestProbe(t *testing.T) {
	t.Parallel()
	s := &probed{served: serveAnother(t, "sluice", "--public-url", "https://broker.example", "--vantage", "here", "--measure-window", "1m"), folder: t.TempDir(), members: map[string]client.Client{}}
	for _, name := range []string{"a", "b"} {
		s.add(name)
	}
	s.must("catalog", "apply", "-f", filepath.Join("..", "..", "charts", "probe.yaml"))
	s.measures("a")
	probe := s.probe("a", "probe", "")
	s.until("it connects", probe.says(1, "connected"))
	if _, catalog := s.send(t, http.MethodGet, "/v2/catalog", ""); strings.Contains(catalog, "probe") {
		t.Errorf("platforms see %s", catalog)
	}

	_ = s.process.Process.Kill()
	_ = s.process.Wait()
	s.start()
	s.until("it connects again", probe.says(2, "connected"))
	s.until("another token is refused", s.probe("a", "stranger", "another token").says(1, "401 Unauthorized: Authorization: want"))
	s.talksTooMuch(probe)
	s.until("it connects after the other connection of it has ended", probe.says(3, "connected"))

	s.measures("b")
	s.until("nothing is left on a", s.isGone("a"))
	s.until("a probe that is not wanted is refused", probe.says(1, "401 Unauthorized"))
	s.until("it connects from b", s.probe("b", "other", "").says(1, "connected"))
	s.must("cluster", "drain", "b", "--wait", "1m") // the probe leaves by itself
	s.until("nothing is left on b", s.isGone("b"))
	s.must("cluster", "uncordon", "b")
	s.until("it connects from b again", s.probe("b", "again", "").says(1, "connected"))
	s.must("cluster", "remove", "b")
	s.measures("a")
	s.until("it connects from a", s.probe("a", "last", "").says(1, "connected"))
	s.until("the cluster says so", func(context.Context) error {
		if text := s.must("cluster", "describe", "a"); !strings.Contains(text, "its probe is connected") {
			return errors.New(text)
		}
		return nil
	})
	s.startsAnew("a")
	s.must("uninstall", "--yes") // the probe is not in the way
	if left := s.must("instance", "list"); strings.Contains(left, "probe") {
		t.Errorf("there are still instances:\n%s", left)
	}
}

// probed is a Sluice with member clusters that it measures.
type probed struct {
	*served
	folder  string
	members map[string]client.Client
}

// add adds a member cluster, and its region of the same name.
func (s *probed) add(name string) {
	s.Helper()
	member := controlplane.Start(s.T, controlplane.Options{Name: name, Nodes: []controlplane.Node{{Name: "node", CPU: "2", Memory: "8Gi", Pods: "50"}}})
	admin, err := client.New(member.Config(), client.Options{})
	if err != nil {
		s.Fatal(err)
	}
	s.members[name] = admin
	s.must("cluster", "add", name, "--from-kubeconfig", s.file(name+".kubeconfig", string(member.Kubeconfig())), "--region", name)
}

func (s *probed) file(name, content string) string {
	s.Helper()
	path := filepath.Join(s.folder, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		s.Fatal(err)
	}
	return path
}

// measures makes a policy measure the clusters of a region.
func (s *probed) measures(region string) {
	s.Helper()
	s.must("policy", "apply", "-f", s.file("policy.yaml", fmt.Sprintf(`
apiVersion: sluice.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: measured}
spec:
  measure:
    clusters: {matchLabels: {topology.kubernetes.io/region: %s}}
    serviceID: 5b1cf1c0-4c2e-4a35-9d6b-0b6d6f5d2a00
    planID: 5b1cf1c0-4c2e-4a35-9d6b-0b6d6f5d2a01
    parameters: {broker: %s}
  require:
  - {name: reached, claim: {name: dataPlane.uptime.ratio, atLeast: "0.999"}} # which no cluster has proven yet
`, region, s.url)))
}

// startsAnew replaces the pod of a cluster's probe as the hourly change of its parameter does. The pod is started by hand,
// and timed by the broker.
func (s *probed) startsAnew(cluster string) {
	s.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(s.dir, "hub.kubeconfig"))
	if err != nil {
		s.Fatal(err)
	}
	hub, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		s.Fatal(err)
	}
	const start = "2999-01-01T00:00:00Z/random" // after which none is due
	instance := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "sluice", Name: v1alpha1.InstanceName(v1alpha1.PlatformSelf, v1alpha1.ProbeID(cluster))}}
	patch := fmt.Appendf(nil, `{"spec": {"desired": {"parameters": {%q: %q}}}}`, v1alpha1.ProbeStart, start)
	deployment, key := &appsv1.Deployment{}, client.ObjectKey{Namespace: namespaceOf(cluster), Name: "probe"}
	if err := errors.Join(s.members[cluster].Get(s.Context(), key, deployment), hub.Patch(s.Context(), instance, client.RawPatch("application/merge-patch+json", patch))); err != nil {
		s.Fatal(err)
	}
	before := deployment.Generation
	s.until("the pod is replaced", func(ctx context.Context) error {
		err := s.members[cluster].Get(ctx, key, deployment)
		if err == nil && deployment.Generation == before {
			err = errors.New("its Deployment is the same")
		}
		return err
	})
	s.until("the new pod connects", s.probe(cluster, "successor", "").says(1, "connected"))
	s.until("its start is timed", func(context.Context) error {
		log, err := os.ReadFile(s.log.Name())
		if err == nil && !strings.Contains(string(log), "a new pod of a probe has started") {
			err = errors.New("the broker has not said so")
		}
		return err
	})
}

// namespaceOf returns the namespace of a cluster's probe.
func namespaceOf(cluster string) string {
	return v1alpha1.MemberNamespace(v1alpha1.InstanceName(v1alpha1.PlatformSelf, v1alpha1.ProbeID(cluster)))
}

func (s *probed) isGone(cluster string) func(context.Context) error {
	return func(ctx context.Context) error {
		err := s.members[cluster].Get(ctx, client.ObjectKey{Name: namespaceOf(cluster)}, &corev1.Namespace{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("it has a namespace"), err)
	}
}

// probeProcess is a probe that runs.
type probeProcess struct{ log, instance, token string }

// probe runs what the Deployment of a cluster's probe says, until the test ends; with another token, if one is given.
func (s *probed) probe(cluster, name, token string) *probeProcess {
	s.Helper()
	var deployment appsv1.Deployment
	var secret corev1.Secret
	s.until("cluster "+cluster+" runs the probe", func(ctx context.Context) error {
		key := client.ObjectKey{Namespace: namespaceOf(cluster), Name: "probe"}
		err := errors.Join(s.members[cluster].Get(ctx, key, &deployment), s.members[cluster].Get(ctx, key, &secret))
		if err == nil && deployment.Status.ReadyReplicas != 1 {
			err = errors.New("it is not ready")
		}
		return err
	})
	container := deployment.Spec.Template.Spec.Containers[0]
	p := &probeProcess{log: filepath.Join(s.ArtifactDir(), name+".log"), token: token}
	process := exec.Command(os.Args[0], container.Args...)
	process.Env = append(os.Environ(), asSluice+"=1")
	files := map[string]string{}
	for _, mount := range container.VolumeMounts {
		content := string(secret.Data[mount.SubPath])
		if mount.MountPath == "/probe/token" {
			if p.token == "" {
				p.token = content
			}
			content = p.token
		}
		files[mount.MountPath] = s.file(name+"."+mount.SubPath, content)
	}
	for _, variable := range container.Env {
		value := string(secret.Data[variable.ValueFrom.SecretKeyRef.Key])
		if file, mounted := files[value]; mounted {
			value = file
		}
		if variable.Name == "SLUICE_PROBE_INSTANCE" {
			p.instance = value
		}
		process.Env = append(process.Env, variable.Name+"="+value)
	}
	log, err := os.Create(p.log)
	if err != nil {
		s.Fatal(err)
	}
	process.Stdout, process.Stderr = log, log
	if err := process.Start(); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { end(process) })
	return p
}

// says checks that the log of the probe has a text a number of times.
func (p *probeProcess) says(times int, text string) func(context.Context) error {
	return func(context.Context) error {
		log, err := os.ReadFile(p.log)
		if n := strings.Count(string(log), "msg="+text) + strings.Count(string(log), "answers "+text); err == nil && n < times {
			err = fmt.Errorf("its log has it %d times:\n%s", n, log)
		}
		return err
	}
}

// talksTooMuch connects as a probe, and says more than was asked.
func (s *probed) talksTooMuch(as *probeProcess) {
	s.Helper()
	conn, _, err := websocket.Dial(s.Context(), s.url+"/probe/v1/"+as.instance, &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + as.token}}})
	if err != nil {
		s.Fatal(err)
	}
	defer conn.CloseNow()                                                                      //nolint:errcheck // it has been closed
	if err := conn.Write(s.Context(), websocket.MessageBinary, make([]byte, 64)); err != nil { // 32 are an answer
		s.Fatal(err)
	}
	for err == nil {
		_, _, err = conn.Read(s.Context())
	}
	if websocket.CloseStatus(err) != websocket.StatusMessageTooBig {
		s.Errorf("it ends with %v", err)
	}
}
