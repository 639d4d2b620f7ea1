#!/usr/bin/env bash
# Builds the load balancer that Cluster API's Docker provider puts in front of a control plane, from Debian's haproxy, and
# loads it into Docker under the name that the provider asks for.
#
#   haproxy.sh REFERENCE       for instance kindest/haproxy:v20230606-42a2262b
#
# The provider's configuration asks for more open files than a limited host allows, and haproxy would refuse it; the
# program of that name in the image first reads a configuration that lets it go on with fewer.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case ${1:---help} in -h | --help) usage && exit ;; esac

reference=$1
version=$(fingerprint haproxy.sh lib.sh)
has() { [ "$(docker image inspect --format '{{index .Config.Labels "dev.sluice.haproxy"}}' "$reference" 2>/dev/null)" = "$version" ]; }
if has; then exit; fi
lock haproxy
if has; then exit; fi
require jq=jq /usr/sbin/haproxy=haproxy /bin/busybox=busybox-static

root=$(mktemp -d "$cache/haproxy.XXXXXX")
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{bin,tmp,usr/sbin,usr/local/bin,usr/local/etc/haproxy}
cp /bin/busybox "$root/bin/"
for applet in sh cp cat tee mkdir mv rm chmod ls; do ln -s busybox "$root/bin/$applet"; done
cp /usr/sbin/haproxy "$root/usr/sbin/"
ldd /usr/sbin/haproxy | grep -o '/[^ ]*' | while read -r library; do
  install -D "$library" "$root$library"
done
cat >"$root/limits.cfg" <<'CFG'
global
  no strict-limits
CFG
cat >"$root/usr/local/bin/haproxy" <<'SH'
#!/bin/sh
exec /usr/sbin/haproxy -f /limits.cfg "$@"
SH
chmod 755 "$root/usr/local/bin/haproxy"
# Until the provider writes another one.
cat >"$root/usr/local/etc/haproxy/haproxy.cfg" <<'CFG'
defaults
  mode tcp
  timeout connect 5s
  timeout client 50s
  timeout server 50s
frontend none
  bind 127.0.0.1:1
CFG
config='{"Env": ["PATH=/usr/local/bin:/usr/sbin:/bin"], "Labels": {"dev.sluice.haproxy": "'$version'"}}'
image_archive "$root.tar" "$reference" "$root" "$config" --owner=0 --group=0
docker load --quiet --input "$root.tar" >/dev/null
rm -f "$root.tar"
