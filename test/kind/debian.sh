#!/usr/bin/env bash
# Builds images of services from Debian packages and prints two lines for each: its archive, and its reference.
#
#   debian.sh postgresql|redis|nginx...
#
# They stand in for the official images: the same programs in the PATH, the same environment, data that belongs to user 999.
# Load the archives with load.sh.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case ${1:---help} in -h | --help) usage && exit ;; esac
shopt -s nullglob

# What each image has: its packages, and its configuration. The programs of the folder debian/NAME, if there is one, are added. That of
# PostgreSQL has curl, too, for the hooks that back up its files.
declare -A packages=([postgresql]=postgresql-15,curl [redis]=redis-server [nginx]=nginx)
declare -A configurations=(
  [postgresql]='{"Entrypoint": ["/usr/local/bin/entrypoint"], "Cmd": ["postgres"], "ExposedPorts": {"5432/tcp": {}},
    "Env": ["PATH=/usr/lib/postgresql/15/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}'
  [redis]='{"Cmd": ["redis-server"], "ExposedPorts": {"6379/tcp": {}}}'
  [nginx]='{"Cmd": ["nginx", "-g", "daemon off;"], "ExposedPorts": {"80/tcp": {}}}'
)

# build NAME ARCHIVE REFERENCE
build() {
  local name=$1 root=$cache/$1-build program
  rm -rf "$root"
  debootstrap --variant=minbase --include="${packages[$name]}" bookworm "$root"
  rm -rf "$root"/var/{cache/apt,lib/apt/lists,log,lib/dpkg/info} "$root"/usr/share/{doc,man,locale,info} "$root"/dev/*
  for program in "$kind_dir/debian/$name"/*; do install -m 755 "$program" "$root/usr/local/bin/"; done
  if [ "$name" = postgresql ]; then # initdb wants its user to have a name
    chroot "$root" groupmod -g 999 postgres
    chroot "$root" usermod -u 999 postgres
    rm -rf "$root"/etc/postgresql "$root"/var/lib/postgresql
    # Half of the image, and unused: PostgreSQL compiles queries only where it has LLVM, and Debian's tools are in Perl.
    rm -rf "$root"/usr/lib/postgresql/15/lib/{bitcode,llvmjit*} "$root"/usr/lib/*-linux-gnu/{libLLVM*,libz3.*,libperl*,perl} \
      "$root"/usr/share/perl "$root"/usr/share/postgresql-common
    install -d -m 777 "$root"/var/{run,lib}/postgresql
  fi
  image_archive "$2" "$3" "$root" \
    "$(jq '{User: "999:999", Env: ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]} + .' <<<"${configurations[$name]}")"
  rm -rf "$root"
}

for name; do
  [ -n "${packages[$name]:-}" ] || fail "no image $name; want one of: ${!packages[*]}"
  hash=$(fingerprint debian.sh "debian/$name/*")
  reference=sluice-dev/$name:$hash
  archive=$cache/$name-$hash.tar
  if [ ! -e "$archive" ]; then
    (
      require debootstrap=debootstrap jq=jq
      lock "$name"
      [ ! -e "$archive" ] || exit 0
      step "$name: building the image (once)" build "$name" "$archive" "$reference"
      find "$cache" -maxdepth 1 -name "$name-*.tar" ! -path "$archive" -delete
    )
  fi
  echo "$archive"
  echo "$reference"
done
