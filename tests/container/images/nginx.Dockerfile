# Replaces the nginx image where no registry is available: fills in the templates and serves them.
ARG BASE
FROM ${BASE}
RUN apt-get update && apt-get install -y --no-install-recommends nginx-light gettext-base && rm -rf /var/lib/apt/lists/* \
    && rm /etc/nginx/sites-enabled/default
COPY nginx.sh /usr/local/bin/nginx.sh
ENTRYPOINT ["/bin/sh", "/usr/local/bin/nginx.sh"]
