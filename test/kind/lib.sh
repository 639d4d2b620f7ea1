# shellcheck shell=bash
# What the scripts of this folder share. Sourced, never run; the caller has said `set -euo pipefail`.
# Progress goes to stderr, results go to stdout.

kind_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${SLUICE_CACHE:-$HOME/.cache/sluice}/kind
state=$cache/clusters          # one folder per cluster: its index, its configuration
kubeconfigs=$cache/kubeconfigs # where up.sh writes unless told otherwise
cluster_prefix=sluice-         # only clusters so named are ever touched
node_cache=/kind/cache         # the cache as nodes see it
mkdir -p "$cache/locks" "$cache/logs"
export cache state kubeconfigs cluster_prefix node_cache GOWORK=off

# Bash lets background commands ignore Ctrl-C; pass it on. The Docker daemon has a process group of its own.
trap 'trap - TERM; kill 0' INT

say() { printf 'kind: %s\n' "$*" >&2; }
fail() {
  printf 'kind: error: %s\n' "$*" >&2
  exit 1
}

# usage: the comment at the top of the script is its help.
usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }

# step WHAT COMMAND...: runs the command, its output in a log, and says how long it took; every 15 s it says that it
# still runs. When the command fails, the end of the log is shown and the script ends.
# Never call it in a condition: bash would then ignore errors inside the command, if that is a function.
# Its variables bear its name because the command, if a function, sees them.
step() {
  local step_what=$1 step_began=$SECONDS step_log step_pid step_status=0
  shift
  step_log=$(mktemp "$cache/logs/XXXXXX")
  "$@" >"$step_log" 2>&1 </dev/null &
  step_pid=$!
  # A loop with sleep would start ten processes a second beside each step.
  until timeout --foreground 15 tail --pid="$step_pid" --sleep-interval=0.1 --follow /dev/null; do
    say "$step_what … $((SECONDS - step_began)) s so far"
  done
  wait "$step_pid" || step_status=$?
  if ((step_status)); then
    tail -n 30 "$step_log" | sed 's/^/  | /' >&2
    fail "$step_what failed after $((SECONDS - step_began)) s (exit status $step_status); whole log: $step_log"
  fi
  rm -f "$step_log"
  say "$step_what … $((SECONDS - step_began)) s"
}

# lock NAME: waits until no other run holds the lock, then holds it until this shell ends.
lock() {
  local fd
  exec {fd}>"$cache/locks/$1"
  flock --nonblock "$fd" && return
  say "waiting for another run that is busy with $1"
  flock "$fd"
}

# fingerprint PATTERN...: twelve hexadecimal digits that change with the name or content of any file of this folder that
# matches a pattern, whatever folder the caller stands in.
# shellcheck disable=SC2068 # the patterns are to be expanded here
fingerprint() { (cd "$kind_dir" && sha256sum -- $@) | sha256sum | cut -c1-12; }

# require THING=PACKAGE...: installs the Debian packages whose thing, a command or an absolute path, is missing.
require() {
  local pair missing=()
  for pair; do
    case $pair in
      /*) [ -e "${pair%%=*}" ] || missing+=("${pair#*=}") ;;
      *) command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}") ;;
    esac
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  [ -e /etc/debian_version ] || fail "missing: ${missing[*]} (names of Debian packages); install them and run this again"
  [ "$(id -u)" = 0 ] || fail "missing packages; run: sudo apt-get install ${missing[*]}"
  step "installing ${missing[*]}" install_packages "${missing[@]}"
}

# install_packages NAME...: one run after the other, because apt-get does not wait for another one that updates its lists.
# What a package starts does not keep the lock.
install_packages() {
  DEBIAN_FRONTEND=noninteractive flock --close "$cache/locks/packages" bash -euc '
    apt-get -o DPkg::Lock::Timeout=300 update
    apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@"' install_packages "$@"
}

# image_archive OUT REFERENCE ROOT CONFIG [TAR OPTION...]: packs the folder ROOT as a container image of one layer, in the
# format of `docker save`. CONFIG is the JSON of an OCI image's "config". Needs jq but no Docker; same input, same bytes.
image_archive() {
  local out=$1 reference=$2 root=$3 config=$4 work layer
  shift 4
  chmod 755 "$root" # the image's /, which any user must be able to enter; mktemp makes folders that only root can
  work=$(mktemp -d "$cache/archive.XXXXXX")
  tar --directory "$root" --sort=name --mtime=@0 --numeric-owner --one-file-system "$@" -cf "$work/layer.tar" .
  layer=$(sha256sum "$work/layer.tar" | cut -d' ' -f1)
  jq -n --arg architecture "$(go env GOARCH)" --arg layer "sha256:$layer" --argjson config "$config" \
    '{$architecture, os: "linux", created: "1970-01-01T00:00:00Z", $config, rootfs: {type: "layers", diff_ids: [$layer]},
      history: [{created: "1970-01-01T00:00:00Z"}]}' >"$work/config.json"
  jq -n --arg reference "$reference" '[{Config: "config.json", RepoTags: [$reference], Layers: ["layer.tar"]}]' >"$work/manifest.json"
  tar --directory "$work" --sort=name --mtime=@0 --numeric-owner --owner=0 --group=0 -cf "$out.part" manifest.json config.json layer.tar
  mv "$out.part" "$out"
  rm -rf "$work"
}

# containers CLUSTER: the ids of the cluster's node containers, running or not.
containers() { docker ps --all --quiet --filter "label=io.x-k8s.kind.cluster=$1"; }

# check_cluster_names NAME...: ends the script unless every name is one that these scripts may touch.
check_cluster_names() {
  local name
  for name; do
    [[ $name =~ ^${cluster_prefix}[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$ ]] ||
      fail "cluster name \"$name\": want $cluster_prefix followed by lower-case letters, digits and dashes"
  done
}
