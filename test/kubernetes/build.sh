#!/usr/bin/env bash
# Builds the Kubernetes and etcd binaries pinned in go.mod, once, and prints the folder that holds them.
# The folder's name carries a hash of what it was built from, so a second call answers at once.
#   build.sh            all of them (kind nodes need all)
#   build.sh NAME...    only these
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here"
version=$(go list -mod=readonly -m -f '{{.Version}}' k8s.io/kubernetes)
hash=$(cat go.mod go.sum build.sh | sha256sum | cut -c1-12)
out=${SLUICE_CACHE:-$HOME/.cache/sluice}/kubernetes-$version-$hash
all=(etcd etcdctl kube-apiserver kube-controller-manager kube-scheduler kubectl kubeadm kubelet kube-proxy)
[ $# -gt 0 ] || set -- "${all[@]}"

minor=${version#v1.}; minor=${minor%%.*}
ldflags="-s -w"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  ldflags+=" -X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=$minor"
done

mkdir -p "$out"
exec 9>"$out/.lock"
flock 9
for name; do
  [ -x "$out/$name" ] && continue
  case $name in
    etcd) package=go.etcd.io/etcd/server/v3 ;;
    etcdctl) package=go.etcd.io/etcd/etcdctl/v3 ;;
    *) package=k8s.io/kubernetes/cmd/$name ;;
  esac
  echo "building $name $version (once)" >&2
  CGO_ENABLED=0 go build -mod=readonly -trimpath -buildvcs=false -ldflags "$ldflags" -o "$out/.$name" "$package" >&2
  mv "$out/.$name" "$out/$name"
done
echo "$out"
