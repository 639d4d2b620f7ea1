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
[ "${1:---help}" != --help ] && [ "$1" != -h ] || { usage && exit; }
# Where Docker is installed it must run: after a reboot the containers of a cluster are stopped, not gone. Where it is not,
# there are none.
if command -v docker >/dev/null; then "$kind_dir/docker.sh"; else docker() { :; }; fi
case $1 in
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
