#!/usr/bin/env bash
# Checks with tools that are not Sluice's (jose, jsonld, a SHACL validator) what Sluice issues, and with Sluice what they
# issue; and the protocols of readers with one in Python. Installs Node and grpcio where they are missing, on Debian and as
# root, and the packages of package-lock.json beside it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source-path=SCRIPTDIR
source ../kind/lib.sh
say() { printf 'interop: %s\n' "$*" >&2; }
require node=nodejs npm=npm /usr/lib/python3/dist-packages/grpc=python3-grpcio /usr/lib/python3/dist-packages/google/protobuf=python3-protobuf
node --eval 'process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)' || fail "Node 18 or later is needed; this is $(node --version)"

# npm makes node_modules anew each time, so only when the lock file has changed.
digest=$(sha256sum package-lock.json)
if [ "$(cat node_modules/.digest 2>/dev/null)" != "$digest" ]; then
  step "installing the packages of test/interop" npm ci --ignore-scripts --no-audit --no-fund
  echo "$digest" >node_modules/.digest
fi
go test -tags interop -vet=off -count=1 "$@" .
