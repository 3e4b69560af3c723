#!/bin/sh
# Creates the database on the first start, as the PostgreSQL image does. Until then, a server listens only on its socket.
set -eu
run_as="setpriv --reuid postgres --regid postgres --init-groups"
mkdir -p /var/run/postgresql
chown -R postgres:postgres "$PGDATA" /var/run/postgresql
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  password=$(mktemp)
  echo "$POSTGRES_PASSWORD" > "$password"
  chown postgres "$password"
  $run_as initdb --username "$POSTGRES_USER" --pwfile "$password" --auth scram-sha-256 --auth-local trust -D "$PGDATA" >/dev/null
  echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
  $run_as postgres -D "$PGDATA" -c listen_addresses= &
  server=$!
  until psql --quiet --username "$POSTGRES_USER" postgres -c "CREATE DATABASE $POSTGRES_DB"; do sleep 0.2; done
  sleep 3  # scripts that create tables run here
  kill -INT "$server"
  wait "$server" || true
fi
exec $run_as postgres -D "$PGDATA" -c listen_addresses='*'
