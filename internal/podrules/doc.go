// Package podrules has the rules for consumers' pods, in one table: member clusters enforce them by an
// admission policy, and the catalog refuses workloads by them before they are sold.
package podrules
