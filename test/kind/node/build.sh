#!/usr/bin/env bash
# Builds a kind node image from Go modules and Debian packages, without an image registry. Called by ../node-image.sh.
#
#   build.sh REFERENCE
#
# Compiling and debootstrap run side by side; then: root file system, images of the control plane, both joined.
set -euo pipefail
# shellcheck source=../lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
case ${1:---help} in -h | --help) usage && exit ;; esac
reference=$1
base=$reference-base
# Collecting garbage less often saves processor time, for more memory.
gogc=400

# Bookworm, because its systemd 252 still starts on cgroup v1; trixie's 257 refuses to.
suite=bookworm
packages=systemd,systemd-sysv,dbus,conntrack,iptables,nftables,iproute2,ethtool,util-linux,mount,kmod,libseccomp2
packages+=,e2fsprogs,bash,ca-certificates,curl,jq,procps,ipset,socat
debian=$cache/debian-$suite-$(sha256sum <<<"$packages" | cut -c1-12)

work=$cache/node-build
rootfs=$work/rootfs
images=$work/images

compile() {
  step "node image: building Kubernetes (once)" nice "$kind_dir/../kubernetes/build.sh"
  "$kind_dir/tools.sh" kind cni containerd coredns crictl pause runc >/dev/null
}

download_debian() {
  rm -rf "$debian.part"
  debootstrap --variant=minbase --include="$packages" "$suite" "$debian.part"
  mv "$debian.part" "$debian"
}

# files_of_kind copies what kind lays over its base image, from the kind module itself.
files_of_kind() {
  local source file mode
  source=$(cd "$kind_dir/modules/kind" && go mod download -json sigs.k8s.io/kind | jq --raw-output .Dir)/images/base/files
  (cd "$source" && find . -type f ! -path './LICENSES/*') | while read -r file; do
    mode=644
    case $file in ./usr/local/bin/* | ./kind/bin/*) mode=755 ;; esac
    install -D -m $mode "$source/$file" "$rootfs/$file"
  done
  chmod 755 "$rootfs/kind" "$rootfs/kind/bin"
}

# configure_systemd keeps only what a node needs: containerd, kubelet and rules for pods, no devices, no mounts, no gettys.
configure_systemd() {
  local units=$rootfs/lib/systemd/system
  rm -f "$units"/{multi-user,local-fs,basic}.target.wants/* "$rootfs"/etc/systemd/system/*.wants/* \
    "$units"/sockets.target.wants/*{udev,initctl}* "$units"/sysinit.target.wants/systemd-tmpfiles-setup.service
  echo ReadKMsg=no >>"$rootfs/etc/systemd/journald.conf"
  echo "DefaultEnvironment=GOGC=$gogc" >>"$rootfs/etc/systemd/system.conf"
  ln -sf /usr/lib/systemd/systemd "$rootfs/sbin/init"
  install -m 644 "$kind_dir/node/pods.service" "$rootfs/etc/systemd/system/"
  SYSTEMD_OFFLINE=1 chroot "$rootfs" systemctl --quiet enable kubelet containerd pods undo-mount-hacks
  SYSTEMD_OFFLINE=1 chroot "$rootfs" systemctl --quiet mask systemd-binfmt.service
}

configure_containerd() {
  local config=$rootfs/etc/containerd/config.toml
  # restrict_oom_score_adj: without CAP_SYS_RESOURCE no process may go below its parent's score.
  sed -i -e "s#sandbox_image = .*#sandbox_image = \"$(image_of pause)\"#" \
    -e 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' "$config"
  # containerd writes the CNI configuration itself once the node has its pod CIDR: no CNI DaemonSet is needed.
  install -m 644 "$kind_dir/node/cni.template" "$rootfs/etc/cni/ptp.template"
  # Programs that each pod would run cost most where starting a process does: containerd sets up lo by itself, and no hook
  # hides the machine's product name, as kind's does.
  cat >>"$config" <<'TOML'

[plugins."io.containerd.grpc.v1.cri".cni]
  conf_template = "/etc/cni/ptp.template"
  use_internal_loopback = true
TOML
  chroot "$rootfs" ctr oci spec | jq 'del(.process.rlimits)' >"$rootfs/etc/containerd/cri-base.json"
}

assemble_rootfs() {
  cp -a "$debian" "$rootfs"
  rm -rf "$rootfs"/var/cache/apt/* "$rootfs"/var/lib/apt/lists/* "$rootfs"/usr/share/{doc,man,locale,info,lintian}/* "$rootfs"/var/log/*
  files_of_kind
  mkdir -p "$rootfs"/{etc/kubernetes/manifests,etc/cni/net.d,kind/manifests,opt/cni/bin}
  install -m 755 "${tools[containerd]}"/* "${tools[crictl]}"/* "$rootfs/usr/local/bin/"
  install -m 755 "${tools[runc]}"/* "$rootfs/usr/local/sbin/"
  install -m 755 "${tools[cni]}"/* "$rootfs/opt/cni/bin/"
  install -m 755 "$kubernetes"/{kubeadm,kubelet,kubectl} "$rootfs/usr/bin/"
  install -m 644 "$kind_dir/node/default-storage.yaml" "$rootfs/kind/manifests/"
  printf %s "$version" >"$rootfs/kind/version"
  configure_systemd
  configure_containerd
  image_archive "$work/base.tar" "$base" "$rootfs" \
    '{"Env": ["container=docker"], "Entrypoint": ["/usr/local/bin/entrypoint", "/sbin/init"], "StopSignal": "SIGRTMIN+3"}' \
    --exclude='./dev/*' --exclude='./proc/*' --exclude='./sys/*'
}

# image_of NAME: the full reference under which kubeadm asks for that image.
image_of() { grep -E "/$1:[^/]*\$" "$work/references"; }

# control_plane_image NAME BINARY...: an image with static binaries, the CA roots and /tmp; what lies in the folder already stays.
control_plane_image() {
  local name=$1 root=$images/$1
  shift
  mkdir -p "$root"/{usr/local/bin,tmp,etc/ssl/certs}
  chmod 1777 "$root/tmp"
  install -m 755 "$@" "$root/usr/local/bin/"
  install -m 644 "$rootfs/etc/ssl/certs/ca-certificates.crt" "$root/etc/ssl/certs/"
  printf 'root:x:0:0::/:\nnobody:x:65534:65534::/:\n' >"$root/etc/passwd"
  image_archive "$images/$name.tar" "$(image_of "$name")" "$root" \
    "{\"Env\": [\"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\", \"GOGC=$gogc\"], \"Entrypoint\": [\"/usr/local/bin/$name\"]}" \
    --owner=0 --group=0
}

# iptables_for_proxy copies the iptables and nft programs with everything they link. Some xtables plug-ins are symlinks and
# some need libm; with one file missing kube-proxy runs, is Ready and programs nothing.
iptables_for_proxy() (
  local root=$images/kube-proxy file name
  cd "$rootfs"
  for file in usr/sbin/{xtables-nft-multi,nft,conntrack,ipset} usr/lib/*-linux-gnu/xtables/*.so; do
    echo "$file"
    chroot "$rootfs" ldd "/$file" | grep -oE '/[^ ]+' | sed 's#^/##' || [ $? = 1 ]
  done | sort -u | while read -r file; do install -D -m 755 "$file" "$root/$file"; done
  for name in ip{,6}tables{,-save,-restore}; do ln -sf xtables-nft-multi "$root/usr/sbin/$name"; done
)

control_plane_images() {
  local name
  mkdir -p "$images"
  for name in kube-apiserver kube-controller-manager kube-scheduler; do control_plane_image "$name" "$kubernetes/$name"; done
  control_plane_image etcd "$kubernetes"/{etcd,etcdctl}
  control_plane_image coredns "${tools[coredns]}/coredns"
  iptables_for_proxy
  control_plane_image kube-proxy "$kubernetes/kube-proxy"
  install -D -m 755 "${tools[pause]}/pause" "$images/pause/pause"
  image_archive "$images/pause.tar" "$(image_of pause)" "$images/pause" '{"Entrypoint": ["/pause"], "User": "65535:65535"}' --owner=0 --group=0
}

# preload puts the control plane's images, compressed and not unpacked, into the containerd of a container of the base
# image and commits it: what `kind build node-image` does.
preload() {
  docker load --input "$work/base.tar"
  docker rm --force "$container" 2>/dev/null || true
  docker run --detach --privileged --entrypoint sleep --name "$container" "$base" infinity
  docker exec --interactive "$container" bash -euo pipefail -s <<'INSIDE'
nohup containerd >/run/containerd.log 2>&1 &
containerd=$!
for _ in {1..100}; do ctr version >/dev/null 2>&1 && break; sleep 0.1; done
ctr version
echo $containerd >/run/containerd.pid
INSIDE
  for archive in "$images"/*.tar; do
    docker exec --interactive "$container" ctr --namespace=k8s.io images import --label=io.cri-containerd.pinned=pinned \
      --all-platforms --no-unpack --compress-blobs --digests - <"$archive"
  done
  # The uncompressed originals leave only with a garbage collection, which the end of a lease forces: 435 MB less.
  docker exec --interactive "$container" bash -euo pipefail -s <<'INSIDE'
ctr --namespace k8s.io leases delete --sync "$(ctr --namespace k8s.io leases create)"
ctr --namespace k8s.io images list
containerd=$(cat /run/containerd.pid)
kill "$containerd"
while [ -e "/proc/$containerd" ] && ! grep -q '^State:.Z' "/proc/$containerd/status"; do sleep 0.1; done
rm -rf /run/containerd /run/containerd.log /run/containerd.pid
INSIDE
  docker commit --change 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]' --change 'LABEL dev.sluice.cni=ptp' "$container" "$reference"
  docker rm --force --volumes "$container"
  docker rmi "$base"
}

[ "$(id -u)" = 0 ] || fail "building a node image needs root (debootstrap, chroot); or reach a registry that has a node image"
require debootstrap=debootstrap jq=jq gcc=gcc /usr/include/seccomp.h=libseccomp-dev
rm -rf "$work"
mkdir -p "$work"

container=sluice-node-build-$$
compile &
compiling=$!
clean_up() {
  kill "$compiling" 2>/dev/null || true
  docker rm --force --volumes "$container" >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap clean_up EXIT
if [ ! -d "$debian" ]; then step "node image: downloading Debian $suite (once)" download_debian; fi
wait "$compiling" || fail "node image: compiling failed, see above"

kubernetes=$("$kind_dir/../kubernetes/build.sh" 2>/dev/null)
declare -A tools
for module in cni containerd coredns crictl pause runc; do tools[$module]=$("$kind_dir/tools.sh" "$module"); done
version=$("$kubernetes/kubeadm" version --output short)
"$kubernetes/kubeadm" config images list --kubernetes-version "$version" >"$work/references"

step "node image: assembling the root file system" assemble_rootfs
step "node image: packing the images of the control plane" control_plane_images
step "node image: joining both" preload
