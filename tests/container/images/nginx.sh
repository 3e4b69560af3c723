#!/bin/sh
# Replaces variables that are set, as the nginx image does. nginx's own variables stay.
set -eu
names=$(env | sed 's/=.*//; s/^/$/' | tr '\n' ' ')
for template in /etc/nginx/templates/*.template; do
  envsubst "$names" < "$template" > "/etc/nginx/conf.d/$(basename "$template" .template)"
done
exec nginx -g 'daemon off;'
