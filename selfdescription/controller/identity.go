package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-jose/go-jose/v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/requeue"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/selfdescription"
)

// algorithm of the broker's keys.
const algorithm = "ES256"

// AnnotationRotate on the Identity, with any new value, makes the broker create a new key.
const AnnotationRotate = "sluice.dev/rotate"

// identity creates and retires the broker's keys. One key signs. Earlier keys stay published
// until the last credential signed with them has ended.
type identity struct {
	Options
	hub  client.Client
	live client.Reader
}

func (r *identity) setup(mgr ctrl.Manager) error {
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

func (r *identity) key() client.ObjectKey {
	return client.ObjectKey{Namespace: r.Namespace, Name: v1alpha1.IdentityName}
}

// Reconcile makes, rotates and retires keys.
func (r *identity) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
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
func (r *identity) turn(id *v1alpha1.Identity) (changed bool, err error) {
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
			id.Spec.Keys[0].PublishedUntil = apiTime(now.Add(max(r.Measure.validity(), r.declared())))
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

func (r *identity) make(id *v1alpha1.Identity, now time.Time) (v1alpha1.IdentityKey, error) {
	name := strconv.FormatInt(now.UnixNano(), 36) // two rotations in one second need two names
	private, err := selfdescription.GenerateKey(algorithm, r.DID+"#"+name)
	if err != nil {
		return v1alpha1.IdentityKey{}, fmt.Errorf("make a key: %w", err)
	}
	secret, err := json.Marshal(private)
	if err != nil {
		return v1alpha1.IdentityKey{}, fmt.Errorf("write a key: %w", err)
	}
	sealed, err := r.Seal.Seal(secret, owner(id))
	if err != nil {
		return v1alpha1.IdentityKey{}, fmt.Errorf("seal a key: %w", err)
	}
	public, err := json.Marshal(private.Public())
	if err != nil {
		return v1alpha1.IdentityKey{}, fmt.Errorf("write a public key: %w", err)
	}
	return v1alpha1.IdentityKey{ID: name, Public: runtime.RawExtension{Raw: public}, SealedPrivate: sealed, CreatedAt: metav1.NewTime(now)}, nil
}

func owner(id *v1alpha1.Identity) []byte {
	return seal.Owner("Identity", id.Namespace, id.Name, string(id.UID))
}

// signer returns a signer with the broker's newest key.
func (o *Options) signer(ctx context.Context, hub client.Reader) (*selfdescription.Signer, error) {
	id := &v1alpha1.Identity{}
	if err := hub.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: v1alpha1.IdentityName}, id); err != nil {
		return nil, fmt.Errorf("read the broker's identity: %w", err)
	}
	if len(id.Spec.Keys) == 0 {
		return nil, errors.New("the broker has no key yet")
	}
	secret, err := o.Seal.Unseal(id.Spec.Keys[0].SealedPrivate, owner(id))
	if err != nil {
		return nil, fmt.Errorf("unseal the broker's key: %w", err)
	}
	key := jose.JSONWebKey{}
	if err := json.Unmarshal(secret.Reveal(), &key); err != nil {
		return nil, errors.New("read the broker's key: it is not a JSON Web Key") // without the cause, which may quote the key
	}
	return selfdescription.NewSigner(key)
}
