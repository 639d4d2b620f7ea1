// Package podrules has the rules for consumers' pods, in one table: member clusters enforce them by an
// admission policy, and the catalog refuses workloads by them before they are sold. The rules that PlacementPolicies add
// for a namespace are a second table, enforced in the same way; placement chooses clusters by them.
package podrules
