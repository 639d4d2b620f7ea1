#!/usr/bin/env bash
# Compiles the programs pinned under modules/, each once, and prints the folder of each module, one per line.
#
#   tools.sh MODULE...     the folders under modules/
#
# A folder's name carries a hash of what it was built from; a second call answers at once.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case ${1:---help} in -h | --help) usage && exit ;; esac

# compile MODULE OUT: builds the tools that go.mod declares, or the module's own command.
compile() {
  local module=$1 out=$2 cgo=0 tags="" packages=.
  case $module in
    containerd) tags=no_btrfs,no_zfs,no_devmapper ;;
    runc) cgo=1 tags=seccomp ;;
  esac
  cd "$kind_dir/modules/$module"
  if grep -q '^tool' go.mod; then packages=tool; fi
  mkdir -p "$out.part"
  if [ "$module" = traefik ]; then
    without_dns_providers "$out.src"
    cd "$out.src"
  fi
  CGO_ENABLED=$cgo nice go build -trimpath -buildvcs=false -tags "$tags" -ldflags "-s -w" -o "$out.part/" $packages
  rm -rf "$out.src"
  mv "$out.part" "$out"
}

# without_dns_providers DIR: makes DIR a copy of Traefik's module that leaves out lego's clients of 150 DNS providers. No
# test has one; they are a third of Traefik's packages, and some of these take minutes to compile.
without_dns_providers() {
  local dir=$1 lego=github.com/go-acme/lego/v4
  mkdir -p "$dir"
  cp go.mod go.sum "$dir"
  go mod download $lego
  cp -r "$(go list -m -f '{{.Dir}}' $lego)" "$dir/lego"
  chmod -R u+w "$dir/lego"
  cp dns_providers.go.txt "$dir/lego/providers/dns/zz_gen_dns_providers.go"
  (cd "$dir" && go mod edit -replace $lego=./lego)
}

for module; do
  [ -d "$kind_dir/modules/$module" ] || fail "no module $module under $kind_dir/modules"
  out=$cache/tools/$module-$(fingerprint tools.sh "modules/$module/"*)
  if [ ! -d "$out" ]; then
    (
      lock "tool-$module"
      [ ! -d "$out" ] || exit 0
      if [ "$module" = runc ]; then require gcc=gcc /usr/include/seccomp.h=libseccomp-dev; fi
      rm -rf "$cache/tools/$module-"* # older versions and unfinished builds
      step "building $module (once)" compile "$module" "$out"
    )
  fi
  echo "$out"
done
