package registration

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// TestSecretsAreOfOneCluster: the token for the reader of eu and the access to a cluster eu-reader would be in one Secret.
// Whichever is stored later is refused, and the other one stays. To store one again replaces it.
func TestSecretsAreOfOneCluster(t *testing.T) {
	const shared = "sluice-cluster-eu-reader"
	in := func(name string) *v1alpha1.MemberCluster {
		return &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "sluice", Name: name}}
	}
	ref := v1alpha1.ClusterAccess{SecretRef: &v1alpha1.SecretKeyReference{Name: shared, Key: kubeconfigKey}}
	read, named, joined := in("eu"), in("eu-reader"), in("eu")
	read.Spec.Reader = &v1alpha1.ExternalReader{Token: &ref}
	named.Spec.Access = ref
	joined.Spec.Liqo = &v1alpha1.LiqoCluster{Joined: &v1alpha1.JoinedPeering{Identity: &v1alpha1.ClusterAccess{SecretRef: &v1alpha1.SecretKeyReference{Name: "sluice-cluster-eu-identity"}}}}
	for name, one := range map[string]struct {
		there, stores *v1alpha1.MemberCluster
		says          string
	}{
		"a cluster named like a reader":   {read, in("eu-reader"), "store the access to it in Secret " + shared + ": it has an access of cluster eu: give one of the two clusters another name"},
		"a cluster named like a joined":   {joined, in("eu-identity"), "it has an access of cluster eu: "},
		"a reader of a cluster's name":    {named, v1alpha1.ReaderIdentity(in("eu")), "it has an access of cluster eu-reader: "},
		"the reader's token again":        {read, v1alpha1.ReaderIdentity(read), ""},
		"the access to the cluster again": {named, named, ""},
		"the joined identity again":       {joined, v1alpha1.JoinedIdentity(joined), ""},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := corev1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			before := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "sluice", Name: SecretName(one.stores.Name)}, Data: map[string][]byte{kubeconfigKey: []byte("before")}}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(one.there.DeepCopy(), before).Build()
			_, err := Secrets{Client: c, Owner: "test"}.Store(t.Context(), one.stores, []byte("after"))
			want := "after"
			if one.says != "" {
				want = "before"
			}
			if (err == nil) != (one.says == "") || err != nil && !strings.Contains(err.Error(), one.says) {
				t.Errorf("it says %v, want %q", err, one.says)
			}
			now := &corev1.Secret{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(before), now); err != nil || string(now.Data[kubeconfigKey]) != want {
				t.Errorf("the Secret has %q, want %q: %v", now.Data[kubeconfigKey], want, err)
			}
		})
	}
}
