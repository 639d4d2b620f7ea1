// Package identitytest gives the broker of a test keys, without the controller that makes them.
package identitytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"testing"

	"github.com/go-jose/go-jose/v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/identity"
	"github.com/sluice-dev/sluice/internal/seal"
)

// Rotate makes a new key sign, beside those that there are. It makes the Identity, with that DID, if there is none.
func Rotate(t testing.TB, c client.Client, namespace string, keys *seal.Keyset, did, name string) {
	t.Helper()
	id := &v1alpha1.Identity{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.IdentityName}, Spec: v1alpha1.IdentitySpec{DID: did}}
	err := c.Get(t.Context(), client.ObjectKeyFromObject(id), id)
	if apierrors.IsNotFound(err) {
		err = c.Create(t.Context(), id)
	}
	if err != nil {
		t.Fatal(err)
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key := jose.JSONWebKey{Key: private, KeyID: id.Spec.DID + "#" + name, Algorithm: string(jose.ES256), Use: "sig"}
	sealed, err := identity.Seal(id, key, keys)
	if err != nil {
		t.Fatal(err)
	}
	public, err := json.Marshal(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	made := v1alpha1.IdentityKey{ID: name, Public: runtime.RawExtension{Raw: public}, SealedPrivate: sealed, CreatedAt: metav1.Now()}
	id.Spec.Keys = append([]v1alpha1.IdentityKey{made}, id.Spec.Keys...)
	if err := c.Update(t.Context(), id); err != nil {
		t.Fatal(err)
	}
}
