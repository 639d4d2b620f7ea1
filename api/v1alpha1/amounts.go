package v1alpha1

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// CheckResource returns an error if there can be no resource of that name. Names without a domain are Kubernetes' own, and
// only those that a reservation can have are accepted.
func CheckResource(name corev1.ResourceName) error {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods:
		return nil
	}
	if size, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix); ok {
		if _, err := resource.ParseQuantity(size); err == nil {
			return nil
		}
	}
	if !strings.Contains(string(name), "/") {
		return fmt.Errorf("%q is no resource: want cpu, memory, ephemeral-storage, pods, hugepages-SIZE, or a name with a domain, for instance nvidia.com/gpu or %s", name, StorageResource("CLASS"))
	}
	if errs := validation.IsQualifiedName(string(name)); len(errs) > 0 {
		return fmt.Errorf("%s: %s", name, errs[0])
	}
	return nil
}

// CheckAmounts returns an error if one of the amounts is of no resource or negative, or no whole number of devices.
func CheckAmounts(amounts corev1.ResourceList) error {
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		amount := amounts[name]
		if err := CheckResource(name); err != nil {
			return err
		}
		if amount.Sign() < 0 {
			return fmt.Errorf("%s is negative", name)
		}
		if whole := amount.DeepCopy(); IsDevices(name) && !whole.RoundUp(0) {
			return fmt.Errorf("%s: %s is no whole number of devices", name, amount.String())
		}
	}
	return nil
}

// Check returns an error if the sale names what is no resource, or a negative amount. A sale that is nil has none.
func (s *Sale) Check() error {
	if s == nil {
		return nil
	}
	if err := CheckAmounts(s.AtMost); err != nil {
		return fmt.Errorf("atMost: %w", err)
	}
	for _, name := range s.Hide {
		if err := CheckResource(name); err != nil {
			return fmt.Errorf("hide: %w", err)
		}
	}
	return nil
}

// Check returns an error if a limit of the quota is of no resource or negative, or its budget is no amount of money. A quota
// that is nil has none.
func (q *Quota) Check() error {
	if q == nil {
		return nil
	}
	if err := CheckAmounts(q.Limits); err != nil {
		return fmt.Errorf("limits: %w", err)
	}
	if err := q.Budget.Check(); err != nil {
		return fmt.Errorf("budget.%w", err)
	}
	return nil
}
