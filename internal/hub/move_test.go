package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/charts"
	"github.com/sluice-dev/sluice/test/controlplane"
)

// mortal lets a process do one write. After that it has died, and asks nothing any more.
type mortal struct {
	mu   sync.Mutex
	dead bool
}

var errDied = errors.New("it has died")

// on returns a configuration whose clients die with the process.
func (m *mortal) on(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return mortalTransport{m, next} })
	return config
}

type mortalTransport struct {
	*mortal
	next http.RoundTripper
}

func (t mortalTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dead {
		return nil, errDied
	}
	response, err := t.next.RoundTrip(r)
	if r.Method != http.MethodGet && r.URL.Query().Get("dryRun") == "" && err == nil {
		t.dead = true
		return nil, errors.Join(errDied, response.Body.Close())
	}
	return response, err
}

// moveTo returns the move of a hub to a cluster.
func moveTo(config *rest.Config) *Move {
	return &Move{
		Cluster: config, Namespace: DefaultNamespace, To: "cluster", Version: "test",
		Check: func(context.Context, *rest.Config) error { return nil }, Idle: func(context.Context) error { return nil },
		Say: func(string, ...any) {},
	}
}

func keysetSecret(content string) []*corev1.Secret {
	return []*corev1.Secret{{ObjectMeta: metav1.ObjectMeta{Name: "sluice-keyset"}, Data: map[string][]byte{"keyset.json": []byte(content)}}}
}

// used fills a hub with an instance that was changed twice, one that is being deleted, and a journal.
func used(t *testing.T, h *Hub) {
	t.Helper()
	client := dynamicClient(t, h.Config)
	instances := client.Resource(instanceResource).Namespace(DefaultNamespace)
	for _, name := range []string{"changed", "leaving"} {
		i := order(name)
		i.SetFinalizers([]string{"sluice.dev/finalizer"})
		i.SetLabels(map[string]string{"stays": "yes", "goes": "yes"})
		i, err := instances.Apply(t.Context(), name, i, metav1.ApplyOptions{FieldManager: "operator"})
		for _, plan := range []string{"plan-2", "plan-3"} {
			if err == nil {
				_ = unstructured.SetNestedField(i.Object, plan, "spec", "desired", "planID")
				i, err = instances.Update(t.Context(), i, metav1.UpdateOptions{})
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		i.Object["status"] = map[string]any{
			"observedGeneration": i.GetGeneration(),
			"operation":          map[string]any{"type": "update", "generation": i.GetGeneration(), "state": "succeeded", "startedAt": "2026-01-01T00:00:00Z"},
			"conditions": []any{map[string]any{
				"type": "Placed", "status": "True", "reason": "Chosen", "message": "", "observedGeneration": int64(1), "lastTransitionTime": "2026-01-01T00:00:00Z",
			}},
		}
		if _, err := instances.UpdateStatus(t.Context(), i, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if name == "leaving" {
			if err := instances.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		journal := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "sluice.dev/v1alpha1", "kind": "Journal", "metadata": map[string]any{"name": string(i.GetUID())},
			"spec": map[string]any{"kind": "ServiceInstance", "name": name, "events": []any{}},
		}}
		if _, err := client.Resource(journalResource).Namespace(DefaultNamespace).Create(t.Context(), journal, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// instancesOf returns the instances of a hub by name.
func instancesOf(t *testing.T, config *rest.Config) map[string]*unstructured.Unstructured {
	t.Helper()
	list, err := dynamicClient(t, config).Resource(instanceResource).Namespace(DefaultNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*unstructured.Unstructured{}
	for i := range list.Items {
		all[list.Items[i].GetName()] = &list.Items[i]
	}
	return all
}

// wantKnown compares instances with what they were, as those know them who know them from before.
func wantKnown(t *testing.T, config *rest.Config, before map[string]*unstructured.Unstructured) {
	t.Helper()
	now := instancesOf(t, config)
	for name, was := range before {
		is := now[name]
		if is == nil {
			t.Fatalf("%s is not there", name)
		}
		created, first := v1alpha1.CreatedOf(is), v1alpha1.CreatedOf(was)
		if v1alpha1.UIDOf(is) != v1alpha1.UIDOf(was) || !created.Equal(&first) {
			t.Errorf("%s is %s of %s, was %s of %s", name, v1alpha1.UIDOf(is), created, v1alpha1.UIDOf(was), first)
		}
		if !reflect.DeepEqual(is.GetFinalizers(), was.GetFinalizers()) || (is.GetDeletionTimestamp() == nil) != (was.GetDeletionTimestamp() == nil) ||
			!reflect.DeepEqual(is.Object["spec"], was.Object["spec"]) {
			t.Errorf("%s is\n%v\nwas\n%v", name, is.Object, was.Object)
		}
		counts := func(o *unstructured.Unstructured) (counts [3]int64) {
			counts[0] = o.GetGeneration() + v1alpha1.GenerationsBefore(o)
			for i, path := range [][]string{counted[0], counted[1]} {
				n, _, _ := unstructured.NestedInt64(o.Object, path...)
				counts[i+1] = n + v1alpha1.GenerationsBefore(o)
			}
			return counts
		}
		if counts(is) != counts(was) {
			t.Errorf("the generations of %s are %v, were %v", name, counts(is), counts(was))
		}
	}
}

// TestMoveIsKilledAfterEachWrite: the process that moves a hub to a cluster dies after each of its writes, and is started
// again. At no time can a Sluice start in both homes, or in one that has a part of the hub. In the end all is there, and
// it moves back.
func TestMoveIsKilledAfterEachWrite(t *testing.T) {
	cluster := controlplane.Start(t, controlplane.Options{Name: "hub", APIServerOnly: true})
	dir := t.TempDir()
	source := startHub(t, dir)
	used(t, source)
	before := instancesOf(t, source.Config)
	if err := markedRestored(t, source); err != nil {
		t.Fatal(err)
	}

	config := cluster.Config()
	refused := func(says string, m *Move, from *Hub, keys string) {
		t.Helper()
		if _, err := m.toCluster(t.Context(), from.Config, keysetSecret(keys)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q in it", err, says)
		}
		if from == source && readTestHome(t, source.Config).check() != nil {
			t.Error("the refused move has marked the hub")
		}
	}
	refused(installRemedy, moveTo(config), source, "keys")
	if err := install(t, config); err != nil {
		t.Fatal(err)
	}
	refused("kubectl create namespace", moveTo(config), source, "keys")
	if err := ofAnotherVersion(t, config); err != nil {
		t.Fatal(err)
	}
	refused("charts.sluice.dev in the new home are those of another version", moveTo(config), source, "keys")
	if err := install(t, config); err != nil {
		t.Fatal(err)
	}
	core := kubernetes.NewForConfigOrDie(config).CoreV1()
	if _, err := core.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: DefaultNamespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	other := keysetSecret("others")[0]
	if _, err := core.Secrets(DefaultNamespace).Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	refused("another keyset.json", moveTo(config), source, "keys")
	if err := core.Secrets(DefaultNamespace).Delete(t.Context(), other.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	served := moveTo(config)
	served.Idle = func(context.Context) error { return errors.New("it is served") }
	refused("it is served", served, source, "keys")
	stranger := moveTo(config)
	stranger.Check = func(context.Context, *rest.Config) error { return errors.New("another keyset") }
	refused("another keyset", stranger, source, "keys")
	dry := moveTo(config)
	dry.DryRun = true
	if moved, err := dry.toCluster(t.Context(), source.Config, keysetSecret("keys")); moved != nil || err != nil || readTestHome(t, config).arriving != "" {
		t.Errorf("a dry run: %v, %v", moved, err)
	}

	deaths := 0
	for ; ; deaths++ {
		process := &mortal{}
		moved, err := moveTo(process.on(config)).toCluster(t.Context(), process.on(source.Config), keysetSecret("keys"))
		here, there := readTestHome(t, source.Config), readTestHome(t, config)
		n, countErr := moveTo(config).count(t.Context(), config)
		if countErr != nil {
			t.Fatal(countErr)
		}
		if err == nil {
			if !moved.Already {
				t.Errorf("the last process says %+v", moved)
			}
			break
		}
		if !errors.Is(err, errDied) && !strings.Contains(err.Error(), errDied.Error()) {
			t.Fatalf("after %d deaths: %v", deaths, err)
		}
		if starts := there.check() == nil; n > 0 && (here.check() == nil || starts && there.id != here.id) {
			t.Fatalf("after %d deaths, with %d resources there: here %+v, there %+v", deaths, n, here, there)
		}
		if deaths > 100 {
			t.Fatal("it does not end")
		}
	}
	if deaths < 12 {
		t.Errorf("it died %d times only", deaths)
	}
	wantKnown(t, config, before)
	if mark, err := Restored(t.Context(), config); err != nil || mark == nil {
		t.Errorf("the mark of a restored hub: %v, %v", mark, err)
	}
	if secret, err := core.Secrets(DefaultNamespace).Get(t.Context(), other.Name, metav1.GetOptions{}); err != nil || string(secret.Data["keyset.json"]) != "keys" {
		t.Errorf("the keyset: %v, %v", secret, err)
	}
	changed := order("changed")
	changed.SetLabels(map[string]string{"stays": "yes"})
	changed.SetFinalizers(before["changed"].GetFinalizers())
	_ = unstructured.SetNestedField(changed.Object, "plan-3", "spec", "desired", "planID")
	applied, err := dynamicClient(t, config).Resource(instanceResource).Namespace(DefaultNamespace).Apply(t.Context(), "changed", changed, metav1.ApplyOptions{FieldManager: "operator", Force: true})
	if err != nil || len(applied.GetLabels()) != 1 {
		t.Errorf("what is no longer applied stays: %v, %v", applied.GetLabels(), err)
	}

	again := startHub(t, t.TempDir())
	used(t, again)
	refused("has, or had, a hub", moveTo(config), again, "keys")
	if err := source.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), Options{DataDir: dir, Embedded: true}); err == nil || !strings.Contains(err.Error(), "moved from here to the cluster, at") {
		t.Errorf("a start in the former home: %v", err)
	}
	movesBack(t, config, source.ID, before)
}

// markedRestored marks a hub as one that was restored.
func markedRestored(t *testing.T, h *Hub) error {
	t.Helper()
	now := time.Now().UTC().Format(time.RFC3339)
	return annotate(t.Context(), h.Config, map[string]any{annotationRestored: now, annotationFrom: now})
}

func readTestHome(t *testing.T, config *rest.Config) *home {
	t.Helper()
	h, err := readHome(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// install applies this version's definitions.
func install(t *testing.T, config *rest.Config) error {
	t.Helper()
	h := &Hub{Config: rest.CopyConfig(config)}
	crds, err := readCRDs(charts.CRDs)
	if err != nil {
		return err
	}
	return errors.Join(applyCRDs(t.Context(), h.Config, crds), awaitServed(t.Context(), h.Config, crds))
}

// ofAnotherVersion changes a definition.
func ofAnotherVersion(t *testing.T, config *rest.Config) error {
	t.Helper()
	definitions, err := definitionsOf(config)
	if err != nil {
		return err
	}
	crd, err := definitions.Get(t.Context(), "charts.sluice.dev", metav1.GetOptions{})
	if err != nil {
		return err
	}
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Description = "of another version"
	_, err = definitions.Update(t.Context(), crd, metav1.UpdateOptions{})
	return err
}

// TestGenerationsAreCounted: every field of the API that holds a generation of its own resource is made smaller by a move.
func TestGenerationsAreCounted(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	var walk func(of reflect.Type, path []string)
	walk = func(of reflect.Type, path []string) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || !strings.HasSuffix(of.PkgPath(), "api/v1alpha1") || len(path) > 6 {
			return
		}
		if of == reflect.TypeFor[v1alpha1.PolicyInForce]() { // of another resource, and counted from its first life on
			return
		}
		for i := range of.NumField() {
			field := of.Field(i)
			name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			next := append(slices.Clone(path), name)
			if name == "" || options == "inline" {
				next = path
			}
			if name == "generation" || name == observed {
				found[strings.Join(next, ".")] = true
			}
			walk(field.Type, next)
		}
	}
	for _, kind := range scheme.KnownTypes(v1alpha1.GroupVersion) {
		if strings.HasSuffix(kind.PkgPath(), "api/v1alpha1") && !strings.HasSuffix(kind.Name(), "List") {
			walk(kind, nil)
		}
	}
	want := map[string]bool{}
	for _, path := range counted {
		want[strings.Join(path, ".")] = true
	}
	if !reflect.DeepEqual(found, want) {
		t.Errorf("the API has %s, a move counts %s", fmt.Sprint(found), fmt.Sprint(want))
	}
}
