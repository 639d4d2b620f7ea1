// Package delivery is the contract between the controller of instances and the drivers, each of which
// delivers to one kind of member cluster.
package delivery
