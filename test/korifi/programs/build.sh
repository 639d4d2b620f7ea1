#!/usr/bin/env bash
# Builds the Korifi pinned in go.mod, once, and prints the folder that holds its programs api and controllers, and its
# Helm chart in the folder chart. The folder's name carries a hash of what it was built from.
#
# It is a modified Korifi, for tests only: the controllers serve metrics and health on free ports, as they take no other
# than 8080 and 8081, which somebody may listen on.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
module=code.cloudfoundry.org/korifi
version=$(go list -mod=readonly -m -f '{{.Version}}' $module)
bytefmt=$(go list -mod=readonly -m -f '{{.Path}}@{{.Replace.Version}}' code.cloudfoundry.org/bytefmt)
out=${SLUICE_CACHE:-$HOME/.cache/sluice}/korifi-$version-$(cat go.mod go.sum build.sh | sha256sum | cut -c1-12)
mkdir -p "$(dirname "$out")"
exec 9>"$out.lock"
flock 9
if [ ! -d "$out" ]; then
  echo "building Korifi $version (once)" >&2
  go mod download $module
  source=$(go list -mod=readonly -m -f '{{.Dir}}' $module)
  rm -rf "$out.new"
  mkdir "$out.new"
  cp -r "$source/helm/korifi" "$out.new/chart"
  chmod -R u+w "$out.new/chart"
  cp -r "$source" "$out.new/source"
  chmod -R u+w "$out.new/source"
  cat go.sum >>"$out.new/source/go.sum"
  (
    cd "$out.new/source"
    go mod edit -replace "code.cloudfoundry.org/bytefmt=$bytefmt"
    sed -i 's/":8080"/"127.0.0.1:0"/; s/":8081"/"127.0.0.1:0"/' controllers/main.go
    [ "$(grep -c '"127.0.0.1:0"' controllers/main.go)" = 2 ] || { echo "Korifi's addresses are elsewhere" >&2 && exit 1; }
    CGO_ENABLED=0 go build -mod=readonly -trimpath -buildvcs=false -ldflags "-s -w" -o ../ ./api ./controllers >&2
  )
  rm -rf "$out.new/source"
  mv "$out.new" "$out"
fi
echo "$out"
