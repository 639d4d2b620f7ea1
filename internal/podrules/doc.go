// Package podrules says what consumers' pods may ask for. One table holds the rules: member clusters
// enforce it by an admission policy, and the catalog refuses workloads by it before they are sold.
package podrules
