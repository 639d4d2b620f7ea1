#!/usr/bin/env bash
# Installs Chromium where it is missing, on Debian and as root.
set -euo pipefail
# shellcheck source=../kind/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../kind/lib.sh"
require chromium=chromium
