#!/usr/bin/env bash
# Builds the managers of Cluster API pinned in go.mod, each once, and prints the folder that holds them, each in a folder
# of its own beside its manifests (NAME/manager, NAME/config). The folder's name carries a hash of what it was built from.
#
#   build.sh NAME...     core, bootstrap (kubeadm), controlplane (kubeadm), docker
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
version=$(go list -mod=readonly -m -f '{{.Version}}' sigs.k8s.io/cluster-api)
out=${SLUICE_CACHE:-$HOME/.cache/sluice}/cluster-api-$version-$(cat go.mod go.sum build.sh | sha256sum | cut -c1-12)
mkdir -p "$out"
exec 9>"$out/.lock"
flock 9
for name; do
  [ -d "$out/$name" ] && continue
  module=sigs.k8s.io/cluster-api
  case $name in
    core) path=core ;;
    bootstrap | controlplane) path=$name/kubeadm ;;
    docker) module=sigs.k8s.io/cluster-api/test path=infrastructure/docker ;;
    *) echo "no manager $name" >&2 && exit 1 ;;
  esac
  echo "building the manager $name of Cluster API $version (once)" >&2
  go mod download "$module"
  source=$(go list -mod=readonly -m -f '{{.Dir}}' "$module")
  rm -rf "$out/.$name"
  mkdir "$out/.$name"
  cp -r "$source/$path/config" "$out/.$name/config"
  chmod -R u+w "$out/.$name"
  CGO_ENABLED=0 go build -mod=readonly -trimpath -buildvcs=false -ldflags "-s -w" -o "$out/.$name/capi-$name" "$module/$path" >&2
  mv "$out/.$name" "$out/$name"
done
echo "$out"
