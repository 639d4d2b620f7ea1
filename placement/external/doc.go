// Package external asks services outside Sluice: a scorer for scores, and a forecaster for orders to come. Sluice does
// not depend on them: without an answer in time, a scorer's weight does not count, and no cluster is made ahead.
package external
