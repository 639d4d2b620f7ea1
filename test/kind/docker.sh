#!/usr/bin/env bash
# Makes sure that a Docker daemon answers and that it can run kind nodes; starts one where there is none.
#
#   docker.sh
#
# Starting one needs root on Debian: missing packages are installed, the daemon runs in the background and outlives
# this script. Anywhere else, or when the running daemon cannot run privileged containers, the error says what to do.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case ${1:-} in -h | --help) usage && exit ;; esac

pidfile=/var/run/docker.pid
settings=/etc/docker/daemon.json
runtime=/usr/local/bin/runc-lowcap # a copy: the daemon must find it when this checkout and the cache are gone
with_runtime="{\"runtimes\": {\"runc-lowcap\": {\"path\": \"$runtime\"}}, \"default-runtime\": \"runc-lowcap\"}"
log=$cache/dockerd.log

answers() { docker info >/dev/null 2>&1; }

# lacks_sys_resource PID: whether the capability bounding set of the process is without CAP_SYS_RESOURCE.
lacks_sys_resource() {
  local bounding
  bounding=$(sed -n 's/^CapBnd:[[:space:]]*//p' "/proc/$1/status")
  ((!(0x$bounding >> 24 & 1)))
}

# check_runtime ends the script when the daemon that answers would fail on every privileged container.
check_runtime() {
  local pid
  pid=$(cat $pidfile 2>/dev/null) && [ -d "/proc/$pid" ] || return 0 # a daemon elsewhere: nothing to be learnt about it
  lacks_sys_resource "$pid" || return 0
  [ "$(docker info --format '{{.DefaultRuntime}}')" = runc ] || return 0
  fail "the Docker daemon (process $pid) lacks CAP_SYS_RESOURCE, so privileged containers, which kind nodes are, cannot start.
Remedy: install -m 755 '$kind_dir/runc-lowcap' $runtime
Put the following into $settings, then: kill -HUP $pid
$with_runtime"
}

# raise KEY MINIMUM: Debian's 128 inotify instances end after about three kind nodes.
raise() {
  local file=/proc/sys/${1//.//}
  (($(cat "$file") < $2)) || return 0
  if [ -w "$file" ]; then
    echo "$2" >"$file"
  else
    say "warning: $1 is $(cat "$file"); several clusters need more: sudo sysctl -w $1=$2"
  fi
}

# running: whether the process in the pidfile is a Docker daemon. After a power cut it may be any process of today.
running() { [ "$(cat "/proc/$(cat $pidfile 2>/dev/null)/comm" 2>/dev/null)" = dockerd ]; }

start() {
  local deadline=$((SECONDS + 60))
  while running; do # it is on its way up, or down
    if answers; then return; fi
    ((SECONDS < deadline)) || { echo "process $(cat $pidfile) is a Docker daemon and does not answer"; return 1; }
    sleep 0.2
  done
  rm -f $pidfile
  local options=(--pidfile "$pidfile")
  if lacks_sys_resource self; then
    install -m 755 "$kind_dir/runc-lowcap" "$runtime"
    # A file of ours, for the daemon refuses a default runtime that is both a flag and in the machine's settings.
    { cat "$settings" 2>/dev/null || true; } | jq --slurp "(add // {}) * $with_runtime" >"$cache/daemon.json"
    options+=(--config-file "$cache/daemon.json")
  fi
  (
    for fd in /proc/self/fd/*; do # the daemon must not inherit, and so hold for ever, the locks of this run
      fd=${fd##*/}
      if ((fd > 2)); then eval "exec $fd>&-"; fi
    done
    # The images are built at the lowest priority; the nodes of later clusters must not inherit that.
    exec setsid nohup nice -n "-$(nice)" dockerd "${options[@]}" >>"$log" 2>&1 </dev/null
  ) &
  local pid=$!
  until answers; do
    kill -0 $pid 2>/dev/null || { tail -n 20 "$log"; echo "dockerd ended; whole log: $log"; return 1; }
    ((SECONDS < deadline)) || { tail -n 20 "$log"; echo "dockerd does not answer; whole log: $log"; return 1; }
    sleep 0.2
  done
}

lock docker
if [ -e /proc/sys/fs/inotify ]; then
  raise fs.inotify.max_user_instances 2048
  raise fs.inotify.max_user_watches 524288
fi
if ! answers; then
  [ -z "${DOCKER_HOST:-}" ] || fail "no Docker daemon answers at DOCKER_HOST=$DOCKER_HOST"
  [ -e /etc/debian_version ] || fail "no Docker daemon answers; install Docker, start it, and run this again"
  [ "$(id -u)" = 0 ] || fail "no Docker daemon answers; start it (sudo systemctl start docker), join its group, or run this as root"
  require dockerd=docker.io iptables=iptables jq=jq
  answers || step "starting dockerd (log: $log)" start # where there is an init system, installing it has started it
fi
check_runtime
