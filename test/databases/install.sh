#!/usr/bin/env bash
# Installs what this folder's servers are, MariaDB and PostgreSQL, and the curl that backs them up, where they are missing, on
# Debian and as root. No server is started by that, and PostgreSQL's package makes no database cluster.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source-path=SCRIPTDIR
source ../kind/lib.sh
require /usr/sbin/mariadbd=mariadb-server-core my_print_defaults=mariadb-client-core curl=curl
if ! compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null; then
  require pg_createcluster=postgresql-common
  sed -Ei 's/^#?create_main_cluster .*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
  require postgres=postgresql
fi
