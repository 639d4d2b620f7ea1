package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/test/capi"
	"github.com/sluice-dev/sluice/test/hosted"
)

// clusterOffering sells clusters of the simulated class.
const clusterOffering = `
apiVersion: sluice.dev/v1alpha1
kind: ServiceOffering
metadata:
  name: clusters
  namespace: sluice
spec:
  id: clusters
  name: clusters
  description: Clusters that the benchmark orders
  plans:
    - id: cluster
      name: cluster
      description: One worker
      kind: cluster
      cluster:
        class: simulated
        versions: [v1.34.4]
        workers: [{name: pool, class: worker, replicas: 1, machine: {cpu: "2"}}]
`

// bareCluster is a manifest for the same cluster without Sluice.
const bareCluster = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: %s, namespace: default}
spec:
  clusterNetwork: {pods: {cidrBlocks: [10.244.0.0/16]}, services: {cidrBlocks: [10.96.0.0/12]}}
  topology:
    classRef: {name: simulated, namespace: default}
    version: v1.34.4
    workers: {machineDeployments: [{class: worker, name: pool, replicas: 1}]}
`

// atOnce is how many clusters are being made at the same time.
const atOnce = 10

// measureMade compares clusters that Sluice has made with the same by hand, many of them.
func measureMade(ctx context.Context, b *bench) (table, error) {
	const bar = 1.2
	t := table{
		question: "What does Sluice add to the making of many clusters?",
		note: fmt.Sprintf("So many clusters with one worker, %d at once, on a management cluster with Cluster API's own core manager. The "+
			"provider is simulated, and all clusters share one control plane of their own, so that there can be many on this machine. By hand "+
			"means the bare topologies, applied at the same rate. Writes are those that the management cluster's API server was asked for, "+
			"by whomever, in all, for each cluster, made and ready.", atOnce),
		header: []string{"clusters", "by hand", "by Sluice", "writes by hand", "by Sluice", "ratio", "bar", "", "Sluice's CPU", "memory", "deprovision"},
	}
	for _, count := range pick(b, []int{10, 30, 100}, []int{2}) {
		b.say("made: %d clusters", count)
		m, err := b.makeMany(ctx, count)
		if err != nil {
			return t, err
		}
		ratio := m.sluiceWrites / m.handWrites
		t.add(fmt.Sprint(count), seconds(m.hand), seconds(m.sluice), fmt.Sprintf("%.0f", m.handWrites), fmt.Sprintf("%.0f", m.sluiceWrites),
			fmt.Sprintf("%.2f", ratio), fmt.Sprintf("≤ %.1f", bar), verdict(ratio <= bar), seconds(m.cpu), fmt.Sprintf("%d MiB", m.memory), seconds(m.gone))
	}
	return t, nil
}

// many holds the durations of creating many clusters, and the writes for each.
type many struct {
	hand, sluice, gone, cpu  time.Duration
	handWrites, sluiceWrites float64
	memory                   int
}

func (b *bench) makeMany(ctx context.Context, count int) (m many, err error) {
	bed, err := capi.New(ctx, capi.Options{Shared: true})
	if err != nil {
		return m, err
	}
	defer func() { _ = bed.Stop() }()
	if err := bed.Apply(ctx, capi.Class); err != nil {
		return m, err
	}
	s, err := b.serve(ctx, filepath.Join(b.folder, fmt.Sprintf("made-%d", count)))
	if err != nil {
		return m, err
	}
	defer s.kill()
	kubeconfig := filepath.Join(b.folder, fmt.Sprintf("management-%d.kubeconfig", count))
	if err := os.WriteFile(kubeconfig, bed.Kubeconfig(), 0o600); err != nil {
		return m, err
	}
	if err := s.operate(ctx, nil, "cluster", "add", "makers", "--from-kubeconfig", kubeconfig, "--driver", "capi", "--capacity", "sluice.dev/clusters=1000,cpu=10000"); err != nil {
		return m, err
	}
	if err := s.operate(ctx, strings.NewReader(clusterOffering), "catalog", "apply", "-f", "-"); err != nil {
		return m, err
	}
	// One first, so that neither pays for what is done once.
	if err := makeByHand(ctx, bed, "first"); err != nil {
		return m, err
	}
	if m.hand, m.handWrites, err = measured(ctx, bed, count, func(ctx context.Context, n int) error {
		return makeByHand(ctx, bed, fmt.Sprintf("hand-%d", n))
	}); err != nil {
		return m, fmt.Errorf("by hand: %w", err)
	}
	if err := deleteAll(ctx, bed); err != nil {
		return m, err
	}
	before, err := s.cpu()
	if err != nil {
		return m, err
	}
	if m.sluice, m.sluiceWrites, err = measured(ctx, bed, count, func(ctx context.Context, n int) error {
		return s.makeCluster(ctx, fmt.Sprintf("made-%d", n))
	}); err != nil {
		return m, fmt.Errorf("by Sluice: %w; the end of its log:\n%s", err, s.logEnd())
	}
	after, err := s.cpu()
	if err != nil {
		return m, err
	}
	m.cpu = after - before
	if m.memory, err = s.memory("VmRSS"); err != nil {
		return m, err
	}
	if m.gone, _, err = measured(ctx, bed, count, func(ctx context.Context, n int) error {
		return s.deprovision(ctx, fmt.Sprintf("made-%d", n))
	}); err != nil {
		return m, fmt.Errorf("deprovision: %w", err)
	}
	return m, nil
}

// measured does something so many times, some at once, and returns how long that took,
// and how many writes each was.
func measured(ctx context.Context, bed *capi.Bed, count int, do func(context.Context, int) error) (time.Duration, float64, error) {
	before, err := writes(ctx, bed)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for n := range count {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
			defer cancel()
			return do(ctx, n)
		})
	}
	if err := group.Wait(); err != nil {
		return 0, 0, err
	}
	took := time.Since(began)
	after, err := writes(context.WithoutCancel(ctx), bed)
	return took, (after - before) / float64(count), err
}

// writes is how many requests that change something the management cluster has answered,
// leases and events apart, which go on by themselves.
func writes(ctx context.Context, bed *capi.Bed) (float64, error) {
	kube, err := kubernetes.NewForConfig(bed.Config())
	if err != nil {
		return 0, err
	}
	text, err := kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "apiserver_request_total{") || strings.Contains(line, `resource="leases"`) || strings.Contains(line, `resource="events"`) ||
			strings.Contains(line, `group="authorization.k8s.io"`) || strings.Contains(line, `group="authentication.k8s.io"`) {
			continue
		}
		for _, verb := range []string{"POST", "PUT", "PATCH", "APPLY", "DELETE"} {
			if strings.Contains(line, `verb="`+verb+`"`) {
				var value float64
				if _, err := fmt.Sscan(line[strings.LastIndex(line, " ")+1:], &value); err != nil {
					return 0, fmt.Errorf("read %q: %w", line, err)
				}
				sum += value
			}
		}
	}
	return sum, nil
}

func makeByHand(ctx context.Context, bed *capi.Bed, name string) error {
	if err := bed.Apply(ctx, fmt.Appendf(nil, bareCluster, name)); err != nil {
		return err
	}
	return poll(ctx, 100*time.Millisecond, func(ctx context.Context) error {
		made := theCluster(name)
		if err := bed.Client.Get(ctx, client.ObjectKeyFromObject(made), made); err != nil {
			return err
		}
		if !hosted.HasCondition(made, "Available") {
			return fmt.Errorf("cluster %s is not available", name)
		}
		return nil
	})
}

func theCluster(name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("cluster.x-k8s.io/v1beta2")
	o.SetKind("Cluster")
	o.SetNamespace("default")
	o.SetName(name)
	return o
}

// deleteAll deletes the clusters made by hand, and waits until they are gone.
func deleteAll(ctx context.Context, bed *capi.Bed) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	asked := false
	return poll(ctx, 200*time.Millisecond, func(ctx context.Context) error {
		if !asked { // again, if the server gives up: to delete many takes it about as long as it has for a request
			if err := bed.Client.DeleteAllOf(ctx, theCluster(""), client.InNamespace("default")); err != nil {
				return err
			}
			asked = true
		}
		if n := bed.Workloads(); n > 0 {
			return fmt.Errorf("%d clusters are left", n)
		}
		return nil
	})
}

// makeCluster orders a cluster and waits until it is there.
func (s *sluice) makeCluster(ctx context.Context, id string) error {
	body := []byte(`{"service_id":"clusters","plan_id":"cluster","organization_guid":"o","space_guid":"s"}`)
	r, err := s.request(ctx, http.MethodPut, "/v2/service_instances/"+id+"?accepts_incomplete=true", body)
	if err != nil {
		return err
	}
	if err := s.send(r, http.StatusAccepted, nil); err != nil {
		return err
	}
	return poll(ctx, 100*time.Millisecond, func(ctx context.Context) error { return s.awaitOnce(ctx, id) })
}

// deprovision gives a cluster back and waits until it is gone.
func (s *sluice) deprovision(ctx context.Context, id string) error {
	r, err := s.request(ctx, http.MethodDelete, "/v2/service_instances/"+id+"?accepts_incomplete=true&service_id=clusters&plan_id=cluster", nil)
	if err != nil {
		return err
	}
	var accepted struct{ Operation string }
	if err := s.send(r, http.StatusAccepted, &accepted); err != nil {
		return err
	}
	return poll(ctx, 100*time.Millisecond, func(ctx context.Context) error {
		r, err := s.request(ctx, http.MethodGet, "/v2/service_instances/"+id+"/last_operation?operation="+accepted.Operation, nil)
		if err != nil {
			return err
		}
		return s.send(r, http.StatusGone, nil)
	})
}
