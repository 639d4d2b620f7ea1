#!/usr/bin/env bash
# Installs Liqo, with its networking, on kind clusters, side by side. Each cluster's name is its cluster id in Liqo.
#
#   liqo.sh NAME...
#
# It is a modified Liqo, for tests only (liqo-images.sh says in what), from the chart that modules/liqo pins. WireGuard runs
# in user space, and every cluster has the external range 10.70.0.0/16: with clusters made by up.sh --same-ranges, no range
# of one is free in another. Nothing is peered. Metrics, telemetry and storage are left out. A cluster that has this
# Liqo already is only checked.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=parallel.sh
. "$kind_dir/parallel.sh"
case ${1:---help} in -h | --help) usage && exit ;; esac
check_cluster_names "$@"
for name; do
  [ -n "$(containers "$name")" ] || fail "no cluster $name; bring it up with up.sh --same-ranges $name"
done

# cluster NAME COMMAND...: kubectl in the cluster's control-plane node.
cluster() { docker exec --interactive "$1-control-plane" kubectl --kubeconfig /etc/kubernetes/admin.conf "${@:2}"; }

# has_images NAME: whether every node has all images.
has_images() {
  local id
  for id in $(containers "$1"); do
    [ "$(docker exec "$id" ctr --namespace k8s.io images ls --quiet 2>/dev/null | grep -c ":$tag\$")" = ${#archives[@]} ] || return 1
  done
}

# installed NAME: whether the cluster has the release that this script would make.
installed() {
  [ "$("$helm" --kubeconfig "$state/$1/kubeconfig" --namespace liqo status liqo --output json 2>/dev/null |
    jq --raw-output '.info.status + " " + .info.description')" = "deployed $(release "$1")" ]
}

# values NAME: the chart's values for the cluster.
values() {
  local subnets=$state/$1/kind.yaml
  cat <<YAML
tag: $tag
discovery: {config: {clusterID: $1}}
ipam:
  podCIDRs: [$(sed -n 's/^  podSubnet: //p' "$subnets")]
  serviceCIDR: $(sed -n 's/^  serviceSubnet: //p' "$subnets")
  externalCIDR: 10.70.0.0/16
  internal: {image: {name: liqotech/ipam}}
networking:
  fabric: {image: {name: liqotech/fabric}}
  gatewayTemplates:
    wireguard: {implementation: userspace}
    container:
      gateway: {image: {name: liqotech/gateway}}
      wireguard: {image: {name: liqotech/gateway/wireguard}}
      geneve: {image: {name: liqotech/gateway/geneve}}
controllerManager: {image: {name: liqotech/liqo-controller-manager}}
crdReplicator: {image: {name: liqotech/crd-replicator}}
webhook: {image: {name: liqotech/webhook}}
virtualKubelet: {image: {name: liqotech/virtual-kubelet}}
proxy: {image: {name: liqotech/proxy}}
metricAgent: {enabled: false}
telemetry: {enabled: false}
storage: {enabled: false}
YAML
}

# release NAME: describes the cluster's release, so that another one is told from it.
release() { values "$1" | sha256sum | cut -c1-12; }

install_liqo() {
  values "$1" | "$helm" --kubeconfig "$state/$1/kubeconfig" --namespace liqo upgrade --install liqo "$chart" \
    --create-namespace --values - --description "$(release "$1")" --wait --timeout 5m
}

# works NAME: waits until the ranges are allocated and the webhooks are called with the right certificate.
works() {
  cluster "$1" --namespace liqo rollout status --timeout 60s deployment liqo-controller-manager liqo-crd-replicator liqo-ipam liqo-proxy liqo-webhook
  cluster "$1" --namespace liqo rollout status --timeout 60s daemonset liqo-fabric
  cluster "$1" --namespace liqo wait --timeout 60s --for 'jsonpath={.status.cidr}' networks.ipam.liqo.io --all
  timeout 60 bash -c "until docker exec --interactive $1-control-plane kubectl --kubeconfig /etc/kubernetes/admin.conf create \
    --dry-run=server --filename - <<<'{apiVersion: offloading.liqo.io/v1beta1, kind: NamespaceOffloading, metadata: {name: offloading, namespace: default}, spec: {}}'; do
      sleep 0.5
    done"
}

up() (
  lock "cluster-$1"
  has_images "$1" || "$kind_dir/load.sh" "$1" "${archives[@]}"
  if installed "$1"; then say "$1: has this Liqo"; else step "$1: installing Liqo" install_liqo "$1"; fi
  step "$1: waiting until Liqo works" works "$1"
)

require jq=jq
mapfile -t images < <("$kind_dir/liqo-images.sh")
[ ${#images[@]} -gt 1 ] || fail "there are no images of Liqo"
tag=${images[0]} archives=("${images[@]:1}")
helm=$("$kind_dir/tools.sh" helm)/helm
chart=$(cd "$kind_dir/modules/liqo" && go list -m -f '{{.Dir}}' github.com/liqotech/liqo)/deployments/liqo

each up "$@"
