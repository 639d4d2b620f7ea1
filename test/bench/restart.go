package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/hub"
)

// inventoryClusters is how many member clusters the stored instances are on.
const inventoryClusters = 20

// measureRestart measures a start on a hub that holds many instances.
func measureRestart(ctx context.Context, b *bench) (table, error) {
	t := table{
		question: "How long is a restart, and how much memory does it take?",
		note: fmt.Sprintf("Embedded hub with so many delivered instances on %d member clusters, written to it while Sluice was "+
			"down. Ready is from the start of the process until /readyz says so; recovered is how long it took to rebuild the "+
			"inventory, reservations and all, from the hub; looked at all is when the controller has been through every "+
			"instance, which is also when memory is read, and how much of it are files: the program and the database, which the "+
			"kernel takes back when others need it. The process was killed, not stopped, before.", inventoryClusters),
		header: []string{"instances", "ready", "recovered", "looked at all", "memory then", "of it files", "most", "bar", ""},
	}
	const (
		barReady, barMany    = 5 * time.Second, 10 * time.Second
		barMemory, barOfMany = 500, 1024 // MiB
	)
	dataDir := filepath.Join(b.folder, "restart")
	stored := 0
	for _, count := range pick(b, []int{1000, 5000, 10000, 100000}, []int{50, 100}) {
		b.say("restart: store %d instances", count)
		if err := store(ctx, dataDir, stored, count); err != nil {
			return t, err
		}
		stored = count
		// Once to get over the first look at new things, once to measure.
		for _, measured := range pick(b, []bool{false, true}, []bool{true}) {
			b.say("restart: start with %d instances", count)
			found, err := b.restart(ctx, dataDir, count)
			if err != nil {
				return t, err
			}
			if measured {
				bar, met := "", ""
				switch count {
				case 10000:
					bar = fmt.Sprintf("ready ≤ %s, memory ≤ %d MiB", barReady, barMemory)
					met = verdict(found.ready <= barReady && found.memory <= barMemory)
				case 100000:
					bar = fmt.Sprintf("ready, recovered ≤ %s, memory ≤ %d MiB", barMany, barOfMany)
					met = verdict(max(found.ready, found.recovered) <= barMany && found.memory <= barOfMany)
				}
				t.add(fmt.Sprint(count), seconds(found.ready), seconds(found.recovered), seconds(found.settled), mebibytes(found.memory), mebibytes(found.files), mebibytes(found.most), bar, met)
			}
		}
	}
	return t, nil
}

func mebibytes(n int) string { return fmt.Sprintf("%d MiB", n) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// restarted holds the measurements of one start.
type restarted struct {
	ready, recovered, settled time.Duration
	memory, files, most       int // MiB
}

// restart starts Sluice, waits until its controller has looked at every instance,
// and kills it.
func (b *bench) restart(ctx context.Context, dataDir string, instances int) (restarted, error) {
	var found restarted
	began := time.Now()
	s, err := b.serve(ctx, dataDir)
	if err != nil {
		return found, err
	}
	defer s.kill()
	found.ready = s.ready
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	if err := poll(ctx, 50*time.Millisecond, func(context.Context) (err error) {
		found.recovered, err = s.recovered()
		return err
	}); err != nil {
		return found, err
	}
	if err := s.awaitLooks(ctx, "instance", instances); err != nil {
		return found, err
	}
	found.settled = time.Since(began)
	if found.memory, err = s.memory("VmRSS"); err != nil {
		return found, err
	}
	if found.files, err = s.memory("RssFile"); err != nil {
		return found, err
	}
	found.most, err = s.memory("VmHWM")
	return found, err
}

// recovered is how long the log says that it took to rebuild the inventory.
func (s *sluice) recovered() (time.Duration, error) {
	text, err := os.ReadFile(s.log.Name())
	if err != nil {
		return 0, err
	}
	_, after, found := strings.Cut(string(text), "Rebuilt the inventory from the hub")
	_, after, told := strings.Cut(after, "took=")
	if !found || !told {
		return 0, errors.New("it has not rebuilt the inventory yet")
	}
	return time.ParseDuration(strings.Fields(after)[0])
}

// awaitLooks polls until a controller has looked so often at anything.
func (s *sluice) awaitLooks(ctx context.Context, controller string, times int) error {
	return poll(ctx, 50*time.Millisecond, func(ctx context.Context) error {
		looks, err := s.looks(ctx, controller)
		if err == nil && looks < times {
			err = fmt.Errorf("the controller %s has looked %d of %d times", controller, looks, times)
		}
		return err
	})
}

// looks is how often a controller has looked at anything, by the metrics.
func (s *sluice) looks(ctx context.Context, controller string) (int, error) {
	n, err := s.metric(ctx, fmt.Sprintf("controller_runtime_reconcile_total{controller=%q", controller))
	return int(n), err
}

// metric returns the sum of the metrics that begin so.
func (s *sluice) metric(ctx context.Context, beginning string) (total float64, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.metricsURL, nil)
	if err != nil {
		return 0, err
	}
	response, err := s.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), "} ")
		if strings.HasPrefix(name, beginning) {
			var n float64
			if _, err := fmt.Sscan(value, &n); err != nil {
				return 0, fmt.Errorf("read the metrics: %w", err)
			}
			total += n
		}
	}
	return total, lines.Err()
}

// store writes the offering, the member clusters and the instances from one number
// up to another into the hub of a data folder that no Sluice is using.
func store(ctx context.Context, dataDir string, from, to int) error {
	return whileDown(ctx, dataDir, func(c client.Client, namespace string) error {
		if from == 0 {
			if err := storeInventory(ctx, c, namespace); err != nil {
				return err
			}
		}
		writers, ctx := errgroup.WithContext(ctx)
		writers.SetLimit(32)
		for n := from; n < to; n++ {
			writers.Go(func() error { return storeInstance(ctx, c, namespace, n) })
		}
		return writers.Wait()
	})
}

// whileDown runs the hub of a data folder that no Sluice is using.
func whileDown(ctx context.Context, dataDir string, write func(c client.Client, namespace string) error) (err error) {
	h, err := hub.Start(ctx, hub.Options{DataDir: dataDir, Embedded: true, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return err
	}
	defer func() {
		if stopped := h.Stop(); err == nil {
			err = stopped
		}
	}()
	c, err := newHubClient(h.Config)
	if err != nil {
		return err
	}
	return write(c, h.Namespace)
}

func newHubClient(config *rest.Config) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return client.NewWithWatch(config, client.Options{Scheme: scheme})
}

func storeInventory(ctx context.Context, c client.Client, namespace string) error {
	sold := &v1alpha1.ServiceOffering{}
	if err := yaml.UnmarshalStrict([]byte(offering), sold); err != nil {
		return err
	}
	sold.Namespace = namespace
	if err := c.Create(ctx, sold); err != nil {
		return err
	}
	for n := range inventoryClusters {
		if err := createWithStatus(ctx, c, memberCluster(namespace, clusterName(n))); err != nil {
			return err
		}
	}
	return nil
}

// memberCluster returns a cluster that cannot be reached: an embedded hub has no Secrets.
func memberCluster(namespace, name string) *v1alpha1.MemberCluster {
	return &v1alpha1.MemberCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.MemberClusterSpec{Access: v1alpha1.ClusterAccess{SecretRef: &v1alpha1.SecretKeyReference{Name: "none", Key: "kubeconfig"}}},
		Status: v1alpha1.MemberClusterStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("5000"),
		}},
	}
}

// createWithStatus writes a cluster with its status.
func createWithStatus(ctx context.Context, c client.Client, m *v1alpha1.MemberCluster) error {
	status := m.Status
	if err := c.Create(ctx, m); err != nil {
		return err
	}
	m.Status = status
	return c.Status().Update(ctx, m)
}

func clusterName(n int) string { return fmt.Sprintf("member-%02d", n%inventoryClusters) }

// storeInstance writes an instance as it is once delivered.
func storeInstance(ctx context.Context, c client.Client, namespace string, n int) error {
	id := fmt.Sprintf("9b1c2b1e-0000-4000-8000-%012d", n)
	i := &v1alpha1.ServiceInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.InstanceName("bench", id), Finalizers: []string{v1alpha1.Finalizer}},
		Spec: v1alpha1.ServiceInstanceSpec{
			Platform: "bench", InstanceID: id, ServiceID: "bench", OrganizationGUID: id, SpaceGUID: id,
			Desired: v1alpha1.InstanceState{
				PlanID:  "small",
				Context: &runtime.RawExtension{Raw: []byte(`{"platform":"cloudfoundry","organization_name":"some-organization","space_name":"some-space","instance_name":"some-instance"}`)},
			},
		},
	}
	if err := c.Create(ctx, i); err != nil {
		return err
	}
	now := metav1.Now()
	decision := v1alpha1.Decision{Generation: i.Generation, Considered: inventoryClusters, Placements: []v1alpha1.Placement{{
		Cluster: clusterName(n), Score: 80, Reserved: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi"), corev1.ResourcePods: resource.MustParse("1"),
		},
	}}, Rejections: []v1alpha1.Rejection{{Reason: "LowerScore", Count: inventoryClusters - 1, Examples: []v1alpha1.RejectionExample{
		{Cluster: clusterName(n + 1), Message: "scored 79, the chosen ones 80"}, {Cluster: clusterName(n + 2), Message: "scored 78, the chosen ones 80"},
	}}}}
	i.Status = v1alpha1.ServiceInstanceStatus{
		ObservedGeneration: i.Generation,
		Operation: &v1alpha1.Operation{
			Type: v1alpha1.OperationProvision, Generation: i.Generation, State: v1alpha1.StateSucceeded, StartedAt: now, FinishedAt: &now,
		},
		Decision:  &decision,
		Delivered: &v1alpha1.DeliveredState{State: i.Spec.Desired, Decision: decision},
	}
	for _, kind := range []string{v1alpha1.ConditionPlaced, v1alpha1.ConditionDelivered, v1alpha1.ConditionReady} {
		v1alpha1.SetCondition(&i.Status.Conditions, i.Generation, kind, metav1.ConditionTrue, v1alpha1.ReasonReady, "on "+clusterName(n))
	}
	return c.Status().Update(ctx, i)
}
