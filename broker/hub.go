package broker

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// findInstance reads the call's instance from the hub without a cache; nil means that it
// does not exist.
func (s *server) findInstance(c *call) (*v1alpha1.ServiceInstance, error) {
	i := &v1alpha1.ServiceInstance{}
	key := client.ObjectKey{Namespace: s.Namespace, Name: v1alpha1.InstanceName(c.platform.Name, c.instanceID)}
	err := s.Client.Get(c.Context(), key, i)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read instance %s: %w", key.Name, err)
	}
	return i, nil
}

// findBinding reads a binding of the call's instance from the hub without a cache; nil
// means that it does not exist.
func (s *server) findBinding(c *call, bindingID string) (*v1alpha1.ServiceBinding, error) {
	b := &v1alpha1.ServiceBinding{}
	key := client.ObjectKey{Namespace: s.Namespace, Name: v1alpha1.BindingName(c.platform.Name, c.instanceID, bindingID)}
	err := s.Client.Get(c.Context(), key, b)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read binding %s: %w", key.Name, err)
	}
	return b, nil
}

// write runs a write to the hub under a context that survives the client's hanging up: an
// accepted request stays accepted.
func (c *call) write(do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), writeTimeout)
	defer cancel()
	return do(ctx)
}

// delete deletes one incarnation of an object. If it is already gone, that is no error.
func (s *server) delete(c *call, o client.Object) error {
	uid := o.GetUID()
	err := c.write(func(ctx context.Context) error {
		return s.Client.Delete(ctx, o, client.Preconditions{UID: &uid})
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // the conflict is about the UID
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", o.GetName(), err)
	}
	return nil
}

// objectMeta returns the metadata of a new resource. Its finalizer keeps the resource until
// the controller has cleaned up.
func (s *server) objectMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.Namespace, Name: name, Finalizers: []string{v1alpha1.Finalizer}}
}
