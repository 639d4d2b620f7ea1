package controller

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/internal/workload"
)

// workloads are plans of one component: with as many pods of one core as the consumer chooses, in
// an edition; and with a volume.
const workloads = `
- id: plan-web
  name: web
  description: Web.
  kind: workload
  maximumPollingDurationSeconds: 60
  maintenanceInfo: {version: EDITION.0.0}
  workload:
    parameters: {replicas: {type: integer, minimum: 0, default: 1}}
    secrets: [{name: key}, {name: keyEDITION}]
    components:
    - name: web
      container: {image: "web:EDITION", replicas: "${parameters.replicas}", resources: {cpu: 1, memory: 1Gi}}
- id: plan-db
  name: db
  description: Database.
  kind: workload
  maximumPollingDurationSeconds: 60
  workload:
    parameters: {size: {type: integer, default: 1}}
    components:
    - name: db
      container:
        image: db
        deadlineSeconds: 15
        gracePeriodSeconds: 5
        volumes: [{name: data, mountPath: /data, storageClass: fast, size: 1Ki}]
        resources: {cpu: 1, memory: 1Gi}
- id: plan-kept
  name: kept
  description: Database that can be backed up.
  kind: workload
  maximumPollingDurationSeconds: 60
  workload: &kept
    parameters: {size: {type: integer, default: 1}}
    components:
    - name: db
      container:
        image: db
        volumes: [{name: data, mountPath: /data, storageClass: fast, size: 1Ki}]
        backup: &copy {image: db, command: [copy, "${target.url}/${backup.id}"], resources: {cpu: 1, memory: 1Gi}}
        restore: *copy
        resources: {cpu: 1, memory: 1Gi}
- id: plan-nightly
  name: nightly
  description: Database that is backed up each night, and keeps two backups.
  kind: workload
  maximumPollingDurationSeconds: 60
  workload: {<<: *kept, backups: {schedule: "0 3 * * *", keep: 2}}
- id: plan-app
  name: app
  description: Web and database, each on a cluster that suits it.
  kind: workload
  maximumPollingDurationSeconds: 60
  resources: {components: [{name: web}, {name: db}]}
  workload:
    components:
    - name: web
      container: {image: web, resources: {cpu: 1, memory: 1Gi}}
    - name: db
      container:
        image: db
        volumes: [{name: data, mountPath: /data, storageClass: fast, size: 1Ki}]
        resources: {cpu: 1, memory: 1Gi}
- id: plan-tour
  name: tour
  description: A web server in one region, the rest in another.
  kind: workload
  maximumPollingDurationSeconds: 60
  resources:
    components:
    - {name: web, selector: {matchLabels: &a {topology.kubernetes.io/region: a}}}
    - {name: api, selector: {matchLabels: &b {topology.kubernetes.io/region: b}}}
    - {name: db, selector: {matchLabels: *b}}
  workload: &tour
    components:
    - {name: web, container: &small {image: web, replicas: 0, resources: {cpu: 1, memory: 1Gi}}}
    - {name: api, container: *small}
    - {name: db, container: *small}
- id: plan-moved
  name: moved
  description: The same, with the api beside the web server.
  kind: workload
  maximumPollingDurationSeconds: 60
  resources:
    components:
    - {name: web, selector: {matchLabels: *a}}
    - {name: api, selector: {matchLabels: *a}}
    - {name: db, selector: {matchLabels: *b}}
  workload: *tour
- id: plan-shares
  name: shares
  description: A web server divided over clusters.
  kind: workload
  maximumPollingDurationSeconds: 60
  resources: {clusters: 2, maxClusters: 3, replicas: {count: 4, max: 8}}
  workload:
    components:
    - name: web
      container: {image: web, replicas: "${cluster.replicas}", resources: {cpu: 1, memory: 1Gi}}
- id: plan-hiding
  name: hiding
  description: What it is given is hidden.
  kind: workload
  maximumPollingDurationSeconds: 60
  workload:
    parameters: {key: {type: object, writeOnly: true, required: [pem], properties: {pem: {type: string, minLength: 8}}}}
    required: [key]
    components:
    - name: web
      container: {image: web, env: {KEY: "${parameters.key.pem}"}, resources: {cpu: 1, memory: 1Gi}}
- id: plan-room
  name: room
  description: Room for what the consumer runs.
  kind: resources
  resources: {limits: {cpu: "1"}, exposure: {hosts: 2}}
- id: plan-site
  name: site
  description: Site.
  kind: workload
  maximumPollingDurationSeconds: 60
  workload:
    parameters: {name: {type: string, default: ""}}
    components:
    - name: web
      ports: [{name: http, port: 80, reach: public, host: "${parameters.name}"}]
      container: {image: web, resources: {cpu: 1, memory: 1Gi}}
`

// sellWorkloads puts the plans into the catalog.
func (w *world) sellWorkloads(edition string) {
	w.Helper()
	spec := v1alpha1.ServiceOfferingSpec{ID: "service-compute", Name: "compute", Description: "Workloads.", Bindable: true, PlanUpdateable: true}
	document := strings.ReplaceAll(workloads, "EDITION", edition)
	w.must(yaml.UnmarshalStrict([]byte(document), &spec.Plans))
	snapshot, err := catalog.Build([]v1alpha1.ServiceOffering{{Status: v1alpha1.ServiceOfferingStatus{Accepted: &spec}}}, nil, nil, nil)
	w.must(err)
	w.reconciler.plan = snapshot.Plan
}

// newWorkloadWorld is a world that sells workloads.
func newWorkloadWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	w.must(err)
	w.reconciler.keys = keys
	w.sellWorkloads("1")
	return w
}

// secrets of an instance, which must not be readable in its status.
func (w *world) secrets(instance *v1alpha1.ServiceInstance) workload.Secrets {
	w.Helper()
	secrets, err := workload.UnsealInstance(instance, w.reconciler.keys)
	w.must(err)
	text, err := json.Marshal(instance)
	w.must(err)
	for name, secret := range secrets {
		if bytes.Contains(text, secret.Reveal()) {
			w.Errorf("the secret %s is in the instance", name)
		}
	}
	return secrets
}

func image(d *v1alpha1.Decision) string { return d.Workload.Components[0].Container.Image }
