#!/usr/bin/env bash
# Builds the images of Liqo and prints the tag that all of them have, then their archives, one per line.
#
#   liqo-images.sh
#
# THIS IS A MODIFIED LIQO, FOR TESTS ONLY. Liqo connects every node with its gateways by Geneve and offers nothing else;
# kernels of small machines often have no Geneve. So in two images, fabric and gateway/geneve, the type of that link is
# VXLAN. Everything else is Liqo as it is released, in the version that modules/liqo pins. WireGuard is not the kernel's
# either, but Liqo itself brings one in user space (liqo.sh asks for it).
#
# The images are named as Liqo's chart names them, without the host of a registry: liqotech/fabric, liqotech/gateway/geneve.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case ${1:-} in -h | --help) usage && exit ;; esac

released=(crd-replicator gateway gateway/wireguard ipam liqo-controller-manager proxy virtual-kubelet webhook)
modified=(fabric gateway/geneve)
module=$kind_dir/modules/liqo
hash=$(fingerprint liqo-images.sh lib.sh modules/liqo/*)
tag=$(sed -n 's#^\tgithub.com/liqotech/liqo \(v[^ ]*\).*#\1#p' "$module/go.mod")-sluice-$hash
folder=$cache/liqo-images-$hash

# compile OUT COMPONENT...: builds components as they are released, or as GOFLAGS say.
compile() {
  local out=$1 packages
  shift
  packages=("${@/#/github.com/liqotech/liqo/cmd/}")
  cd "$module"
  CGO_ENABLED=0 nice go build -mod=readonly -trimpath -buildvcs=false -ldflags "-s -w" -o "$out/" "${packages[@]}"
}

# edit FILE FROM TO: replaces text in a file, and fails where there is none.
edit() {
  grep -q -- "$2" "$1" || { echo "$1: there is no $2; has Liqo changed?" && return 1; }
  sed -i "s/$2/$3/g" "$1"
}

# modify COPY: makes a copy of Liqo in which the links between nodes and gateways are VXLAN, and a go.mod that names it.
modify() {
  local copy=$1 file=$1/pkg/utils/network/geneve/netlink.go
  cp -r "$(cd "$module" && go list -m -f '{{.Dir}}' github.com/liqotech/liqo)" "$copy"
  chmod -R u+w "$copy"
  edit "$file" 'netlink\.Geneve' 'netlink.Vxlan'
  edit "$file" '\<ID:     id' 'VxlanId: int(id)'
  edit "$file" '\<Remote: remote' 'Group: remote'
  edit "$file" '\<Dport:  port' 'Port: int(port)'
  edit "$file" 'geneveLink\.Remote\>' 'geneveLink.Group'
  edit "$file" 'geneveLink\.Dport != port' 'geneveLink.Port != int(port)'
  edit "$file" 'geneveLink\.ID != id' 'geneveLink.VxlanId != int(id)'
  edit "$file" 'geneveLink\.ID\>' 'geneveLink.VxlanId'
  edit "$file" 'geneveLink\.Dport\>' 'geneveLink.Port'
  edit "$file" '== "geneve"' '== "vxlan"'
  if grep -rl --include='*.go' 'netlink\.Geneve' "$copy"; then echo "these files still use Geneve" && return 1; fi
  cp "$module/go.mod" "$copy.mod"
  cp "$module/go.sum" "$copy.sum"
  go mod edit -replace "github.com/liqotech/liqo=$copy" "$copy.mod"
}

# pack COMPONENT BINARY: the image of one component, with the paths that Liqo's own images have.
pack() {
  local root
  root=$(mktemp -d "$work/root.XXXXXX")
  mkdir -p "$root"/{tmp,usr/bin}
  chmod 1777 "$root/tmp"
  cp "$2" "$root/usr/bin/"
  image_archive "$folder.part/${1//\//-}.tar" "liqotech/$1:$tag" "$root" \
    "{\"Entrypoint\": [\"/usr/bin/${1##*/}\"], \"Env\": [\"PATH=/usr/bin\"]}" --owner=0 --group=0
  rm -rf "$root"
}

pack_all() {
  local component
  for component in "${released[@]}"; do pack "$component" "$work/released/${component##*/}"; done
  for component in "${modified[@]}"; do pack "$component" "$work/modified/${component##*/}"; done
}

if [ ! -d "$folder" ]; then
  require jq=jq
  lock liqo-images
  if [ ! -d "$folder" ]; then
    rm -rf "$cache"/liqo-images-* # older versions and unfinished builds
    work=$(mktemp -d "$cache/liqo.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    mkdir -p "$work"/{released,modified} "$folder.part"
    step "building Liqo (once)" compile "$work/released" "${released[@]}"
    step "modifying a copy of Liqo" modify "$work/liqo"
    GOFLAGS="${GOFLAGS-} -modfile=$work/liqo.mod" step "building the modified Liqo (once)" compile "$work/modified" "${modified[@]}"
    step "packing the images of Liqo" pack_all
    mv "$folder.part" "$folder"
  fi
fi
echo "$tag"
ls "$folder"/*.tar
