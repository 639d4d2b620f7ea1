//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// isolation: pods of one instance reach each other and the cluster's DNS; pods of another
// instance on the same cluster, and its API server, they do not reach.
func isolation(t *testing.T, b broker) {
	const cluster = 0 // of the members
	kubectl, err := buildKubectl()
	must(t, err)
	p := b.findPlan(t, "kubernetes-resources", "small")
	namespaces := map[string]string{}
	pods := map[string]*corev1.Pod{}
	for _, id := range []string{"isolated", "neighbour"} {
		b.provision(t, id, p, map[string]any{"selector": map[string]any{"topology.kubernetes.io/region": "region-of-" + members[cluster]}})
		c := consume(t, b.must(t, "PUT", bindingPath(id), nil, map[string]any{"service_id": p.service, "plan_id": p.id}, http.StatusCreated))
		for _, name := range []string{"asks", "answers"} {
			_, err := c.CoreV1().Pods(c.namespace).Create(t.Context(), pod(name, "50m"), metav1.CreateOptions{})
			must(t, err)
		}
		namespaces[id] = c.namespace
		eventually(t, time.Minute, id+": its pods run", func(ctx context.Context) string {
			for _, name := range []string{"asks", "answers"} {
				one, err := c.CoreV1().Pods(c.namespace).Get(ctx, name, metav1.GetOptions{})
				if missing := unlessRunning(one, err); missing != "" {
					return missing
				}
				pods[id] = one
			}
			return ""
		})
	}
	ask := func(id, host, port string) func() (string, error) {
		return func() (string, error) {
			return inPod(kubectl, members[cluster], namespaces[id], "asks", "get", "http://"+net.JoinHostPort(host, port))
		}
	}
	for id, other := range map[string]string{"isolated": "neighbour", "neighbour": "isolated"} {
		answers(t, id+" asks its own pod", ask(id, pods[id].Status.PodIP, "8080"))
		silent(t, id+" asks the other's pod", ask(id, pods[other].Status.PodIP, "8080"))
		silent(t, id+" asks the API server", ask(id, "kubernetes.default.svc", "443"))
	}
	t.Run("ends", func(t *testing.T) {
		for id := range namespaces {
			besides(t, id, func(t *testing.T) { b.deprovision(t, id, p) })
		}
	})
}

// unlessRunning says why a pod does not run, and is empty if it does.
func unlessRunning(p *corev1.Pod, err error) string {
	if err != nil || p.Status.Phase != corev1.PodRunning {
		return fmt.Sprintf("%v %v", p.Status.Phase, err)
	}
	return ""
}

// inPod runs a command of the echo image in a pod that runs it.
func inPod(kubectl, cluster, namespace, name string, command ...string) (string, error) {
	args := append([]string{"--kubeconfig", kubeconfig(cluster), "--namespace", namespace, "exec", name, "--", "/echo"}, command...)
	out, err := exec.Command(kubectl, args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// answers waits until a request is answered: the rules of a pod may come a moment after it.
func answers(t *testing.T, who string, ask func() (string, error)) {
	t.Helper()
	eventually(t, 30*time.Second, who, func(context.Context) string {
		if answer, err := ask(); err != nil {
			return fmt.Sprintf("%s (%v)", answer, err)
		}
		return ""
	})
}

// silent waits until a request gets no answer in time, for the same reason.
func silent(t *testing.T, who string, ask func() (string, error)) {
	t.Helper()
	var answer string
	eventually(t, 30*time.Second, who+" and gets no answer", func(context.Context) string {
		var err error
		if answer, err = ask(); err == nil {
			return "it is answered: " + answer
		}
		if !strings.Contains(answer, "Client.Timeout") && !strings.Contains(answer, "refused") {
			return answer // kubectl's own failure, for one
		}
		return ""
	})
	t.Logf("%s: %s", who, answer)
}
