#!/usr/bin/env bash
# Loads image archives, as `docker save` or echo.sh make them, into every node of a kind cluster.
#
#   load.sh NAME ARCHIVE...
#
# There is no registry: pods that use these images need imagePullPolicy IfNotPresent or Never.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case ${1:---help} in -h | --help) usage && exit ;; esac
name=$1
shift
check_cluster_names "$name"
[ -n "$(containers "$name")" ] || fail "no cluster $name; bring it up with up.sh $name"
[ $# -gt 0 ] || fail "which archives? (see --help)"

# load ARCHIVE: what `kind load image-archive` does, in half of the time: that asks each node twice more what it has. What is
# in the cache need not be sent through Docker, which took half as long again.
load() {
  local node file=- input=$1
  case $(realpath "$1") in "$(realpath "$cache")"/*) file=$node_cache/$(realpath --relative-to="$cache" "$1") input=/dev/null ;; esac
  for node in $(containers "$name"); do
    docker exec --interactive "$node" ctr --namespace k8s.io images import --digests --snapshotter overlayfs "$file" <"$input"
  done
}

for archive; do
  step "$name: loading $(basename "$archive")" load "$archive"
done
