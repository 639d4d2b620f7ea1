#!/usr/bin/env bash
# Packs one static binary FROM scratch as a container image. No Docker is needed.
#
#   image.sh REFERENCE BINARY ARCHIVE
#
# The container runs the binary as user 65532, with nothing beside it.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case ${1:---help} in -h | --help) usage && exit ;; esac
[ $# = 3 ] || fail "want REFERENCE BINARY ARCHIVE (see --help)"
reference=$1 binary=$2 archive=$3

require jq=jq
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
install -m 0755 "$binary" "$root/"
image_archive "$archive" "$reference" "$root" \
  "{\"Entrypoint\": [\"/$(basename "$binary")\"], \"User\": \"65532:65532\"}" --owner=0 --group=0
