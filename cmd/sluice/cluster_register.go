package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/placement/capi"
	"github.com/sluice-dev/sluice/placement/kube"
	"github.com/sluice-dev/sluice/placement/liqo"
)

// changeCluster applies a change to a member cluster, or creates it, and returns the hub's
// version. It is atomic, and retries if others change the cluster meanwhile. It refuses a
// cluster that is being removed.
func changeCluster(ctx context.Context, c client.Client, key client.ObjectKey, change func(*v1alpha1.MemberCluster) error, dryRun bool) (cluster *v1alpha1.MemberCluster, err error) {
	again := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	err = retry.OnError(retry.DefaultRetry, again, func() error {
		cluster = &v1alpha1.MemberCluster{}
		err := c.Get(ctx, key, cluster)
		isNew := apierrors.IsNotFound(err)
		switch {
		case isNew:
			cluster = &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		case err != nil:
			return err
		case !cluster.DeletionTimestamp.IsZero():
			return errors.New("it is being removed; add it again when it has left")
		}
		if err := change(cluster); err != nil {
			return err
		}
		if isNew {
			create := []client.CreateOption{client.FieldOwner(fieldOwner)}
			if dryRun {
				create = append(create, client.DryRunAll)
			}
			return c.Create(ctx, cluster, create...)
		}
		update := []client.UpdateOption{client.FieldOwner(fieldOwner)}
		if dryRun {
			update = append(update, client.DryRunAll)
		}
		return c.Update(ctx, cluster, update...)
	})
	return cluster, err
}

// registration registers a member cluster, or updates a registered one.
type registration struct {
	hub *hubFlags
	c   client.Client
	out io.Writer
	// admin has an administrator's rights on the member cluster.
	admin    *rest.Config
	manifest kube.ManifestOptions
	// otherServer reports that the user asked for the URL in admin, even if Sluice knows another
	// one.
	otherServer bool
	patience    time.Duration
}

// register asks the hub by dry run whether it accepts the change, registers Sluice on the
// member cluster, and then writes the change and Sluice's access to the hub. Each step is
// idempotent.
func (r *registration) register(ctx context.Context, name string, change func(*v1alpha1.MemberCluster) error) error {
	key := client.ObjectKey{Namespace: r.hub.namespace, Name: name}
	planned, err := changeCluster(ctx, r.c, key, func(cluster *v1alpha1.MemberCluster) error {
		if err := change(cluster); err != nil {
			return err
		}
		if access := &cluster.Spec.Access; access.SealedKubeconfig == nil && access.SecretRef == nil {
			access.SealedKubeconfig = []byte("not known yet") // a placeholder: the hub requires an access
		}
		return nil
	}, true)
	if err != nil {
		return fmt.Errorf("cluster %s: nothing was done: %w", name, err)
	}
	if err := r.sameCluster(ctx, planned); err != nil {
		return fmt.Errorf("cluster %s: nothing was done: %w", name, err)
	}
	manifest, err := forDriver(r.manifest, planned)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.out, "cluster %s: applying Sluice's service account and permissions on %s\n", name, r.admin.Host)
	kubeconfig, err := kube.Register(ctx, r.admin, manifest)
	if err != nil {
		return fmt.Errorf("cluster %s: %w", name, err)
	}
	access, err := storeAccess(ctx, r.hub, r.c, planned, kubeconfig)
	if err != nil {
		return fmt.Errorf("cluster %s: %w", name, err)
	}
	cluster, err := changeCluster(ctx, r.c, key, func(cluster *v1alpha1.MemberCluster) error {
		cluster.Spec.Access = access
		return change(cluster)
	}, false)
	if err != nil {
		return fmt.Errorf("cluster %s: write it to the hub: %w", name, err)
	}
	if r.patience == 0 {
		fmt.Fprintf(r.out, "cluster %s: registered\n", name)
		return nil
	}
	return awaitCluster(ctx, r.out, r.c, cluster, r.patience)
}

// sameCluster refuses an administrator of a cluster other than the one that is registered
// by this name. Unless another URL was asked for, it also makes Sluice use the known URL.
func (r *registration) sameCluster(ctx context.Context, known *v1alpha1.MemberCluster) error {
	if known.Status.UID == "" {
		return nil
	}
	if known.Status.Server != "" && !r.otherServer {
		r.admin = rest.CopyConfig(r.admin)
		r.admin.Host = known.Status.Server
	}
	admin, err := client.New(r.admin, client.Options{})
	if err != nil {
		return fmt.Errorf("connect to %s: %w", r.admin.Host, err)
	}
	var system corev1.Namespace
	if err := admin.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &system); err != nil {
		return fmt.Errorf("identify the cluster at %s: %w (--server names another URL)", r.admin.Host, err)
	}
	if string(system.UID) != known.Status.UID {
		return fmt.Errorf("the cluster at %s is another one than the one registered by this name (namespace kube-system has the UID %s, not %s): "+
			"add it by another name, or remove the one that is registered first", r.admin.Host, system.UID, known.Status.UID)
	}
	return nil
}

// forDriver returns the options for Sluice's permissions on a member cluster with its
// driver.
func forDriver(o kube.ManifestOptions, cluster *v1alpha1.MemberCluster) (kube.ManifestOptions, error) {
	switch cluster.Spec.Driver {
	case v1alpha1.DriverKube:
	case v1alpha1.DriverCAPI:
		o.Rules, o.TenantRules = capi.Rules(), capi.TenantRules()
	case v1alpha1.DriverLiqo:
		namespace := ""
		if cluster.Spec.Liqo != nil {
			namespace = cluster.Spec.Liqo.Namespace
		}
		return liqo.Manifest(o, namespace, len(cluster.Spec.Consumers) == 0), nil
	default:
		return o, fmt.Errorf("driver %q: want kube, capi or liqo", cluster.Spec.Driver)
	}
	return o, nil
}

// storeAccess stores the member cluster's kubeconfig: sealed with the embedded hub's
// keyset, which is on this machine, or in a Secret of the hub.
func storeAccess(ctx context.Context, hub *hubFlags, c client.Client, cluster *v1alpha1.MemberCluster, kubeconfig []byte) (v1alpha1.ClusterAccess, error) {
	if hub.embedded() {
		keys, err := seal.Open(hub.keysetPath())
		if err != nil {
			return v1alpha1.ClusterAccess{}, err
		}
		sealed, err := keys.Seal(kubeconfig, member.Owner(cluster.Namespace, cluster.Name))
		if err != nil {
			return v1alpha1.ClusterAccess{}, fmt.Errorf("seal its kubeconfig: %w", err)
		}
		return v1alpha1.ClusterAccess{SealedKubeconfig: sealed}, nil
	}
	secret := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: accessSecret(cluster.Name), Namespace: cluster.Namespace},
		Data:       map[string][]byte{"kubeconfig": kubeconfig},
	}
	if err := apply(ctx, c, secret); err != nil {
		return v1alpha1.ClusterAccess{}, fmt.Errorf("store its kubeconfig in Secret %s: %w", secret.Name, err)
	}
	return v1alpha1.ClusterAccess{SecretRef: &v1alpha1.SecretKeyReference{Name: secret.Name, Key: "kubeconfig"}}, nil
}

// accessSecret returns the name of the Secret with the kubeconfig of a member cluster, on a
// hub that has Secrets.
func accessSecret(cluster string) string { return "sluice-cluster-" + cluster }

// awaitCluster waits until the controller reports the cluster as ready, and prints what it
// waits for.
func awaitCluster(ctx context.Context, w io.Writer, c client.Client, cluster *v1alpha1.MemberCluster, patience time.Duration) error {
	generation, told := cluster.Generation, ""
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(cluster), cluster); err != nil {
			return false, err
		}
		ready := viewCondition(cluster.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.generation < generation {
			return false, nil
		}
		if ready.message != told && !ready.isTrue {
			told = ready.message
			fmt.Fprintf(w, "cluster %s: not ready yet: %s\n", cluster.Name, told)
		}
		return ready.isTrue, nil
	})
	if wait.Interrupted(err) {
		if told == "" {
			told = "no controller has looked at it: is `sluice serve` running?"
		}
		return fmt.Errorf("cluster %s: registered, but not ready after %s: %s", cluster.Name, patience, told)
	}
	if err != nil {
		return fmt.Errorf("cluster %s: wait until it is ready: %w", cluster.Name, err)
	}
	fmt.Fprintf(w, "cluster %s: ready, %s, allocatable %s\n", cluster.Name, count(int(cluster.Status.Nodes), "node"), quantities(cluster.Status.Allocatable))
	return nil
}
