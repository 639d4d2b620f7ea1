#!/usr/bin/env bash
# Builds the programs of the Karmada and the Open Cluster Management that the modules beside this script pin, once, and
# prints the folder that holds them, and their manifests in the folders karmada and ocm. The folder's name carries a
# hash of what it was built from.
#
# Karmada's Cluster is a CustomResourceDefinition here, made from its Go type; installed, an API server of Karmada's own
# serves it behind the other, with a proxy to members that nobody here asks for.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
out=${SLUICE_CACHE:-$HOME/.cache/sluice}/peers-$(cat build.sh karmada/go.mod ocm/go.mod ../../../tools/go.mod | sha256sum | cut -c1-12)
mkdir -p "$(dirname "$out")"
exec 9>"$out.lock"
flock 9

# build NAME MODULE PACKAGE... builds programs of the module that the module in the folder NAME requires.
build() {
  local name=$1 module=$2 source
  shift 2
  echo "building $module $(cd "$name" && go list -mod=readonly -m -f '{{.Version}}' "$module") (once)" >&2
  source=$(cd "$name" && go mod download -json "$module" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
  cp -r "$source" "$out.new/$name-source"
  chmod -R u+w "$out.new/$name-source"
  (cd "$out.new/$name-source" && CGO_ENABLED=0 go build -mod=readonly -trimpath -buildvcs=false -ldflags "-s -w" -o "$out.new/bin/$name/" "$@" >&2)
}

if [ ! -d "$out" ]; then
  rm -rf "$out.new"
  mkdir -p "$out.new/bin" "$out.new/karmada" "$out.new/ocm"
  build ocm open-cluster-management.io/ocm ./cmd/work ./cmd/placement
  cp "$out.new"/ocm-source/manifests/cluster-manager/hub/crds/*_{clusters,work}.open-cluster-management.io_*.yaml \
    "$out.new"/ocm-source/manifests/klusterlet/managed/*appliedmanifestworks.crd.yaml "$out.new/ocm"
  build karmada github.com/karmada-io/karmada ./cmd/controller-manager ./cmd/scheduler ./cmd/webhook
  cp "$out.new"/karmada-source/charts/karmada/_crds/bases/*/*.yaml "$out.new"/karmada-source/artifacts/deploy/webhook-configuration.yaml "$out.new/karmada"
  (cd ../../../tools && go build -o "$out.new/controller-gen" sigs.k8s.io/controller-tools/cmd/controller-gen)
  (cd "$out.new/karmada-source" && "$out.new/controller-gen" crd paths=./pkg/apis/cluster/v1alpha1 output:crd:dir="$out.new/karmada")
  rm -rf "$out.new"/{karmada,ocm}-source "$out.new/controller-gen"
  mv "$out.new" "$out"
fi
echo "$out"
