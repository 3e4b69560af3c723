# Parley in a container. Data lies in /data (a volume); a configuration is mounted as /app/config.yaml.
FROM python:3.11-slim AS build
WORKDIR /src
# requirements.lock leaves out the conversion of PDF and Office documents, and 240 MB with it.
ARG LOCK=requirements-documents.lock
COPY requirements.lock requirements-documents.lock ./
RUN python -m venv /venv \
    && /venv/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes --no-deps -r ${LOCK}

FROM python:3.11-slim
ENV PYTHONSAFEPATH=1 \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONPATH=/app \
    PATH=/venv/bin:$PATH \
    PARLEY_HOME=/data
RUN apt-get update && apt-get install -y --no-install-recommends bubblewrap && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin parley \
    && install -d -o parley -g parley -m 0700 /data \
    && printf '#!/bin/sh\nexec python -m gateway "$@"\n' > /usr/local/bin/parley \
    && chmod 0755 /usr/local/bin/parley
COPY --from=build /venv /venv
WORKDIR /app
COPY LICENSE pyproject.toml config.example.yaml ./
COPY store ./store
COPY bus ./bus
COPY bots ./bots
COPY agent ./agent
COPY gateway ./gateway
RUN python -m compileall -q /venv/lib /app || echo "some files were not compiled"
COPY skills ./skills
USER parley
VOLUME /data
EXPOSE 8001
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8001/health', timeout=4)"]
ENTRYPOINT ["parley"]
CMD ["serve", "--host", "0.0.0.0"]
