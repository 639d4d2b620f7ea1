// Package carried seals and opens the orders that instances' namespaces on member clusters carry
// (v1alpha1.AnnotationOrder).
//
// An order has everything that makes a ServiceInstance again as it was delivered: what the platform asked for, the
// decision, and the workload's secrets. It is sealed with the hub's keyset and bound to the name of the ServiceInstance,
// so neither the cluster's operator nor a consumer can read it, or put it at another namespace. An older order of the
// same instance opens as well; so whoever opens one compares what all clusters of the decision carry.
//
// This package must not know where orders are kept.
package carried
