# Sourced: each FUNCTION CLUSTER... calls the function with each cluster's name, as many at a time as there are processors:
# more only makes each of them slower. It ends the script, after all calls, if one failed. Call it as a plain command: in a
# condition, bash ignores that commands of the function fail.
# shellcheck shell=bash
each() {
  local function=$1 name pid failed=0 pids=()
  shift
  for name; do
    while (($(jobs -rp | wc -l) >= $(nproc))); do
      wait -n || true # which of them failed is asked below
    done
    "$function" "$name" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do
    wait "$pid" || failed=1
  done
  ((!failed)) || fail "not every cluster is as it should be, see above"
}
