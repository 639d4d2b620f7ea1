#!/usr/bin/env bash
# Runs every fuzz target of the module, each for the given time (default 10s).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
time=${1:-10s}
grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u | while read -r package; do
  grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$package"/*_test.go | sed 's/^func //' | while read -r target; do
    echo "fuzz: $package $target for $time"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package" </dev/null
  done
done
