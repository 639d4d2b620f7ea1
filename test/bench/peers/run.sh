#!/usr/bin/env bash
# Measures placement decisions of Sluice and of its peers, one after the other on this machine, and prints one table a
# question: median (99th percentile) and garbage of a decision.
#
#   run.sh [-quick] [-budget 2s]
#
# Each peer is a Go module of its own, with the versions that it was built with; the first run downloads and builds them,
# which takes some minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
case ${1:-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' run.sh; exit ;; esac
for peer in sluice karmada ocm kubescheduler; do
  echo "peers: building $peer" >&2
  (cd $peer && go build -o /dev/null .)
done
for peer in sluice karmada ocm kubescheduler; do
  (cd $peer && go run . "$@")
done | (cd fleet && go run ./report)
