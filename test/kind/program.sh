#!/usr/bin/env bash
# Builds the image of a program that is pinned under modules/, and prints two lines: its archive, and its reference.
#
#   program.sh NAME
#
# The image has nothing but the program, which runs as user 65532. Load the archive with load.sh.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case ${1:---help} in -h | --help) usage && exit ;; esac
[ $# = 1 ] || fail "want NAME (see --help)"
name=$1

hash=$(fingerprint tools.sh program.sh "modules/$name/"*)
reference=sluice-dev/$name:$hash
archive=$cache/$name-$hash.tar
if [ ! -e "$archive" ]; then
  folder=$("$kind_dir/tools.sh" "$name")
  lock "$name"
  "$kind_dir/image.sh" "$reference" "$folder/$name" "$archive"
  find "$cache" -maxdepth 1 -name "$name-*.tar" ! -path "$archive" -delete
fi
echo "$archive"
echo "$reference"
