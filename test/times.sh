#!/usr/bin/env bash
# Runs targets of the Makefile one after the other and says how long each took, and how busy the processors of the
# machine were meanwhile; the first that fails ends it.
#
#   times.sh TARGET[+TARGET...] ...
#
# Targets joined by + run side by side. The table is printed at the end, and kept in bin/times.tsv: the time, the
# commit, the targets, seconds, the share of the processors' time in per cent, and whether they passed.
set -euo pipefail
case ${1:-} in '' | -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" && exit ;; esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p bin
commit=$(git describe --always --dirty 2>/dev/null || echo unknown)
rows=()

# A page fault costs most on a virtual machine: with pages of 2 MiB, Sluice starts there in less than half of the time, and
# a kube-apiserver too (docs/performance.md). On kind they gain little, and pods with small limits of memory may exceed these.
pages=/sys/kernel/mm/transparent_hugepage/enabled
if [ -w $pages ] && ! grep -qF '[always]' $pages; then
  before=$(sed 's/.*\[\(.*\)\].*/\1/' $pages)
  trap 'echo "$before" >$pages' EXIT
  echo "test: transparent huge pages are always used, but not on kind; after the end $before again"
fi

# use_pages says how the kernel uses large pages for the given targets: those on kind run e2e.test.
use_pages() {
  [ -n "${before-}" ] || return 0
  # shellcheck disable=SC2086 # several targets
  if ${MAKE:-make} --dry-run ${1//+/ } | grep -F e2e.test >/dev/null; then echo "$before"; else echo always; fi >$pages
}

# ticks prints the processors' time since the machine started, in ticks: busy and in all (proc_stat(5)).
ticks() { awk '/^cpu /{all = $2 + $3 + $4 + $5 + $6 + $7 + $8 + $9; print all - $5 - $6, all; exit}' /proc/stat; }

table() {
  printf '\n%-22s %9s %6s\n' "what" "min:s" "busy"
  local row total=0 name seconds busy result
  for row in "${rows[@]}"; do
    IFS=$'\t' read -r name seconds busy result <<<"$row"
    total=$((total + seconds))
    printf '%-22s %6d:%02d %5d%%  %s\n' "$name" $((seconds / 60)) $((seconds % 60)) "$busy" "$result"
  done
  printf '%-22s %6d:%02d\n' "together" $((total / 60)) $((total % 60))
}

for targets in "$@"; do
  began=$SECONDS result=passed
  use_pages "$targets"
  read -r busy all < <(ticks)
  # shellcheck disable=SC2086 # several targets
  ${MAKE:-make} --no-print-directory --jobs ${targets//+/ } || result=failed
  read -r busyNow allNow < <(ticks)
  rows+=("$targets"$'\t'"$((SECONDS - began))"$'\t'"$((100 * (busyNow - busy) / (allNow - all + 1)))"$'\t'"$result")
  printf '%s\t%s\t%s\n' "$(date -u +%FT%TZ)" "$commit" "${rows[-1]}" >>bin/times.tsv
  [ $result = passed ] || break
done
table
[ $result = passed ]
