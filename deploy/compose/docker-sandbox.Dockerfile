# Parley's image with the program `docker`, which starts the containers of sandbox.use: docker.
ARG DOCKER=docker:28-cli
FROM ${DOCKER} AS docker
FROM parley
COPY --from=docker /usr/local/bin/docker /usr/local/bin/docker
