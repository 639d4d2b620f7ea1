package catalog

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// currency matches the codes of ISO 4217, in lower and in upper case.
var currency = regexp.MustCompile(`^[a-zA-Z]{3}$`)

// checkCosts checks that the costs of a plan are amounts of money, in currencies.
func checkCosts(costs []v1alpha1.Cost) error {
	for i := range costs {
		for _, name := range slices.Sorted(maps.Keys(costs[i].Amount)) {
			if !currency.MatchString(name) {
				return fmt.Errorf("costs: %q: want a currency as an ISO 4217 code, for instance eur", name)
			}
			if err := v1alpha1.CheckMoney(costs[i].Amount[name], v1alpha1.MaxMoney); err != nil {
				return fmt.Errorf("costs: %s: %w", name, err)
			}
		}
	}
	return nil
}

// checkDevices checks that the devices of a plan, which runs a workload or not, can be claimed where it is delivered.
func checkDevices(r *v1alpha1.ResourcesPlan, runs bool) error {
	of := func(amounts corev1.ResourceList) bool {
		for name := range amounts {
			if v1alpha1.IsDevices(name) {
				return true
			}
		}
		return false
	}
	switch {
	case !of(r.Limits) && !slices.ContainsFunc(r.Components, func(c v1alpha1.Component) bool { return of(c.Limits) }):
		return nil
	case runs:
		return errors.New("limits: devices of a class do not go with kind: workload, whose claims are not counted")
	case r.Peering.OnNodes():
		return errors.New("limits: devices of a class do not go with virtual nodes or hubs: peering needs gives: Network and role: Transparent")
	}
	return nil
}
