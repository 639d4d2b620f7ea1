#!/bin/bash
# Starts PostgreSQL, with a new database on the first start. It takes the environment of the official image:
# POSTGRES_PASSWORD, POSTGRES_USER (postgres), POSTGRES_DB (the user's name) and PGDATA. Arguments go to the server.
set -euo pipefail
export PATH=/usr/lib/postgresql/15/bin:$PATH PGDATA=${PGDATA:-/var/lib/postgresql/data}
user=${POSTGRES_USER:-postgres}
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  new=$PGDATA.new # a start that is killed halfway leaves nothing that looks complete
  rm -rf "$new" "$PGDATA"
  initdb --pgdata "$new" --username "$user" --auth-host scram-sha-256 --auth-local trust --encoding UTF8 \
    --pwfile <(printf '%s\n' "$POSTGRES_PASSWORD") >/dev/null
  echo 'host all all all scram-sha-256' >>"$new/pg_hba.conf"
  database=${POSTGRES_DB:-$user}
  [ "$database" = postgres ] || postgres --single -D "$new" postgres <<<"CREATE DATABASE \"$database\"" >/dev/null
  mv "$new" "$PGDATA"
fi
[ "${1:-}" != postgres ] || shift
exec postgres -c listen_addresses='*' "$@"
