// Package rebalance proposes moves of instances that would improve their placement, and applies them in
// the windows of placement policies (v1alpha1.Rebalance).
package rebalance
