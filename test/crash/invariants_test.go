//go:build faults

package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/journal/journaltest"
)

// delivered checks that the instance is on so many clusters, exactly those of its
// decision, and each with the quota that is reserved there.
func (i *instance) delivered(ctx context.Context, clusters int) error {
	seen, err := i.cleaned(ctx)
	if err != nil {
		return err
	}
	if seen.Status.Delivered == nil {
		return fmt.Errorf("lost: %s is said to be delivered and the hub does not know", i.id)
	}
	decision := seen.Status.Delivered.Decision
	if len(decision.Placements) != clusters {
		return fmt.Errorf("%s is placed on %d clusters, want %d", i.id, len(decision.Placements), clusters)
	}
	return i.each(func(cluster string, m *member) error {
		namespaces, err := m.namespacesOf(ctx, i.name)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(decision.Placements, func(p v1alpha1.Placement) bool { return p.Cluster == cluster })
		switch {
		case at < 0 && len(namespaces) > 0:
			return fmt.Errorf("doubled: namespace %s of %s is there and not in the decision", namespaces[0], i.id)
		case at < 0:
			return nil
		case len(namespaces) != 1:
			return fmt.Errorf("%s is to be there and has the namespaces %v", i.id, namespaces)
		}
		quota, err := m.CoreV1().ResourceQuotas(namespaces[0]).Get(ctx, "sluice", metav1.GetOptions{})
		if err != nil {
			return err
		}
		reserved := decision.Placements[at].Reserved[corev1.ResourceCPU]
		if hard := quota.Status.Hard[corev1.ResourceLimitsCPU]; hard.Cmp(reserved) != 0 {
			return fmt.Errorf("%s has a quota of %s cpu in force and %s reserved", i.id, hard.String(), reserved.String())
		}
		return nil
	})
}

// cleaned waits until nothing is left of the instance that it does not need any more, as its status says, and returns it.
func (i *instance) cleaned(ctx context.Context) (seen *v1alpha1.ServiceInstance, err error) {
	err = until(ctx, func(ctx context.Context) error {
		if seen, err = i.inHub(ctx); err != nil {
			return err
		}
		if left := seen.Status.LeftClusters(); len(left) > 0 {
			return fmt.Errorf("%s has left %v, which are not cleaned", i.id, left)
		}
		return nil
	})
	return seen, err
}

// undelivered checks that a failed provision has left nothing, and holds nothing.
func (i *instance) undelivered(ctx context.Context) error {
	seen, err := i.cleaned(ctx)
	if err != nil {
		return err
	}
	if seen.Status.Decision != nil || seen.Status.Delivered != nil {
		return fmt.Errorf("%s has failed and still holds capacity", i.id)
	}
	return i.each(func(_ string, m *member) error { return none("namespace", i.id)(m.namespacesOf(ctx, i.name)) })
}

// gone checks that nothing of the instance is left behind.
func (i *instance) gone(ctx context.Context) error {
	err := i.withHub(ctx, func(hub client.Client) error { return i.leftInHub(ctx, hub) })
	if err != nil {
		return err
	}
	return i.each(func(_ string, m *member) error { return none("namespace", i.id)(m.namespacesOf(ctx, i.name)) })
}

func (i *instance) leftInHub(ctx context.Context, hub client.Client) error {
	var instances v1alpha1.ServiceInstanceList
	var bindings v1alpha1.ServiceBindingList
	if err := hub.List(ctx, &instances, client.InNamespace(namespace)); err != nil {
		return err
	}
	if err := hub.List(ctx, &bindings, client.InNamespace(namespace)); err != nil {
		return err
	}
	for _, one := range instances.Items {
		if one.Name == i.name {
			return fmt.Errorf("left behind: ServiceInstance %s of %s", one.Name, i.id)
		}
	}
	for _, one := range bindings.Items {
		if one.Spec.InstanceName == i.name {
			return fmt.Errorf("left behind: ServiceBinding %s of %s", one.Spec.BindingID, i.id)
		}
	}
	return nil
}

// accounts checks that a binding has an account on so many clusters; with none, that
// the binding is gone from the hub too.
func (i *instance) accounts(ctx context.Context, binding string, clusters int) error {
	if err := i.accountsOnClusters(ctx, binding, clusters); err != nil || clusters > 0 {
		return err
	}
	return i.withHub(ctx, func(hub client.Client) error {
		err := hub.Get(ctx, client.ObjectKey{Namespace: namespace, Name: binding}, &v1alpha1.ServiceBinding{})
		if err == nil {
			return fmt.Errorf("left behind: ServiceBinding %s", binding)
		}
		return client.IgnoreNotFound(err)
	})
}

// accountsOnClusters checks that a binding has an account on so many clusters.
func (i *instance) accountsOnClusters(ctx context.Context, binding string, clusters int) error {
	found := 0
	err := i.each(func(_ string, m *member) error {
		options := metav1.ListOptions{LabelSelector: v1alpha1.LabelBinding + "=" + binding}
		accounts, err := m.CoreV1().ServiceAccounts("").List(ctx, options)
		if err != nil {
			return err
		}
		roles, err := m.RbacV1().RoleBindings("").List(ctx, options)
		if err != nil {
			return err
		}
		found += len(accounts.Items)
		if len(accounts.Items) != len(roles.Items) {
			return fmt.Errorf("left behind: binding %s has %d ServiceAccounts and %d RoleBindings", binding, len(accounts.Items), len(roles.Items))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if found != clusters {
		return fmt.Errorf("binding %s has %d ServiceAccounts, want %d", binding, found, clusters)
	}
	return nil
}

// inHub is the instance as the hub has it.
func (i *instance) inHub(ctx context.Context) (*v1alpha1.ServiceInstance, error) {
	seen := &v1alpha1.ServiceInstance{}
	err := i.withHub(ctx, func(hub client.Client) error {
		return hub.Get(ctx, client.ObjectKey{Namespace: namespace, Name: i.name}, seen)
	})
	if err != nil {
		return nil, fmt.Errorf("lost: %s in the hub: %w", i.id, err)
	}
	return seen, nil
}

// namespacesOf names the namespaces that carry an instance.
func (m *member) namespacesOf(ctx context.Context, instance string) ([]string, error) {
	selector := v1alpha1.LabelHub
	if instance != "" {
		selector = v1alpha1.LabelInstance + "=" + instance
	}
	list, err := m.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, one := range list.Items {
		names = append(names, one.Name)
	}
	return names, nil
}

func none(what, of string) func([]string, error) error {
	return func(names []string, err error) error {
		if err == nil && len(names) > 0 {
			err = fmt.Errorf("left behind: %s %s of %s", what, names[0], of)
		}
		return err
	}
}

// occupy makes a namespace of the instance's name on every cluster, somebody else's.
func (i *instance) occupy(ctx context.Context) error {
	foreign := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.MemberNamespace(i.name)}}
	return i.each(func(_ string, m *member) error {
		_, err := m.CoreV1().Namespaces().Create(ctx, foreign, metav1.CreateOptions{})
		return err
	})
}

// vacate checks that those namespaces were left alone, and ends them at once.
func (i *instance) vacate(ctx context.Context) error {
	return i.each(func(_ string, m *member) error {
		namespaces := m.CoreV1().Namespaces()
		foreign, err := namespaces.Get(ctx, v1alpha1.MemberNamespace(i.name), metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("somebody else's namespace: %w", err)
		}
		if !foreign.DeletionTimestamp.IsZero() || len(foreign.Labels) > 1 { // one is Kubernetes' own
			return fmt.Errorf("somebody else's namespace was touched: %v", foreign.ObjectMeta)
		}
		if err := namespaces.Delete(ctx, foreign.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		foreign.Spec.Finalizers, foreign.ResourceVersion = nil, ""
		_, err = namespaces.Finalize(ctx, foreign, metav1.UpdateOptions{})
		return client.IgnoreNotFound(err)
	})
}

// empty checks that no instance or binding is left anywhere, except their events.
func (b *bed) empty(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	err := b.withHub(ctx, func(hub client.Client) error {
		for _, list := range []client.ObjectList{&v1alpha1.ServiceInstanceList{}, &v1alpha1.ServiceBindingList{}} {
			if err := hub.List(ctx, list, client.InNamespace(namespace)); err != nil {
				return err
			}
			if n := meta.LenList(list); n > 0 {
				return fmt.Errorf("left behind in the hub: %d in a %T", n, list)
			}
		}
		lives, err := journaltest.Audit(ctx, hub, namespace, func(types.UID) bool { return false })
		if err == nil && lives == 0 {
			err = errors.New("nothing has happened, by the journals")
		}
		return err
	})
	if err != nil {
		return err
	}
	return b.each(func(_ string, m *member) error { return none("namespace", "Sluice")(m.namespacesOf(ctx, "")) })
}

// bound is the answer to a bind.
type bound struct {
	name     string
	clusters []boundCluster
}

type boundCluster struct {
	Name                 string `json:"name"`
	Server               string `json:"server"`
	Namespace            string `json:"namespace"`
	Token                string `json:"token"`
	CertificateAuthority string `json:"certificate_authority"`
}

// read takes the credentials from a response.
func (c *bound) read(a answer) error {
	text, err := json.Marshal(a.body["credentials"])
	if err != nil {
		return err
	}
	var credentials struct{ Clusters []boundCluster }
	if err := json.Unmarshal(text, &credentials); err != nil {
		return fmt.Errorf("read credentials: %w", err)
	}
	if len(credentials.Clusters) == 0 {
		return fmt.Errorf("no credentials in the answer %v", a)
	}
	c.clusters = credentials.Clusters
	return nil
}

// use lists pods with the credentials, on one cluster.
func (c boundCluster) use(ctx context.Context) error {
	consumer, err := kubernetes.NewForConfig(&rest.Config{
		Host: c.Server, BearerToken: c.Token, TLSClientConfig: rest.TLSClientConfig{CAData: []byte(c.CertificateAuthority)},
	})
	if err != nil {
		return err
	}
	_, err = consumer.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{})
	return err
}

// works checks that the credentials work, everywhere, now.
func (c *bound) works(ctx context.Context) error {
	for _, cluster := range c.clusters {
		if err := cluster.use(ctx); err != nil {
			return fmt.Errorf("use the credentials of %s on %s: %w", c.name, cluster.Name, err)
		}
	}
	return nil
}

// refused waits until the tokens are; API servers remember good ones for ten seconds.
func (c *bound) refused(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for _, cluster := range c.clusters {
		err := until(ctx, func(ctx context.Context) error {
			if err := cluster.use(ctx); !apierrors.IsUnauthorized(err) {
				return fmt.Errorf("left behind: the token of %s is not refused on %s: %v", c.name, cluster.Name, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
