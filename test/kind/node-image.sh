#!/usr/bin/env bash
# Makes sure that the Docker daemon has a kind node image, and prints its reference.
#
#   node-image.sh [--build]
#
# In this order: the image built here earlier; its archive in the cache; the official image for this version of kind,
# when a registry answers at once; and last, building it (about ten minutes, once per machine).
#   --build              never ask a registry
#   SLUICE_NODE_IMAGE    an image to use in place of the official one, for example from a mirror
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
registry=yes
case ${1:-} in
  -h | --help) usage && exit ;;
  --build) registry=no ;;
  ?*) fail "unknown argument $1" ;;
esac

# Kubernetes 1.34 of kind v0.33.0: newer kubelets refuse cgroup v1.
official=${SLUICE_NODE_IMAGE:-kindest/node:v1.34.11@sha256:44e222ee2132dab25ff87301682f89eb82c7880ea3a1bf543bfe9708fd08d67d}
hash=$(fingerprint tools.sh node/* modules/{cni,containerd,coredns,crictl,kind,pause,runc}/* ../kubernetes/{build.sh,go.mod,go.sum})
reference=sluice-dev/kind-node:$hash
archive=$cache/node-image-$hash.tar

present() { docker image inspect "$1" >/dev/null 2>&1; }

# pull gives the registry 15 s to name the layers and 5 min to deliver them.
pull() {
  local log=$cache/logs/pull began=$SECONDS pid
  docker pull "$official" >"$log" 2>&1 </dev/null &
  pid=$!
  while kill -0 $pid 2>/dev/null; do
    if ((SECONDS - began > 300)) || { ((SECONDS - began > 15)) && ! grep -q 'Pulling fs layer' "$log"; }; then kill $pid; fi
    sleep 0.1
  done
  if wait $pid; then
    say "node image: pulled $official … $((SECONDS - began)) s"
  else
    say "node image: no registry is reached from here, so it is built, once"
    return 1
  fi
}

save() {
  docker save --output "$archive.part" "$reference"
  rm -f "$cache"/node-image-*.tar
  mv "$archive.part" "$archive"
}

# forget_older removes earlier images built here, except those that containers still use.
forget_older() {
  docker images --format '{{.Repository}}:{{.Tag}}' sluice-dev/kind-node | grep -vxF "$reference" | xargs -r docker rmi >/dev/null 2>&1 || true
}

"$kind_dir/docker.sh"
lock node-image
if ! present "$reference"; then
  if [ -e "$archive" ]; then
    step "node image: loading $archive" docker load --input "$archive"
  elif [ $registry = yes ] && { present "$official" || pull; }; then
    echo "$official"
    exit
  else
    began=$SECONDS
    "$kind_dir/node/build.sh" "$reference"
    say "node image: built $reference … $((SECONDS - began)) s"
  fi
  forget_older
fi
[ -e "$archive" ] || step "node image: saving it for the next Docker" save
echo "$reference"
