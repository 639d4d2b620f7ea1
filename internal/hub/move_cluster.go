package hub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// ToCluster moves the hub from the folder to the cluster, and the files that belong to it into Secrets. No Sluice may run in
// the folder.
func (m *Move) ToCluster(ctx context.Context, secrets []*corev1.Secret) (_ *Moved, err error) {
	if hasNoHub(m.DataDir) == nil {
		return nil, fmt.Errorf("there is no hub in %s", m.DataDir)
	}
	source, err := Start(ctx, Options{DataDir: m.DataDir, Embedded: true, Namespace: m.Namespace, moving: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, source.Stop()) }()
	return m.toCluster(ctx, source.Config, secrets)
}

func (m *Move) toCluster(ctx context.Context, source *rest.Config, secrets []*corev1.Secret) (*Moved, error) {
	from, err := readHome(ctx, source)
	if err != nil {
		return nil, err
	}
	if err := m.leaves(from); err != nil {
		return nil, err
	}
	if err := m.hasDefinitions(ctx); err != nil {
		return nil, err
	}
	to, err := readHome(ctx, m.Cluster)
	if err != nil {
		return nil, err
	}
	if from.movedTo != "" && to.id == from.id && to.arriving == "" {
		return &Moved{Already: true}, nil
	}
	if err := m.mayArrive(ctx, from, to); err != nil {
		return nil, err
	}
	if err := m.Check(ctx, source); err != nil {
		return nil, err
	}
	m.Say("Reading the hub")
	p, err := m.pack(ctx, source, BackupOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the hub: %w", err)
	}
	defer p.file.Close()
	a, err := newArrivals(m)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(m.store(ctx, secrets, true), a.each(ctx, p, "checked", a.try)); err != nil {
		return nil, fmt.Errorf("the cluster refuses what the hub has, and nothing was changed: %w", err)
	}
	if err := m.announce(p); err != nil || m.DryRun {
		return nil, err
	}
	if to.arriving == "" {
		marks := map[string]any{annotationArriving: from.id}
		maps.Copy(marks, from.restored)
		if err := annotate(ctx, m.Cluster, marks); err != nil {
			return nil, fmt.Errorf("mark the cluster as the hub's new home: %w", err)
		}
	}
	if from.movedTo == "" {
		if err := leave(ctx, source, m.To); err != nil {
			return nil, fmt.Errorf("mark the hub as moved: %w", err)
		}
	}
	m.Say("The hub's home is the %s from now on: no Sluice starts in the former one", m.To)
	return m.arrive(ctx, from, p, a, secrets)
}

// arrive fills the new home, which is marked, and lets Sluice start there.
func (m *Move) arrive(ctx context.Context, from *home, p *packed, a *arrivals, secrets []*corev1.Secret) (*Moved, error) {
	if err := m.store(ctx, secrets, false); err != nil {
		return nil, fmt.Errorf("%w; remove what is in the way and repeat the command", err)
	}
	if err := a.each(ctx, p, "written", a.put); err != nil {
		return nil, fmt.Errorf("write the resources: %w; repeat the command, it goes on", err)
	}
	if err := a.verify(ctx, p); err != nil {
		return nil, fmt.Errorf("compare the new home with the former one: %w; repeat the command, it goes on", err)
	}
	if err := m.Idle(ctx); err != nil {
		return nil, err
	}
	if err := annotate(ctx, m.Cluster, map[string]any{annotationArriving: nil, v1alpha1.AnnotationUID: from.id}); err != nil {
		return nil, fmt.Errorf("hand over: %w; repeat the command, it goes on", err)
	}
	return &Moved{BackedUp: *p.BackedUp}, nil
}

// hasDefinitions returns an error with the remedy unless the cluster has the definitions of this version.
func (m *Move) hasDefinitions(ctx context.Context) error {
	differ, err := CompareDefinitions(ctx, m.Cluster)
	if err != nil {
		return err
	}
	if len(differ) > 0 {
		return fmt.Errorf("the definitions %s in the new home are those of another version of Sluice; %s", strings.Join(differ, ", "), installRemedy)
	}
	client, err := kubernetes.NewForConfig(m.Cluster)
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Namespaces().Get(ctx, m.Namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("namespace %s does not exist; create it with: kubectl create namespace %[1]s", m.Namespace)
	}
	return err
}

// mayArrive returns an error with the remedy if the cluster has a hub, or awaits another one.
func (m *Move) mayArrive(ctx context.Context, from, to *home) error {
	if to.arriving != "" && to.arriving != from.id {
		return fmt.Errorf("another hub, %s, is moving to that cluster: %w", to.arriving, to.check())
	}
	if to.arriving == "" {
		n, err := m.count(ctx, m.Cluster)
		if err != nil {
			return fmt.Errorf("read what the cluster has: %w", err)
		}
		if n > 0 || to.movedTo != "" || to.id != to.uid {
			return fmt.Errorf("the cluster has, or had, a hub (%d resources of Sluice in all namespaces): "+
				"move to another cluster, or uninstall it there, with its definitions (docs/operating.md)", n)
		}
	}
	return m.Idle(ctx)
}

// store creates Secrets, or with try only checks that they can be. It leaves those that are as they should be.
func (m *Move) store(ctx context.Context, secrets []*corev1.Secret, try bool) error {
	client, err := kubernetes.NewForConfig(m.Cluster)
	if err != nil {
		return err
	}
	create := metav1.CreateOptions{}
	if try {
		create.DryRun = []string{metav1.DryRunAll}
	}
	for _, want := range secrets {
		have, err := client.CoreV1().Secrets(m.Namespace).Get(ctx, want.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			have, err = client.CoreV1().Secrets(m.Namespace).Create(ctx, want, create)
		}
		if err != nil {
			return fmt.Errorf("write Secret %s: %w", want.Name, err)
		}
		for key, content := range want.Data {
			if string(have.Data[key]) != string(content) {
				return fmt.Errorf("the Secret %s there has another %s than this hub: delete the Secret", want.Name, key)
			}
		}
	}
	return nil
}

// fieldsOf returns a field of a resource that holds fields; nil if it has none.
func fieldsOf(o *unstructured.Unstructured, path ...string) map[string]any {
	fields, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	as, _ := fields.(map[string]any)
	return as
}
