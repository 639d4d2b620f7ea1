package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/identity"
	"github.com/sluice-dev/sluice/internal/requeue"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/selfdescription"
)

// algorithm of the broker's keys.
const algorithm = "ES256"

// AnnotationRotate on the Identity, with any new value, makes the broker create a new key.
const AnnotationRotate = "sluice.dev/rotate"

// keyring creates and retires the broker's keys. One key signs. Earlier keys stay published
// until the last credential or token signed with them has ended.
type keyring struct {
	Options
	hub  client.Client
	live client.Reader
}

func (r *keyring) setup(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("identity").For(&v1alpha1.Identity{}).Complete(requeue.OnConflict(r))
	if err != nil {
		return err
	}
	// The first pass creates the resource that the other passes reconcile.
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return nil
		}
		_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: r.key()})
		return err
	}))
}

func (r *keyring) key() client.ObjectKey {
	return client.ObjectKey{Namespace: r.Namespace, Name: v1alpha1.IdentityName}
}

// Reconcile makes, rotates and retires keys.
func (r *keyring) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if request.NamespacedName != r.key() {
		return ctrl.Result{}, nil
	}
	id := &v1alpha1.Identity{}
	err := r.live.Get(ctx, r.key(), id)
	if apierrors.IsNotFound(err) {
		id = &v1alpha1.Identity{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: v1alpha1.IdentityName}, Spec: v1alpha1.IdentitySpec{DID: r.DID}}
		if err := r.hub.Create(ctx, id); err != nil {
			return ctrl.Result{}, fmt.Errorf("create the broker's identity: %w", err)
		}
	} else if err != nil {
		return ctrl.Result{}, err
	}
	changed, err := r.turn(id)
	if err != nil {
		return ctrl.Result{}, err
	}
	if changed {
		if err := r.hub.Update(ctx, id); err != nil {
			if apierrors.IsConflict(err) {
				return ctrl.Result{RequeueAfter: afterConflict}, nil
			}
			return ctrl.Result{}, fmt.Errorf("write the broker's keys: %w", err)
		}
	}
	return ctrl.Result{RequeueAfter: r.RotateEvery / 100}, nil
}

// turn creates and removes keys as needed.
func (r *keyring) turn(id *v1alpha1.Identity) (changed bool, err error) {
	now := r.Clock.Now()
	asked := id.Annotations[AnnotationRotate]
	due := len(id.Spec.Keys) == 0 || id.Spec.DID != r.DID ||
		now.Sub(id.Spec.Keys[0].CreatedAt.Time) >= r.RotateEvery || asked != "" && asked != id.Spec.Rotated
	if due {
		if id.Spec.DID != r.DID {
			id.Spec.DID, id.Spec.Keys = r.DID, nil // keys of the old DID are of no use under the new one
		}
		key, err := r.make(id, now)
		if err != nil {
			return false, err
		}
		if len(id.Spec.Keys) > 0 {
			id.Spec.Keys[0].PublishedUntil = apiTime(now.Add(max(r.Measure.validity(), r.declared(), access.MaxLifetime)))
		}
		id.Spec.Keys = append([]v1alpha1.IdentityKey{key}, id.Spec.Keys...)
		id.Spec.Rotated = asked
	}
	kept := id.Spec.Keys[:0:0]
	for _, key := range id.Spec.Keys {
		if key.PublishedUntil == nil || now.Before(key.PublishedUntil.Time) {
			kept = append(kept, key)
		}
	}
	changed = due || len(kept) < len(id.Spec.Keys)
	id.Spec.Keys = kept
	return changed, nil
}

func (r *keyring) make(id *v1alpha1.Identity, now time.Time) (v1alpha1.IdentityKey, error) {
	name := strconv.FormatInt(now.UnixNano(), 36) // two rotations in one second need two names
	private, err := selfdescription.GenerateKey(algorithm, r.DID+"#"+name)
	if err != nil {
		return v1alpha1.IdentityKey{}, fmt.Errorf("make a key: %w", err)
	}
	sealed, err := identity.Seal(id, private, r.Seal)
	if err != nil {
		return v1alpha1.IdentityKey{}, err
	}
	public, err := json.Marshal(private.Public())
	if err != nil {
		return v1alpha1.IdentityKey{}, fmt.Errorf("write a public key: %w", err)
	}
	return v1alpha1.IdentityKey{ID: name, Public: runtime.RawExtension{Raw: public}, SealedPrivate: sealed, CreatedAt: metav1.NewTime(now)}, nil
}

// signer returns a signer with the broker's newest key.
func (o *Options) signer(ctx context.Context, hub client.Reader) (*selfdescription.Signer, error) {
	return Signer(ctx, hub, o.Namespace, o.Seal)
}

// ErrNoDID reports that the broker has no DID, and so no key that others find.
var ErrNoDID = errors.New("the broker has no DID: give `sluice serve` one with --public-url")

// Signer returns a signer with the newest key of the broker of a hub, which is sealed with a keyset. The error is ErrNoDID
// if the broker has no DID, or identity.ErrNoKey.
func Signer(ctx context.Context, hub client.Reader, namespace string, keys *seal.Keyset) (*selfdescription.Signer, error) {
	id := &v1alpha1.Identity{}
	if err := hub.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.IdentityName}, id); err != nil {
		return nil, fmt.Errorf("read the broker's identity: %w", err)
	}
	if id.Spec.DID == "" {
		return nil, ErrNoDID
	}
	key, err := identity.SigningKey(id, keys)
	if err != nil {
		return nil, err
	}
	return selfdescription.NewSigner(key)
}
