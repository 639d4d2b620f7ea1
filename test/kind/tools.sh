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
  CGO_ENABLED=$cgo nice go build -mod=readonly -trimpath -buildvcs=false -tags "$tags" -ldflags "-s -w" -o "$out.part/" $packages
  mv "$out.part" "$out"
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
