#!/usr/bin/env bash
# Takes kind clusters down, with their kubeconfigs in the cache. A cluster that is not there is no error.
#
#   down.sh NAME...
#   down.sh --all     every cluster whose name begins with "sluice-"
#
# The node image, the compiled tools and the Docker daemon stay.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case ${1:---help} in
  -h | --help) usage && exit ;;
  --all)
    mapfile -t names < <({
      docker ps --all --filter label=io.x-k8s.kind.cluster --format '{{.Label "io.x-k8s.kind.cluster"}}'
      ls "$state" 2>/dev/null
    } | grep "^$cluster_prefix" | sort -u)
    set -- "${names[@]}"
    ;;
esac
check_cluster_names "$@"

# shellcheck disable=SC2317 # called through step
remove() {
  containers "$1" | xargs -r docker rm --force --volumes
  rm -rf "${state:?}/$1" "$kubeconfigs/$1".{,internal.}kubeconfig
}

for name; do
  (
    lock "cluster-$name"
    step "$name: removing" remove "$name"
  ) &
done
status=0
for name; do wait -n || status=1; done
exit $status
