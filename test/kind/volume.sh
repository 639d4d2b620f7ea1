#!/usr/bin/env bash
# Makes an empty volume of 1 GiB, of the StorageClass standard, on a kind cluster: those built here provision none.
#
#   volume.sh CLUSTER NAME
#
# One of that name is made anew, unless it is bound.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case ${1:---help} in -h | --help) usage && exit ;; esac
[ $# = 2 ] || fail "want CLUSTER NAME (see --help)"
check_cluster_names "$1"
[[ $2 =~ ^[a-z0-9][-a-z0-9]*$ ]] || fail "name of a volume \"$2\": want lower-case letters, digits and dashes"
node=$1-control-plane name=$2 path=/var/lib/sluice-volumes/$2

kubectl() { docker exec --interactive "$node" kubectl --kubeconfig /etc/kubernetes/admin.conf "$@"; }

# shellcheck disable=SC2317 # called through step
make_volume() {
  kubectl delete persistentvolume "$name" --ignore-not-found
  docker exec "$node" sh -c "rm -rf $path; mkdir -p -m 777 $path"
  kubectl apply --filename - <<YAML
{apiVersion: v1, kind: PersistentVolume, metadata: {name: $name}, spec: {
  storageClassName: standard, capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: $path}}}
YAML
}

phase=$(kubectl get persistentvolume "$name" --ignore-not-found --output jsonpath='{.status.phase}')
[ "$phase" = Bound ] || step "$1: making the volume $name" make_volume
