//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// loadFrom asks a target from a pod that runs the echo image again and again, each time on a new connection, until the
// function that it returns is called. That fails the test unless every request was answered by a pod whose name has the
// prefix.
func loadFrom(t *testing.T, kubectl, cluster, namespace, pod, target, prefix string) (end func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), kubectl, "--kubeconfig", kubeconfig(cluster), "--namespace", namespace,
		"exec", "--stdin", pod, "--", "/echo", "load", "http://"+target, prefix)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	stdin, err := cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	return func() {
		t.Helper()
		must(t, stdin.Close())
		err := cmd.Wait()
		failed := strings.Split(strings.TrimSpace(out.String()), "\n")
		var asked int
		var longest float64
		_, unreadable := fmt.Sscan(failed[len(failed)-1], &asked, &longest)
		failed = failed[:len(failed)-1]
		t.Logf("%s asked %s meanwhile: %d requests, %d failed, the longest took %.2f s", pod, target, asked, len(failed), longest)
		if err := errors.Join(err, unreadable); err != nil || asked < 50 || len(failed) > 0 {
			t.Errorf("%s asked %s %d times (%v), failed:\n%s", pod, target, asked, err, strings.Join(failed, "\n"))
		}
	}
}

// loadFromOutside does as loadFrom, from outside of all clusters.
func loadFromOutside(t *testing.T, get func(context.Context, string) (int, string, error), url, prefix string) (end func()) {
	t.Helper()
	var failed []string
	asked := 0
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		pause := time.NewTicker(20 * time.Millisecond)
		defer pause.Stop()
		for ; ; asked++ {
			select {
			case <-stop:
				return
			case <-pause.C:
			}
			if status, body, err := get(t.Context(), url); err != nil || status != http.StatusOK || !strings.HasPrefix(body, prefix) {
				failed = append(failed, fmt.Sprint(status, body, err))
			}
		}
	}()
	return func() {
		t.Helper()
		close(stop)
		<-stopped
		t.Logf("%s was asked from outside meanwhile: %d requests, %d failed", url, asked, len(failed))
		if asked < 50 || len(failed) > 0 {
			t.Errorf("%s was asked %d times, failed:\n%s", url, asked, strings.Join(failed, "\n"))
		}
	}
}

// rollout replaces the pod of a site's public component. No request fails meanwhile, neither of the other component nor
// from outside.
func rollout(t *testing.T, b broker, id string, p plan, cluster, site string, get func(context.Context, string) (int, string, error)) {
	t.Helper()
	kubectl, err := buildKubectl()
	must(t, err)
	namespace := v1alpha1.MemberNamespace(v1alpha1.InstanceName("first", id))
	before := serves(t, get, site, "web-")
	answers(t, "inner asks web", func() (string, error) {
		return inPod(kubectl, cluster, namespace, "deployment/inner", "get", "http://web")
	})
	inside := loadFrom(t, kubectl, cluster, namespace, "deployment/inner", "web", "web-")
	outside := loadFromOutside(t, get, site, "web-")
	b.must(t, "PATCH", "/v2/service_instances/"+id, url.Values{"accepts_incomplete": {"true"}},
		map[string]any{"service_id": p.service, "plan_id": p.id, "parameters": map[string]any{"name": "shop", "version": "2"}}, http.StatusAccepted)
	b.await(t, id, "update of "+id)
	admin, _ := administrator(t, cluster)
	eventually(t, time.Minute, "the former pod is gone", func(ctx context.Context) string {
		if _, err := admin.CoreV1().Pods(namespace).Get(ctx, before, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprint("it is there: ", err)
		}
		return ""
	})
	inside()
	outside()
	if now := serves(t, get, site, "web-"); now == before {
		t.Errorf("%s still answers", before)
	}
}
