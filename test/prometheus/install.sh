#!/usr/bin/env bash
# Prints the folder of prometheus and promtool: the installed ones, or those of Debian's package prometheus, which is
# unpacked into the cache on first use. It is not installed, because that would start a server; so it needs no root either.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source-path=SCRIPTDIR
source ../kind/lib.sh
if command -v prometheus promtool >/dev/null; then
  dirname "$(command -v prometheus)"
  exit
fi
kept=$(dirname "$cache")/prometheus

unpack() {
  local work
  work=$(mktemp -d "$kept.XXXXXX")
  cd "$work"
  apt-get download prometheus || {
    flock "$cache/locks/packages" apt-get -o DPkg::Lock::Timeout=300 update
    apt-get download prometheus
  }
  dpkg-deb -x prometheus_*.deb .
  rm prometheus_*.deb
  mv -T "$work" "$kept"
}

lock prometheus
if [ ! -x "$kept/usr/bin/promtool" ]; then
  [ -e /etc/debian_version ] || fail "missing: prometheus and promtool; install them and run this again"
  rm -rf "$kept"
  step "fetching Debian's package prometheus" unpack
fi
echo "$kept/usr/bin"
