//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// service is an offering of charts/services: what stands in for its image, and what is done with an
// instance of its plan small.
type service struct {
	name string
	// image that the offering names, and a program of test/kind from which build makes what stands in for it.
	image, program string
	build          func(t *testing.T, program string) (archive, reference string)
	cluster        string
	state          string // the component that has the volume

	wrong, change map[string]any

	// ask does something with the credentials of a binding and returns what is said. The lists are what
	// is asked, each with a part of the answer: with the first binding, after the change, with the
	// second binding, and when the first is gone; the last once more when the pod is a new one.
	ask                          func(ctx context.Context, i instance, credentials map[string]any, what string) (string, error)
	first, changed, second, kept [][2]string
	// session is asked for minutes; it ends with the user. "" means that bindings share their user.
	session string
	// tried with a password that does not hold, and a part of the answer.
	tried [2]string
}

// instance names the place of the objects of an instance.
type instance struct{ cluster, namespace string }

func services() []service {
	return []service{{
		name: "postgresql", image: "docker.io/library/postgres:15", program: "postgresql", build: fromDebian, cluster: members[0], state: "db",
		wrong: map[string]any{"storage": "2Gi"}, change: map[string]any{"maxConnections": 77},
		ask:     psql,
		first:   [][2]string{{"CREATE TABLE orders (n int)", "CREATE TABLE"}, {"INSERT INTO orders VALUES (42)", "INSERT 0 1"}, {"SHOW max_connections", "50"}},
		changed: [][2]string{{"SHOW max_connections", "77"}},
		second:  [][2]string{{"INSERT INTO orders VALUES (43)", "INSERT 0 1"}},
		kept:    [][2]string{{"SELECT n FROM orders ORDER BY n", "42\n43"}},
		session: "SELECT pg_sleep(600)", tried: [2]string{"SELECT 1", "password authentication failed"},
	}, {
		name: "redis", image: "docker.io/library/redis:7", program: "redis", build: fromDebian, cluster: members[1], state: "db",
		wrong: map[string]any{"eviction": "sometimes"}, change: map[string]any{"eviction": "allkeys-lru"},
		ask:     redis,
		first:   [][2]string{{"SET order 42", "OK"}, {"INFO memory", "maxmemory_policy:noeviction"}, {"ACL LIST", "NOPERM"}},
		changed: [][2]string{{"INFO memory", "maxmemory_policy:allkeys-lru"}},
		second:  [][2]string{{"SET next 43", "OK"}},
		kept:    [][2]string{{"MGET order next", "42\n43"}},
		session: "BLPOP queue 600", tried: [2]string{"PING", "WRONGPASS"},
	}, {
		name: "nats", image: "docker.io/library/nats:2.14", program: "nats", build: fromModule, cluster: members[1], state: "nats",
		wrong: map[string]any{"storage": "2Gi"}, change: map[string]any{"maxPayload": 2048},
		ask: publish,
		first: [][2]string{
			{"heard.orders 42", "42"}, {`$JS.API.STREAM.CREATE.orders {"name": "orders", "subjects": ["orders"]}`, `"name":"orders"`},
			{"orders 42", `"seq":1`}, {"heard.size 0", `"max_payload":1048576`},
		},
		changed: [][2]string{{"heard.size 0", `"max_payload":2048`}},
		kept:    [][2]string{{`$JS.API.STREAM.MSG.GET.orders {"seq": 1}`, `"data":"NDI="`}},
		tried:   [2]string{"heard.orders 42", "Authorization Violation"},
	}, {
		name: "web", image: "docker.io/library/nginx:1.28", program: "nginx", build: fromDebian, cluster: members[1], state: "store",
		wrong: map[string]any{"replicas": 4}, change: map[string]any{"maxPage": 1, "replicas": 1},
		ask:     overHTTP,
		first:   [][2]string{{"PUT orders/1 42", "201 Created"}, {"GET orders/1", "\r\n\r\n42"}, {"PUT large " + strings.Repeat("x", 1<<20+1), "201 Created"}},
		changed: [][2]string{{"PUT large " + strings.Repeat("x", 1<<20+1), "413 Request Entity Too Large"}},
		kept:    [][2]string{{"GET orders/1", "\r\n\r\n42"}},
		tried:   [2]string{"PUT orders/2 43", "401 Unauthorized"},
	}}
}

// curlImage is the image that hooks name for their uploads and downloads. PostgreSQL's stands in for it.
const curlImage = "docker.io/curlimages/curl:8.16.0"

// fromDebian builds an image that test/kind/debian.sh knows.
func fromDebian(t *testing.T, program string) (archive, reference string) {
	t.Helper()
	out, err := output("test/kind/debian.sh", program)
	must(t, err)
	archive, reference, _ = strings.Cut(strings.TrimSpace(out), "\n")
	return archive, reference
}

// fromModule builds an image of the server that a module of test/kind/modules pins.
func fromModule(t *testing.T, program string) (archive, reference string) {
	t.Helper()
	folder, err := output("test/kind/tools.sh", program)
	must(t, err)
	folder = strings.TrimSpace(folder)
	archive, reference = filepath.Join(t.TempDir(), program+".tar"), "sluice-dev/"+strings.Replace(filepath.Base(folder), "-", ":", 1)
	must(t, run("test/kind/image.sh", reference, filepath.Join(folder, program+"-server"), archive))
	return archive, reference
}

// story orders an instance, uses it, changes it, rotates its binding, and kills it.
func (s service) story(t *testing.T, b broker) {
	id := "e2e-" + s.name
	at := instance{s.cluster, v1alpha1.MemberNamespace(v1alpha1.InstanceName("first", id))}
	p := b.findPlan(t, s.name, "small")
	for name := range s.wrong {
		refused := b.must(t, "PUT", "/v2/service_instances/"+id, p.query(), map[string]any{
			"service_id": p.service, "plan_id": p.id, "organization_guid": "org", "space_guid": "space", "parameters": s.wrong,
		}, http.StatusBadRequest)
		if !strings.HasPrefix(fmt.Sprint(refused.body["description"]), "parameters/"+name+": ") {
			t.Errorf("a wrong parameter is refused with %v", refused)
		}
	}
	b.provision(t, id, p, map[string]any{"selector": map[string]any{"topology.kubernetes.io/region": "region-of-" + s.cluster}})
	first := b.bind(t, id, "first", p, nil)
	if _, ok := first["kubeconfig"]; ok {
		t.Error("consumers get an account on the cluster")
	}
	s.asks(t, at, first, s.first)

	b.must(t, "PATCH", "/v2/service_instances/"+id, p.query(), map[string]any{"service_id": p.service, "parameters": s.change}, http.StatusAccepted)
	b.await(t, id, "update "+id)
	s.asks(t, at, first, s.changed)

	second, wrong := first, maps.Clone(first)
	if s.session == "" {
		wrong["password"] = "a-wrong-one"
	} else {
		second = s.rotate(t, b, id, p, at, first)
	}
	if said, _ := s.ask(t.Context(), at, wrong, s.tried[0]); !strings.Contains(said, s.tried[1]) {
		t.Errorf("%s with a password that does not hold: %s, want %s", s.tried[0], said, s.tried[1])
	}
	s.asks(t, at, second, s.kept)

	admin, _ := administrator(t, s.cluster)
	state := admin.AppsV1().StatefulSets(at.namespace)
	must(t, state.Delete(t.Context(), s.state, metav1.DeleteOptions{}))
	eventually(t, time.Minute, s.state+" comes back", func(ctx context.Context) string {
		one, err := state.Get(ctx, s.state, metav1.GetOptions{})
		if err != nil || one.Status.ReadyReplicas != 1 {
			return fmt.Sprint("not ready: ", err)
		}
		return ""
	})
	s.asks(t, at, second, s.kept)
	b.deprovision(t, id, p)
}

// rotate binds again, and unbinds the first binding: its user is gone, with its sessions.
func (s service) rotate(t *testing.T, b broker, id string, p plan, at instance, first map[string]any) (second map[string]any) {
	t.Helper()
	ended := make(chan string, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		said, err := s.ask(ctx, at, first, s.session)
		ended <- fmt.Sprint(said, " ", err)
	}()
	second = b.bind(t, id, "second", p, map[string]any{"predecessor_binding_id": "first"})
	if first["username"] == second["username"] || first["password"] == second["password"] {
		t.Error("a rotation returns the same user or password")
	}
	s.asks(t, at, second, s.second)
	select {
	case said := <-ended:
		t.Errorf("the session of the first binding has ended before the binding: %s", said)
		return second
	default:
	}
	b.unbind(t, id, "first", p)
	select {
	case said := <-ended:
		t.Logf("the session of the first binding: %s", said)
	case <-time.After(30 * time.Second):
		t.Error("the session of the first binding goes on without it")
	}
	return second
}

// asks waits for each answer: the network lets a new pod in a moment after its start.
func (s service) asks(t *testing.T, at instance, credentials map[string]any, all [][2]string) {
	t.Helper()
	for _, one := range all {
		what := one[0][:min(len(one[0]), 60)]
		eventually(t, 30*time.Second, s.name+": "+what, func(ctx context.Context) string {
			said, err := s.ask(ctx, at, credentials, one[0])
			if !strings.Contains(said, one[1]) {
				return fmt.Sprintf("%s (%v), want %s", said, err, one[1])
			}
			return ""
		})
	}
}

// kubectl returns a command of kubectl in the namespace of an instance.
func (i instance) kubectl(ctx context.Context, args ...string) *exec.Cmd {
	path, _ := buildKubectl() // needMembers has built it
	return exec.CommandContext(ctx, path, append([]string{"--kubeconfig", kubeconfig(i.cluster), "--namespace", i.namespace}, args...)...)
}

// inPod runs a command in the pod of a component, and returns what it says.
func (i instance) inPod(ctx context.Context, object string, command ...string) (string, error) {
	out, err := i.kubectl(ctx, append([]string{"exec", object, "--"}, command...)...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// psql runs an SQL statement.
func psql(ctx context.Context, i instance, credentials map[string]any, statement string) (string, error) {
	return i.inPod(ctx, "statefulset/db", "psql", "--no-psqlrc", "--tuples-only", "--no-align", credentials["uri"].(string), "-c", statement)
}

// redis runs a command of Redis.
func redis(ctx context.Context, i instance, credentials map[string]any, command string) (string, error) {
	return i.inPod(ctx, "statefulset/db", append([]string{"redis-cli", "-e", "--no-auth-warning", "-u", credentials["uri"].(string)}, strings.Fields(command)...)...)
}

// overHTTP sends a request, from another pod of the instance: a method, a path, and a body.
func overHTTP(ctx context.Context, i instance, credentials map[string]any, what string) (string, error) {
	method, what, _ := strings.Cut(what, " ")
	path, body, _ := strings.Cut(what, " ")
	request, err := http.NewRequestWithContext(ctx, method, credentials["uri"].(string)+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	request.SetBasicAuth(credentials["username"].(string), credentials["password"].(string))
	request.Close = true
	var wire bytes.Buffer
	if err := request.Write(&wire); err != nil {
		return "", err
	}
	cmd := i.kubectl(ctx, "exec", "--stdin", "statefulset/store", "--", "bash", "-c", `exec 3<>"/dev/tcp/$0/$1"; cat >&3; cat <&3`, credentials["host"].(string), fmt.Sprint(credentials["port"]))
	cmd.Stdin = &wire
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// publish sends a message to NATS, through a port of this machine: a subject and a text. It returns
// what the server says of itself and the first message that comes back: an answer, or the message
// itself, if its subject starts with heard.
func publish(ctx context.Context, i instance, credentials map[string]any, what string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	forward := i.kubectl(ctx, "port-forward", "service/nats", fmt.Sprint(":", credentials["port"]))
	out, err := forward.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := forward.Start(); err != nil {
		return "", err
	}
	defer func() { cancel(); _ = forward.Wait() }()
	said, err := bufio.NewReader(out).ReadString('\n') // Forwarding from 127.0.0.1:34567 -> 4222
	address, _, found := strings.Cut(strings.TrimPrefix(said, "Forwarding from "), " -> ")
	if err != nil || !found {
		return said, fmt.Errorf("kubectl port-forward: %v", err)
	}
	conn, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	connect, err := json.Marshal(map[string]any{"user": credentials["username"], "pass": credentials["password"], "verbose": false})
	if err != nil {
		return "", err
	}
	subject, text, _ := strings.Cut(what, " ")
	fmt.Fprintf(conn, "CONNECT %s\r\nSUB heard.> 1\r\nSUB answers 2\r\nPUB %s answers %d\r\n%s\r\n", connect, subject, len(text), text)
	var all []string
	lines, message := bufio.NewScanner(conn), false
	for lines.Scan() {
		all = append(all, lines.Text())
		if message {
			break
		}
		message = strings.HasPrefix(lines.Text(), "MSG ")
	}
	return strings.Join(all, "\n"), lines.Err()
}
