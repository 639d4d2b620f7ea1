// Package usage measures what instances had, where they were delivered, and what that cost.
//
// During a period of usage an instance had the same on one cluster, from one second to another: the reservation of
// the decision that was delivered, at the price of that decision. It is written into the status of the instance,
// in the same write as the change that begins or ends it. So no second is lost, and none is doubled: there is nothing
// to add up again after a kill, and no hour that has to be closed. Sums by hour, day or month are computed when they
// are asked for.
//
// Not measured is what a decision reserves that is not delivered yet, or never is, what an instance leaves behind on
// clusters that it has left, and what is being removed once its deletion was asked for.
//
// This package decides nothing and writes nothing. It has no clock.
package usage
