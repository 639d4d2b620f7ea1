//go:build tools

// Package manager holds on to what build.sh builds.
package manager

import (
	_ "sigs.k8s.io/cluster-api/core"
)
