#!/usr/bin/env bash
# Builds an image of PostgreSQL from Debian packages and prints two lines: its archive, and its reference.
#
#   postgresql.sh
#
# It takes the environment of the official image, and runs as user 999. Load the archive with load.sh.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case ${1:-} in -h | --help) usage && exit ;; esac

hash=$(fingerprint postgresql.sh postgresql/*)
reference=sluice-dev/postgresql:$hash
archive=$cache/postgresql-$hash.tar

build() {
  local root=$cache/postgresql-build
  rm -rf "$root"
  debootstrap --variant=minbase --include=postgresql-15 bookworm "$root"
  rm -rf "$root"/var/{cache/apt,lib/apt/lists,log,lib/postgresql,lib/dpkg/info} "$root"/usr/share/{doc,man,locale,info} \
    "$root"/dev/* "$root"/etc/postgresql
  install -D -m 755 "$kind_dir/postgresql/entrypoint.sh" "$root/usr/local/bin/entrypoint"
  install -d -m 777 "$root/var/run/postgresql" "$root/var/lib/postgresql"
  chroot "$root" groupmod -g 999 postgres
  chroot "$root" usermod -u 999 postgres
  image_archive "$archive" "$reference" "$root" \
    '{"Entrypoint": ["/usr/local/bin/entrypoint"], "Cmd": ["postgres"], "User": "999:999", "ExposedPorts": {"5432/tcp": {}}, "Env": ["PATH=/usr/lib/postgresql/15/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}'
  rm -rf "$root"
}

if [ ! -e "$archive" ]; then
  require debootstrap=debootstrap jq=jq
  lock postgresql
  step "postgresql: building the image" build
  find "$cache" -maxdepth 1 -name 'postgresql-*.tar' ! -path "$archive" -delete
fi
echo "$archive"
echo "$reference"
