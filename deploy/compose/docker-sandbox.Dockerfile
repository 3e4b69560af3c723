# Parley's image with the program `docker`, which starts containers for sandbox.use: docker.
ARG DOCKER=docker:28-cli
FROM ${DOCKER} AS docker
FROM parley
COPY --from=docker /usr/local/bin/docker /usr/local/bin/docker
