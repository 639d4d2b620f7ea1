#!/usr/bin/env bash
# Brings up kind clusters, side by side, and prints the folder of their kubeconfigs.
#
#   up.sh [--out DIR] [--workers N] [--same-ranges] NAME...
#
# A NAME begins with "sluice-". Each cluster has one control-plane node, N worker nodes (none by default) and pod and
# service subnets of its own, so that several can be joined without overlap. With --same-ranges they all have the same,
# as clusters of different owners often do. A cluster that is there, healthy, with the subnets wanted and of the current
# node image is reused; one that is not is made anew. In DIR (default: in the cache) are written
#
#   NAME.kubeconfig            for this host
#   NAME.internal.kubeconfig   for containers on the Docker network "kind", pods of other kind clusters included
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=parallel.sh
. "$kind_dir/parallel.sh"

out=$kubeconfigs workers=0 same_ranges=
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage && exit ;;
    --out) out=${2:?--out needs a folder} && shift 2 ;;
    --workers) workers=${2:?--workers needs a number} && shift 2 ;;
    --same-ranges) same_ranges=yes && shift ;;
    -*) fail "unknown option $1" ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || fail "which clusters? (see --help)"
[[ $workers =~ ^[0-9]+$ ]] || fail "--workers $workers: not a number"
check_cluster_names "$@"

# number_of NAME WHICH: the lowest that no other cluster has among its numbers of the same kind. A cluster keeps it until it
# is taken down. Its subnets are derived from the one called index, its part of common ones from the one called part.
number_of() (
  local file=$state/$1/$2 number
  lock index
  if [ ! -e "$file" ]; then
    for number in {1..99}; do
      grep -qsx "$number" "$state"/*/"$2" || break
    done
    mkdir -p "$state/$1"
    echo "$number" >"$file"
  fi
  cat "$file"
)

# subnets NAME: the two lines of the cluster's kind configuration that give its subnets. No index gives the common ones.
subnets() {
  local pods=10.210 services=10.220 index
  if [ -z "$same_ranges" ]; then
    index=$(number_of "$1" index)
    pods=10.$((10 + index)) services=10.$((110 + index))
  fi
  printf '  podSubnet: %s.0.0/16\n  serviceSubnet: %s.0.0/16\n' "$pods" "$services"
}

# configuration NAME: the kind configuration of the cluster.
configuration() {
  local worker archives="{hostPath: \"$cache\", containerPath: \"$node_cache\", readOnly: true}"
  cat <<YAML
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
name: $1
networking:
$(subnets "$1")
  # An image built here brings its own CNI; the official one has kindnet.
  disableDefaultCNI: $([ -n "$own_cni" ] && echo true || echo false)
kubeadmConfigPatches:
# One of each component, whose data outlives no crash of the machine: no elections, and no waiting for the disk.
- |
  kind: ClusterConfiguration
  apiVersion: kubeadm.k8s.io/v1beta3
  etcd: {local: {extraArgs: {unsafe-no-fsync: "true"}}}
  controllerManager: {extraArgs: {leader-elect: "false"}}
  scheduler: {extraArgs: {leader-elect: "false"}}
# Questions each second, whether components are ready and what each container uses, take a third of an idle cluster's
# processor time: they come less often here. The patches also have components collect garbage less often.
- |
  kind: InitConfiguration
  apiVersion: kubeadm.k8s.io/v1beta3
  patches: {directory: /kind/patches}
containerdConfigPatches:
- |-
  [plugins."io.containerd.cri.v1.runtime"]
    stats_collect_period = "1m"
nodes:
- role: control-plane
  image: "$image"
  extraMounts:
  - {hostPath: "$kind_dir/patches", containerPath: /kind/patches, readOnly: true}
  - $archives
YAML
  for ((worker = 0; worker < workers; worker++)); do echo "- {role: worker, image: \"$image\", extraMounts: [$archives]}"; done
}

# ready NAME SECONDS: waits until the cluster really works; see ready.sh.
ready() { docker exec --interactive "$1-control-plane" bash -euo pipefail -s -- "$2" $((workers + 1)) "$(address_of "$1")" <"$kind_dir/ready.sh"; }

# address_of NAME: the control-plane node's address on the Docker network. It may change when Docker is restarted.
address_of() { docker inspect --format '{{.NetworkSettings.Networks.kind.IPAddress}}' "$1-control-plane"; }

# reusable NAME: whether all nodes run the current image, in the number and as configured here, and work. Where this checkout
# is, and so its patches, does not matter.
reusable() {
  local id
  [ "$(grep -v patches, "$state/$1/kind.yaml" 2>/dev/null)" = "$(configuration "$1" | grep -v patches,)" ] ||
    { say "$1: has other subnets or settings"; return 1; }
  [ "$(containers "$1" | wc -l)" = $((workers + 1)) ] || { say "$1: has another number of nodes"; return 1; }
  for id in $(containers "$1"); do
    [ "$(docker inspect --format '{{.State.Running}} {{.Image}}' "$id")" = "true $image_id" ] ||
      { say "$1: a node is stopped or of another image"; return 1; }
  done
  ready "$1" 30 >"$cache/logs/ready-$1" 2>&1 || { say "$1: $(tail -n 1 "$cache/logs/ready-$1")"; return 1; }
}

# route_pods NAME: lets pods of different nodes reach each other. The ptp plug-in only connects pods with their node.
route_pods() {
  local nodes node other cidr address
  nodes=$(docker exec "$1-control-plane" kubectl --kubeconfig /etc/kubernetes/admin.conf get nodes \
    --output jsonpath='{range .items[*]}{.metadata.name} {.spec.podCIDR} {.status.addresses[?(@.type=="InternalIP")].address}{"\n"}{end}')
  while read -r node _; do
    while read -r other cidr address; do
      [ "$node" = "$other" ] || docker exec "$node" ip route replace "$cidr" via "$address"
    done <<<"$nodes"
  done <<<"$nodes"
}

# slice_pods NAME: lets each of four clusters with the same subnets number its pods, 60 on a node, from elsewhere in them:
# clusters that are new would otherwise give the same few addresses to all their pods, which large ones do not. Each node
# has 256 addresses of the pod subnet. Pods that have started already, CoreDNS's, keep theirs.
slice_pods() {
  local first node
  first=$((10 + $(number_of "$1" part) % 4 * 60))
  for node in $(containers "$1"); do
    docker exec "$node" bash -c 'until [ -e /etc/cni/net.d/10-containerd-net.conflist ]; do sleep 0.2; done
      sed -i "s#\"subnet\": \"\(.*\)\.0/24\"#&, \"rangeStart\": \"\1.$0\", \"rangeEnd\": \"\1.$1\"#" /etc/cni/net.d/10-containerd-net.conflist
      grep -q rangeStart /etc/cni/net.d/10-containerd-net.conflist' $first $((first + 59))
  done
}

# enforce NAME: has NetworkPolicies enforced, of which the ptp plug-in knows nothing: by kube-router on every node, as a
# firewall and nothing else. (kindnet of the official image enforces them itself.)
enforce() {
  local node
  (umask 077 && docker exec "$1-control-plane" cat /etc/kubernetes/admin.conf >"$state/$1/kube-router.conf")
  for node in $(containers "$1"); do
    if docker exec "$node" systemctl is-active --quiet kube-router; then continue; fi
    docker cp "$router/kube-router" "$node:/usr/local/bin/kube-router"
    docker cp "$state/$1/kube-router.conf" "$node:/etc/kubernetes/kube-router.conf"
    # shellcheck disable=SC2016 # the node's own name
    docker exec "$node" bash -euc 'systemd-run --quiet --unit=kube-router --property=Restart=always kube-router --run-router=false \
      --run-firewall=true --run-service-proxy=false --kubeconfig=/etc/kubernetes/kube-router.conf --hostname-override="$(hostname)"'
  done
}

create() {
  configuration "$1" >"$state/$1/kind.yaml"
  containers "$1" | xargs -r docker rm --force --volumes
  # Its kubeconfig goes to the state folder: ~/.kube/config is the user's.
  "$kind" create cluster --config "$state/$1/kind.yaml" --kubeconfig "$state/$1/kubeconfig"
  # What a killed run leaves behind must not come back with the daemon and take the processors of the next.
  containers "$1" | xargs docker update --restart=no >/dev/null
  if ((workers)) && [ -n "$own_cni" ]; then
    timeout 60 bash -c "until [ \$(docker exec $1-control-plane kubectl --kubeconfig /etc/kubernetes/admin.conf get nodes \
      --output jsonpath='{.items[*].spec.podCIDR}' | wc -w) = $((workers + 1)) ]; do sleep 0.5; done"
    route_pods "$1"
  fi
  if [ -n "$same_ranges" ] && [ -n "$own_cni" ]; then slice_pods "$1"; fi
  ready "$1" 180
}

write_kubeconfigs() {
  umask 077
  "$kind" get kubeconfig --name "$1" >"$out/.$1"
  mv "$out/.$1" "$out/$1.kubeconfig"
  sed "s#^\( *server: \).*#\1https://$(address_of "$1"):6443#" "$out/$1.kubeconfig" >"$out/.$1"
  mv "$out/.$1" "$out/$1.internal.kubeconfig"
}

up() (
  lock "cluster-$1"
  mkdir -p "$state/$1"
  if [ -n "$(containers "$1")" ] && reusable "$1"; then
    say "$1: reused"
  else
    step "$1: creating" create "$1"
  fi
  if [ -n "$own_cni" ]; then step "$1: enforcing NetworkPolicies" enforce "$1"; fi
  write_kubeconfigs "$1"
)

image=$("$kind_dir/node-image.sh")
image_id=$(docker image inspect --format '{{.Id}}' "$image")
own_cni=$(docker image inspect --format '{{index .Config.Labels "dev.sluice.cni"}}' "$image")
kind=$("$kind_dir/tools.sh" kind)/kind
router=
if [ -n "$own_cni" ]; then router=$("$kind_dir/tools.sh" kube-router); fi
mkdir -p "$out"

each up "$@"
(cd "$out" && pwd)
