# syntax=docker/dockerfile:1
# Parley in a container. Data is stored in /data (a volume); a configuration is mounted as /app/config.yaml.
# Name the base by its digest for builds that can be repeated: --build-arg BASE=python:3.13-slim-bookworm@sha256:...
ARG BASE=python:3.13-slim-bookworm

FROM ${BASE} AS build
# An index other than PyPI.
ARG PIP_INDEX_URL
WORKDIR /src
COPY requirements.lock ./
RUN python -m venv /venv \
    && /venv/bin/pip install --no-cache-dir --no-compile --disable-pip-version-check --require-hashes --no-deps -r requirements.lock \
    && /venv/bin/pip uninstall -q -y pip setuptools
COPY LICENSE pyproject.toml config.example.yaml /app/
COPY store /app/store
COPY bus /app/bus
COPY bots /app/bots
COPY agent /app/agent
COPY gateway /app/gateway
COPY docs/reference/configuration.md /app/gateway/
COPY skills /app/skills
RUN /venv/bin/python -m compileall -q -j 0 -x "skills/|/tests?/|lib2to3|jinja2/templates" /venv/lib /app

FROM ${BASE}
ENV PYTHONSAFEPATH=1 \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONPATH=/app \
    PATH=/venv/bin:$PATH \
    HOME=/data \
    PARLEY_HOME=/data
# bubblewrap runs the agent's commands where the container's profile allows it: docs/howto/run-in-docker.md.
RUN apt-get update && apt-get install -y --no-install-recommends bubblewrap && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin parley \
    && install -d -o parley -g parley -m 0700 /data \
    && printf '#!/bin/sh\nexec python -m gateway "$@"\n' > /usr/local/bin/parley \
    && chmod 0755 /usr/local/bin/parley \
    && touch /etc/parley-container
COPY --from=build /venv /venv
COPY --from=build /app /app
WORKDIR /app
# A number, so that Kubernetes can check that it is not root.
USER 10001:10001
VOLUME /data
EXPOSE 8001
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s CMD ["parley", "health"]
ENTRYPOINT ["parley"]
CMD ["serve", "--host", "0.0.0.0"]
