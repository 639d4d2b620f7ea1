package controller

import (
	"errors"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// Messages to consumers when only an operator can help.
const (
	onlyOperators = "the broker's operator can find out why by the instance's name"
	willBeTried   = "waiting for a cluster; it is tried again until it works"
)

// forConsumer returns an error's message for the consumer: only what concerns the order, and
// what the consumer can do about it. Names of other clusters, free capacity, addresses and
// messages of API servers are for operators, who read the error itself.
func forConsumer(err error) string {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { // the joined error itself
		var all []string
		for _, one := range joined.Unwrap() {
			all = append(all, forConsumer(one))
		}
		slices.Sort(all)
		return strings.Join(slices.Compact(all), "; ")
	}
	var (
		unplaceable *placement.UnplaceableError
		refused     *delivery.RefusedError
		pending     *delivery.PendingError
		parameter   *catalog.ParameterError
	)
	late := (*lateError)(nil)
	switch {
	case errors.As(err, &late) && errors.As(err, &pending) && pending.Consumer != "":
		return "not delivered in time: " + pending.Consumer
	case errors.As(err, &late):
		return "not delivered in time; " + onlyOperators
	case errors.As(err, &unplaceable):
		return unplaceable.ForConsumer()
	case errors.As(err, &refused) && refused.Consumer != "":
		return refused.Consumer
	case errors.As(err, &refused):
		return "a cluster rejected it; " + onlyOperators
	case errors.As(err, &pending) && pending.Consumer != "":
		return pending.Consumer
	case errors.As(err, &parameter):
		return parameter.Error()
	default:
		return willBeTried
	}
}

// lateError means that a delivery has taken longer than the platform waits.
type lateError struct{ error }

func (e *lateError) Unwrap() error { return e.error }

// repeatable reports whether an update that failed may succeed if it is repeated unchanged (OSB
// 2.17, update_repeatable): after capacity was released, or after the cluster answers again. A
// cluster's labels, tier, place, size and class do not change by themselves.
func repeatable(err error) bool {
	var unplaceable *placement.UnplaceableError
	var refused *delivery.RefusedError
	var parameter *catalog.ParameterError
	switch {
	case errors.As(err, &unplaceable):
		return !unplaceable.Hopeless
	case errors.As(err, &refused):
		return refused.Repeatable
	default:
		return !errors.As(err, &parameter)
	}
}

// unusable reports whether a broker says that the instance does not work any more after an update that failed (OSB 2.17,
// instance_usable).
func unusable(err error) bool {
	var refused *delivery.RefusedError
	return errors.As(err, &refused) && refused.Unusable
}
