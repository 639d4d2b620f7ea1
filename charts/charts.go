// Package charts carries the generated CRDs, so that the embedded hub and the
// Helm chart install the same ones. It holds no code.
package charts

import "embed"

// CRDs holds sluice/crds/*.yaml, generated from api/v1alpha1.
//
//go:embed sluice/crds/*.yaml
var CRDs embed.FS
