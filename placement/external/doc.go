// Package external asks a scorer outside Sluice for its scores. Sluice does not depend on it: without an
// answer in time, the scorer's weight does not count.
package external
