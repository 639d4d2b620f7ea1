#!/usr/bin/env bash
# Builds the image of Traefik, the Gateway of the tests, and prints two lines: its archive, and its reference.
#
#   traefik.sh
#
# The image has nothing but the program, which runs as user 65532. Load the archive with load.sh.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case ${1:-} in -h | --help) usage && exit ;; esac

hash=$(fingerprint tools.sh traefik.sh modules/traefik/*)
reference=sluice-dev/traefik:$hash
archive=$cache/traefik-$hash.tar
if [ ! -e "$archive" ]; then
  folder=$("$kind_dir/tools.sh" traefik)
  lock traefik
  "$kind_dir/image.sh" "$reference" "$folder/traefik" "$archive"
  find "$cache" -maxdepth 1 -name 'traefik-*.tar' ! -path "$archive" -delete
fi
echo "$archive"
echo "$reference"
