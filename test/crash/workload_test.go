//go:build faults

package crash

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// applicationOffering sells a workload in a version. Version 1 has a component that version 2 drops;
// version 3 has one for which there is no node.
const applicationOffering = `
apiVersion: sluice.dev/v1alpha1
kind: ServiceOffering
metadata:
  name: applications
spec:
  id: applications
  name: applications
  description: A workload of the kill test
  plans:
  - id: application
    name: application
    description: One component or two
    kind: workload
    maintenanceInfo: {version: VERSION}
    workload:
      parameters: {replicas: {type: integer, minimum: 1, maximum: 3, default: 1}}
      secrets: [{name: password}]
      bindings:
        results: [token]
        bind:
          image: sluice.dev/tool:1
          command: [patch, $(SLUICE_RESULTS), '{"data": {"token": "aHVzaC1odXNo"}}']
          resources: {cpu: 20m, memory: 16Mi}
        unbind: {image: "sluice.dev/tool:1", args: ["${binding.results.token}"], resources: {cpu: 20m, memory: 16Mi}}
      credentials: {password: "${secrets.password}", host: "${components.web.host}", token: "${binding.results.token}"}
      components:
      - name: web
        ports: [{name: http, port: 80}]
        container:
          image: sluice.dev/web:VERSION
          env: {PASSWORD: "${secrets.password}"}
          replicas: "${parameters.replicas}"
          resources: {cpu: 20m, memory: 16Mi}
`

// hookResult is the token that the bind hook returns.
const hookResult = "hush-hush"

const cacheComponent = `
      - name: cache
        container: {image: "sluice.dev/cache:1", resources: {cpu: 20m, memory: 16Mi}}
`

const hopelessComponent = `
      - name: hopeless
        manifests:
        - apiVersion: apps/v1
          kind: Deployment
          metadata: {name: hopeless}
          spec:
            progressDeadlineSeconds: 2
            selector: {matchLabels: {app: hopeless}}
            template:
              metadata: {labels: {app: hopeless}}
              spec:
                nodeSelector: {no: such}
                containers: [{name: c, image: i, resources: {limits: {cpu: 20m, memory: 16Mi}}}]
`

// application is an instance that runs a workload.
type application struct {
	*instance
	version, password string
	replicas          int32
}

func (b *bed) application() *application {
	i := b.instance("application")
	i.service, i.plan = "applications", "application"
	return &application{instance: i, version: "1.0.0", replicas: 1}
}

// sell puts a version into the catalog.
func (a *application) sell(version string) func(context.Context) error {
	return func(ctx context.Context) error {
		offering := strings.ReplaceAll(applicationOffering, "VERSION", version)
		switch version {
		case "1.0.0":
			offering += cacheComponent
		case "3.0.0":
			offering += hopelessComponent
		}
		file := a.server.path("applications.yaml")
		if err := os.WriteFile(file, []byte(offering), 0o600); err != nil {
			return err
		}
		if err := a.operate(ctx, "catalog", "apply", "-f", file); err != nil {
			return err
		}
		return until(ctx, func(ctx context.Context) error {
			catalog, err := a.send(ctx, http.MethodGet, "/v2/catalog", nil, nil, http.StatusOK)
			if err == nil && !strings.Contains(fmt.Sprint(catalog.body), version) {
				err = fmt.Errorf("version %s is not in the catalog", version)
			}
			return err
		})
	}
}

func (a *application) request(more map[string]any) map[string]any {
	body := map[string]any{"service_id": a.service, "plan_id": a.plan}
	for field, value := range more {
		body[field] = value
	}
	return body
}

func (a *application) provision(ctx context.Context) error {
	body := a.request(map[string]any{"organization_guid": "organization", "space_guid": "space"})
	if err := a.succeed(ctx, http.MethodPut, a.path(), async, body); err != nil {
		return err
	}
	return a.runs(ctx)
}

func (a *application) bind(ctx context.Context) error {
	answer, err := a.send(ctx, http.MethodPut, a.bindingPath("first"), nil, a.request(nil), http.StatusOK, http.StatusCreated)
	if err != nil {
		return err
	}
	credentials, _ := answer.body["credentials"].(map[string]any)
	password, _ := credentials["password"].(string)
	if want := "web." + v1alpha1.MemberNamespace(a.name) + ".svc"; credentials["host"] != want || len(password) != 32 {
		return fmt.Errorf("the credentials have the host %v, want %s, and a password of %d characters", credentials["host"], want, len(password))
	}
	a.password = password
	if credentials["token"] != hookResult {
		return fmt.Errorf("the credentials have the token %v, want what the hook returned", credentials["token"])
	}
	if err := a.noHook(ctx); err != nil {
		return err
	}
	return a.runs(ctx)
}

func (a *application) unbind(ctx context.Context) error {
	if err := a.remove(ctx, a.bindingPath("first"), a.query()); err != nil {
		return err
	}
	if err := a.noHook(ctx); err != nil {
		return err
	}
	return a.accounts(ctx, v1alpha1.BindingName(platformName, a.id, "first"), 0)
}

// noHook waits until nothing of the binding's hooks is left on any cluster.
func (a *application) noHook(ctx context.Context) error {
	options := metav1.ListOptions{LabelSelector: v1alpha1.LabelBinding + "=" + v1alpha1.BindingName(platformName, a.id, "first")}
	return until(ctx, func(ctx context.Context) error {
		if err := a.accountsOnClusters(ctx, v1alpha1.BindingName(platformName, a.id, "first"), 0); err != nil {
			return err
		}
		return a.each(func(_ string, m *member) error {
			jobs, err := m.BatchV1().Jobs("").List(ctx, options)
			if err != nil {
				return err
			}
			secrets, err := m.CoreV1().Secrets("").List(ctx, options)
			if err != nil {
				return err
			}
			if len(jobs.Items)+len(secrets.Items) > 0 {
				return fmt.Errorf("left behind: %d Jobs and %d Secrets of hooks", len(jobs.Items), len(secrets.Items))
			}
			return nil
		})
	})
}

func (a *application) scale(ctx context.Context) error {
	if err := a.succeed(ctx, http.MethodPatch, a.path(), async, a.request(map[string]any{"parameters": map[string]any{"replicas": 2}})); err != nil {
		return err
	}
	a.replicas = 2
	return a.runs(ctx)
}

func (a *application) upgrade(ctx context.Context) error {
	upgrade := a.request(map[string]any{"maintenance_info": map[string]any{"version": "2.0.0"}})
	if err := a.succeed(ctx, http.MethodPatch, a.path(), async, upgrade); err != nil {
		return err
	}
	a.version = "2.0.0"
	return a.runs(ctx)
}

func (a *application) upgradeInVain(ctx context.Context) error {
	upgrade := a.request(map[string]any{"maintenance_info": map[string]any{"version": "3.0.0"}})
	answer, err := a.fail(ctx, http.MethodPatch, a.path(), async, upgrade)
	if err != nil {
		return err
	}
	if answer.body["instance_usable"] == false || !strings.Contains(answer.text("description"), "hopeless: 0 of 1 pods ready") {
		return fmt.Errorf("got %v, want that the instance is usable and why the upgrade failed", answer)
	}
	return a.runs(ctx)
}

// runs checks that exactly the components of the version run, with the same password as ever, and
// that nobody else sees it.
func (a *application) runs(ctx context.Context) error {
	if err := a.delivered(ctx, 1); err != nil {
		return err
	}
	want := []string{"web"}
	if a.version == "1.0.0" {
		want = []string{"cache", "web"}
	}
	err := a.each(func(_ string, m *member) error {
		namespaces, err := m.namespacesOf(ctx, a.name)
		if err != nil || len(namespaces) == 0 {
			return err
		}
		deployments, err := m.AppsV1().Deployments(namespaces[0]).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var names []string
		for _, d := range deployments.Items {
			names = append(names, d.Name)
			if d.Name == "web" && (*d.Spec.Replicas != a.replicas || d.Status.ReadyReplicas != a.replicas || d.Spec.Template.Spec.Containers[0].Image != "sluice.dev/web:"+a.version) {
				return fmt.Errorf("web has %d of %d pods of %s ready, want %d of version %s",
					d.Status.ReadyReplicas, *d.Spec.Replicas, d.Spec.Template.Spec.Containers[0].Image, a.replicas, a.version)
			}
		}
		if slices.Sort(names); !equality.Semantic.DeepEqual(names, want) {
			return fmt.Errorf("%v run, want %v", names, want)
		}
		secret, err := m.CoreV1().Secrets(namespaces[0]).Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if a.password != "" && string(secret.Data["env.PASSWORD"]) != a.password {
			return fmt.Errorf("the password has changed")
		}
		return nil
	})
	if err != nil || a.password == "" {
		return err
	}
	return a.hidden(ctx)
}

// hidden checks that the password is nowhere in the hub or in the log.
func (a *application) hidden(ctx context.Context) error {
	log, err := os.ReadFile(a.log.Name())
	if err != nil {
		return err
	}
	if bytes.Contains(log, []byte(a.password)) || bytes.Contains(log, []byte(hookResult)) {
		return fmt.Errorf("the password, or what the hook returned, is in the log")
	}
	return a.withHub(ctx, func(c client.Client) error {
		for _, list := range []client.ObjectList{&v1alpha1.ServiceInstanceList{}, &v1alpha1.ServiceBindingList{}, &v1alpha1.JournalList{}} {
			if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
				return err
			}
			text, err := yaml.Marshal(list)
			if err != nil {
				return err
			}
			if bytes.Contains(text, []byte(a.password)) || bytes.Contains(text, []byte(hookResult)) {
				return fmt.Errorf("the password, or what the hook returned, is in a %T", list)
			}
		}
		return nil
	})
}
