#!/usr/bin/env bash
# Builds Cluster API's core manager as pinned in go.mod, once, and prints the folder that holds it (capi-core), beside
# Cluster API's own manifests (core/config). The folder's name carries a hash of what it was built from.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
version=$(go list -mod=readonly -m -f '{{.Version}}' sigs.k8s.io/cluster-api)
out=${SLUICE_CACHE:-$HOME/.cache/sluice}/cluster-api-$version-$(cat go.mod go.sum build.sh | sha256sum | cut -c1-12)
mkdir -p "$out"
exec 9>"$out/.lock"
flock 9
if [ ! -x "$out/capi-core" ]; then
  echo "building the core manager of Cluster API $version (once)" >&2
  go mod download sigs.k8s.io/cluster-api
  source=$(go list -mod=readonly -m -f '{{.Dir}}' sigs.k8s.io/cluster-api)
  rm -rf "$out/config"
  cp -r "$source/core/config" "$out/config"
  chmod -R u+w "$out/config"
  CGO_ENABLED=0 go build -mod=readonly -trimpath -buildvcs=false -ldflags "-s -w" -o "$out/.capi-core" sigs.k8s.io/cluster-api/core >&2
  mv "$out/.capi-core" "$out/capi-core"
fi
echo "$out"
