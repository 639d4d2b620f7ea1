// Package osbtest has what the tests of brokers behind this one share.
package osbtest

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// namespace of the objects.
const namespace = "sluice"

// Broker returns a member cluster that stands for a broker on this machine, and the Secret with the credentials
// of suitetest.Broker for it.
func Broker(name, url string) (*v1alpha1.MemberCluster, client.Object) {
	const key = "credentials"
	cluster := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.MemberClusterSpec{
		Driver: v1alpha1.DriverOSB, Broker: &v1alpha1.UpstreamBroker{URL: url, Addresses: []string{"127.0.0.0/8"}},
		Access: v1alpha1.ClusterAccess{SecretRef: &v1alpha1.SecretKeyReference{Name: name, Key: key}},
	}}
	return cluster, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{
		key: []byte(`{"username": "first", "password": "first-password"}`),
	}}
}
