#!/usr/bin/env bash
# Builds the Kubernetes Service Catalog pinned in go.mod, once, and prints the folder that holds its programs webhook and
# controller-manager (two names of one file), and its Helm chart in the folder chart. The folder's name carries a hash of
# what it was built from.
#
# It is a modified Service Catalog, for tests only: it looks for its definitions by the API that Kubernetes serves since
# 1.22, and the webhook serves no metrics, as it takes no other port than 8080, which somebody may listen on.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
module=github.com/kubernetes-sigs/service-catalog
version=$(go list -mod=readonly -m -f '{{.Version}}' $module)
out=${SLUICE_CACHE:-$HOME/.cache/sluice}/service-catalog-$version-$(cat go.mod go.sum build.sh | sha256sum | cut -c1-12)
mkdir -p "$(dirname "$out")"
exec 9>"$out.lock"
flock 9
if [ ! -d "$out" ]; then
  echo "building Service Catalog $version (once)" >&2
  go mod download $module
  source=$(go list -mod=readonly -m -f '{{.Dir}}' $module)
  rm -rf "$out.new"
  mkdir "$out.new"
  cp -r "$source/charts/catalog" "$out.new/chart"
  cp -r "$source" "$out.new/source"
  chmod -R u+w "$out.new"
  rm -r "$out.new/source/vendor" # a list without the packages
  (
    cd "$out.new/source"
    old=k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1
    sed -i "s#\"$old\"#v1beta1 \"${old%beta1}\"#" pkg/probe/crd_probe.go
    sed -i 's/ApiextensionsV1beta1()/ApiextensionsV1()/' pkg/probe/crd_probe.go pkg/cleaner/cleaner.go
    sed -i 's/manager.Options{}/manager.Options{MetricsBindAddress: "0"}/' cmd/webhook/server/webhook.go
  )
  cp go.mod go.sum "$out.new"
  go mod edit -replace "$module=$out.new/source" "$out.new/go.mod"
  CGO_ENABLED=0 go build -modfile="$out.new/go.mod" -mod=readonly -trimpath -buildvcs=false -ldflags "-s -w" -o "$out.new/controller-manager" $module/cmd/service-catalog >&2
  ln "$out.new/controller-manager" "$out.new/webhook"
  rm -rf "$out.new/source" "$out.new"/go.{mod,sum}
  mv "$out.new" "$out"
fi
echo "$out"
