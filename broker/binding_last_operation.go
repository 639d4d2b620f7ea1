package broker

import "github.com/sluice-dev/sluice/api/v1alpha1"

// bindingLastOperation answers GET
// /v2/service_instances/:id/service_bindings/:id/last_operation (OSB 2.17, "Polling Last
// Operation for Service Bindings"). It reads the hub without a cache and writes nothing.
func (s *server) bindingLastOperation(c *call) (*reply, error) {
	asked, err := s.operation(c, v1alpha1.BindingName(c.platform.Name, c.instanceID, c.bindingID))
	if err != nil {
		return nil, err
	}
	b, err := s.findBinding(c, c.bindingID)
	if err != nil {
		return nil, err
	}
	if b == nil || isOver(asked, v1alpha1.OperationUnbind, b.DeletionTimestamp != nil) {
		return c.deletedOperation(asked, v1alpha1.OperationUnbind, errNoBinding)
	}
	operation := bindingOperation(b)
	if asked.Type == v1alpha1.OperationBind && b.DeletionTimestamp != nil {
		// OSB 2.17, "Unbinding": a bind that an unbind halts has failed.
		operation = v1alpha1.Operation{Type: asked.Type, State: v1alpha1.StateFailed, Description: "halted: the binding is being deleted"}
	}
	return s.operationReply(c, operation), nil
}
