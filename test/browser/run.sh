#!/usr/bin/env bash
# Tests the web console in Chromium, with axe-core. Installs Chromium and npm where they are missing, on Debian and as root,
# and axe-core, by package-lock.json beside it. With a folder as $SLUICE_SCREENSHOTS, it also makes the pictures of
# docs/console.md there. Arguments go to `go test`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source-path=SCRIPTDIR
source ../kind/lib.sh
say() { printf 'browser: %s\n' "$*" >&2; }
./chromium.sh
require npm=npm

# npm makes node_modules anew each time, so only when the lock file has changed.
digest=$(sha256sum package-lock.json)
if [ "$(cat node_modules/.digest 2>/dev/null)" != "$digest" ]; then
  step "installing axe-core" npm ci --ignore-scripts --no-audit --no-fund
  echo "$digest" >node_modules/.digest
fi
SLUICE_AXE=$PWD/node_modules/axe-core/axe.min.js go test -tags browser -vet=off -count=1 -run Browser "$@" ../../internal/console
