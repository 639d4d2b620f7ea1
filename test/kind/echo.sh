#!/usr/bin/env bash
# Builds the image of the echo workload and prints two lines: its archive, and its reference.
#
#   echo.sh
#
# The workload answers GET on port 8080 with the name of its pod. Its heap has small pages, whatever the machine is told: with
# pages of 2 MiB it would not fit into the 16 MiB that the tests give it. Load the archive with load.sh; no Docker is needed here.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case ${1:-} in -h | --help) usage && exit ;; esac

hash=$(fingerprint echo.sh tools.sh modules/echo/*)
reference=sluice-dev/echo:$hash
archive=$cache/echo-$hash.tar
if [ ! -e "$archive" ]; then
  require jq=jq
  folder=$("$kind_dir/tools.sh" echo)
  lock echo
  image_archive "$archive" "$reference" "$folder" '{"Entrypoint": ["/echo"], "User": "65534:65534", "Env": ["GODEBUG=disablethp=1"], "ExposedPorts": {"8080/tcp": {}}}' --owner=0 --group=0
  find "$cache" -maxdepth 1 -name 'echo-*.tar' ! -path "$archive" -delete
fi
echo "$archive"
echo "$reference"
