package registration

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/placement/capi"
	"github.com/sluice-dev/sluice/placement/kube"
	"github.com/sluice-dev/sluice/placement/liqo"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// Registration registers a member cluster, or updates a registered one.
type Registration struct {
	// Hub holds the cluster's resource, in the namespace of the key that Register is given.
	Hub Hub
	// Store keeps Sluice's access.
	Store Store
	// Admin has an administrator's rights on the cluster.
	Admin *rest.Config
	// Manifest has the options for Sluice's permissions there; the driver adds its own.
	Manifest kube.ManifestOptions
	// OtherServer means that Admin has the URL to use, even if Sluice knows another one.
	OtherServer bool
	// Progress is called with each step that takes a while.
	Progress func(step string)
}

// Register asks the hub by dry run whether it accepts the change, registers Sluice on the
// cluster, and then writes the change and Sluice's access to the hub. It returns the resource
// as written. Each step is idempotent. It blocks as [kube.Register] does. An error names the
// cluster, and says so if nothing was done.
func (r *Registration) Register(ctx context.Context, key client.ObjectKey, change func(*v1alpha1.MemberCluster) error) (*v1alpha1.MemberCluster, error) {
	planned, err := r.Hub.change(ctx, key, func(cluster *v1alpha1.MemberCluster) error {
		if err := change(cluster); err != nil {
			return err
		}
		if access := &cluster.Spec.Access; access.SealedKubeconfig == nil && access.SecretRef == nil {
			access.SealedKubeconfig = []byte("not known yet") // a placeholder: the hub requires an access
		}
		return nil
	}, true)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: nothing was done: %w", key.Name, err)
	}
	admin, err := r.identify(ctx, planned)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: nothing was done: %w", key.Name, err)
	}
	manifest, err := Permissions(r.Manifest, planned)
	if err != nil {
		return nil, err
	}
	r.Progress("applying Sluice's service account and permissions on " + admin.Host)
	kubeconfig, err := kube.Register(ctx, admin, manifest)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", key.Name, err)
	}
	access, err := r.Store.Store(ctx, planned, kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", key.Name, err)
	}
	cluster, err := r.Hub.Change(ctx, key, func(cluster *v1alpha1.MemberCluster) error {
		cluster.Spec.Access = access
		return change(cluster)
	})
	if err != nil {
		return nil, fmt.Errorf("cluster %s: write it to the hub: %w", key.Name, err)
	}
	return cluster, nil
}

// identify returns the configuration to register with. It refuses an administrator of a cluster
// other than the one that is registered by this name. Unless another URL is to be used, the
// configuration has the known one.
func (r *Registration) identify(ctx context.Context, known *v1alpha1.MemberCluster) (*rest.Config, error) {
	if known.Status.UID == "" {
		return r.Admin, nil
	}
	config := rest.CopyConfig(r.Admin)
	if known.Status.Server != "" && !r.OtherServer {
		config.Host = known.Status.Server
	}
	admin, err := client.New(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	var system corev1.Namespace
	if err := admin.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &system); err != nil {
		return nil, fmt.Errorf("identify the cluster at %s: %w (--server names another URL)", config.Host, err)
	}
	if string(system.UID) != known.Status.UID {
		return nil, fmt.Errorf("the cluster at %s is another one than the one registered by this name (namespace kube-system has the UID %s, not %s): "+
			"add it by another name, or remove the one that is registered first", config.Host, system.UID, known.Status.UID)
	}
	return config, nil
}

// Rules returns the rights that Sluice needs on a member cluster before anything is placed there; none are
// needed at a broker.
func Rules(cluster *v1alpha1.MemberCluster) []rbacv1.PolicyRule {
	switch reader := cluster.ReaderName(); {
	case cluster.IsJoined():
		return liqo.JoinedRules(reader)
	case cluster.DriverName() == v1alpha1.DriverLiqo:
		return liqo.Rules(reader)
	case cluster.DriverName() == v1alpha1.DriverCAPI:
		return capi.Rules()
	case cluster.DriverName() == v1alpha1.DriverKube:
		return kube.Rules(reader)
	}
	return nil
}

// Unguarded returns why a member cluster that runs pods does not enforce rules for these: it lacks an
// admission policy that this version of Sluice registers, or has it in another form. It is empty if it enforces them. A
// cluster that does not answer causes an error.
func Unguarded(ctx context.Context, cluster *v1alpha1.MemberCluster, connection *member.Connection) (string, error) {
	for _, guard := range agreedGuards(cluster) {
		err := tenant.CompareOn(ctx, connection.Client, guard)
		switch {
		case err == nil:
		case errors.Is(err, tenant.ErrChanged), apierrors.IsNotFound(err), apierrors.IsForbidden(err), meta.IsNoMatchError(err):
			return err.Error(), nil
		default:
			return "", err
		}
	}
	return "", nil
}

func agreedGuards(cluster *v1alpha1.MemberCluster) (guards []tenant.Object) {
	if !cluster.IsJoined() {
		guards = kube.AgreedGuard()
	}
	if cluster.DriverName() == v1alpha1.DriverLiqo && len(cluster.Spec.Consumers) == 0 {
		guards = append(guards, liqo.AgreedGuard()...)
	}
	return guards
}

// Permissions adds to the options what the driver and the reader of a cluster need there.
func Permissions(o kube.ManifestOptions, cluster *v1alpha1.MemberCluster) (kube.ManifestOptions, error) {
	if o.Reader == "" {
		o.Reader = cluster.ReaderName()
	}
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

// PermissionsToJoin is Permissions for a cluster that joins by an invitation.
func PermissionsToJoin(o kube.ManifestOptions) (kube.ManifestOptions, error) {
	return Permissions(o, &v1alpha1.MemberCluster{Spec: v1alpha1.MemberClusterSpec{Driver: v1alpha1.DriverKube}})
}

// Hub changes the resources of member clusters. Owner is the field manager.
type Hub struct {
	Client client.Client
	Owner  string
}

// Change applies a change to a member cluster, or creates it, and returns the hub's version. It
// is atomic, and calls change again if others change the cluster meanwhile. It refuses a cluster
// that is being removed.
func (h Hub) Change(ctx context.Context, key client.ObjectKey, change func(*v1alpha1.MemberCluster) error) (*v1alpha1.MemberCluster, error) {
	return h.change(ctx, key, change, false)
}

func (h Hub) change(ctx context.Context, key client.ObjectKey, change func(*v1alpha1.MemberCluster) error, dryRun bool) (cluster *v1alpha1.MemberCluster, err error) {
	var to client.Client = client.WithFieldOwner(h.Client, h.Owner)
	if dryRun {
		to = client.NewDryRunClient(to)
	}
	again := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	err = retry.OnError(retry.DefaultRetry, again, func() error {
		cluster = &v1alpha1.MemberCluster{}
		err := h.Client.Get(ctx, key, cluster)
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
			return to.Create(ctx, cluster)
		}
		return to.Update(ctx, cluster)
	})
	return cluster, err
}
