#!/bin/sh
# Replaces the variables that are set, as the image of nginx does: nginx's own ones stay.
set -eu
names=$(env | sed 's/=.*//; s/^/$/' | tr '\n' ' ')
for template in /etc/nginx/templates/*.template; do
  envsubst "$names" < "$template" > "/etc/nginx/conf.d/$(basename "$template" .template)"
done
exec nginx -g 'daemon off;'
