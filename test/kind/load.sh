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
kind=$("$kind_dir/tools.sh" kind)/kind
for archive; do
  step "$name: loading $(basename "$archive")" "$kind" load image-archive "$archive" --name "$name"
done
