# Parley's targets. Everything runs in .venv, installed from the hash-pinned lock files.
PY ?= python3
V := .venv
P := .venv-peers
D := .venv-docs
J := tests/gateway/js
# uv does not read pip's configuration. Pass it pip's index, if one is set.
PIP_INDEX := $(shell $(PY) -m pip config get global.index-url 2>/dev/null)
ifneq ($(PIP_INDEX),)
export UV_DEFAULT_INDEX ?= $(PIP_INDEX)
endif
export PYTHONSAFEPATH := 1

.PHONY: run install peers peers-python peers-js test test-long test-slowest coverage lint format detect-blocking-io bench bench-quick prove soak docs pictures wheel lock sbom clean

# Installs one lock file into the target's folder: with uv (seconds), or with pip if uv has no wheel.
define install_lock
	@# An interrupted first run leaves a folder without pip.
	@$(@D)/bin/python -m pip --version >/dev/null 2>&1 || $(PY) -m venv --clear $(@D) || { \
		echo "python3 -m venv failed: install venv first (Debian, Ubuntu: apt-get install python3-venv)"; exit 1; }
	@$(@D)/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Python 3.11 or newer is needed; name it: make PY=python3.12"; exit 1; }
	@if $(@D)/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements-bootstrap.lock; then \
		$(@D)/bin/uv pip install -q --python $(@D)/bin/python --require-hashes --no-deps -r $(1) \
		|| $(@D)/bin/python -m pip install -q --disable-pip-version-check --require-hashes --no-deps -r $(1); \
	else \
		$(@D)/bin/python -m pip install -q --disable-pip-version-check --require-hashes --no-deps -r $(1); \
	fi
	@echo "$(CURDIR)" > "$$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/parley.pth"
	@printf '#!/bin/sh\nexec "%s" -P -m gateway "$$@"\n' "$(CURDIR)/$(@D)/bin/python" > $(@D)/bin/parley
	@chmod +x $(@D)/bin/parley
	@touch $(2)
endef

# Removes packages that only the installation needs (50 MB). A developer's folder keeps uv for `make lock`.
define remove_installer
	@test -e $(V)/.dev || $(V)/bin/uv pip uninstall -q --python $(V)/bin/python uv setuptools 2>/dev/null \
		|| $(V)/bin/python -m pip uninstall -q -y --disable-pip-version-check uv setuptools 2>/dev/null
endef

$(V)/.run: requirements.lock requirements-bootstrap.lock
	@echo "Installing Parley into $(V) ..."
	@# Compile Parley while the packages are being installed.
	@$(PY) -m compileall -q agent bots bus gateway store >/dev/null 2>&1 &
	$(call install_lock,requirements.lock,$@)
	$(remove_installer)
	@# Compile the service's imports in two processes, so that its first start is as fast as later ones.
	@unset PYTHONDONTWRITEBYTECODE; $(V)/bin/python -P -c "import langchain_openai, bots.slack.adapter, \
		bots.telegram.adapter, bots.feishu.adapter" & \
		$(V)/bin/python -P -c "import gateway.commands.serve, gateway.serving.service, gateway.terminal.interactive" && \
		wait $$!

$(V)/.dev: requirements-dev.lock $(V)/.run
	$(call install_lock,requirements-dev.lock,$@)

# Builds the documentation as a site, which the gateway serves under /docs.
docs: $(D)/.ready
	@NO_MKDOCS_2_WARNING=1 $(D)/bin/python -m mkdocs build --strict --quiet --site-dir $(CURDIR)/$(D)/site
	@find $(D)/site -name "*.map" -delete
	@rm -rf gateway/docs_site && mv $(D)/site gateway/docs_site
	@echo "The documentation is in gateway/docs_site/index.html. A running service serves it at /docs."

$(D)/.ready: requirements-docs.lock requirements-bootstrap.lock
	@echo "Installing the documentation's tools into $(D) ..."
	$(call install_lock,requirements-docs.lock,$@)

# Draws the documentation's pictures from the program's own tables: docs/pictures.
pictures: $(V)/.dev
	$(V)/bin/python -P -m tests.lab.pictures

# Builds the package: dist/parley-VERSION-py3-none-any.whl.
wheel: docs $(V)/.dev
	@rm -rf dist
	$(V)/bin/python -m hatchling build -t wheel

# Also updates document conversion if it is installed.
install: $(V)/.run

run: install
	@$(V)/bin/parley serve

# Installs third-party programs for tests: LangGraph's own server, and the JavaScript clients.
# Tests that need a missing program are skipped and say so.
peers: peers-python peers-js
peers-python: $(P)/.ready
peers-js: $(J)/node_modules/.ready

$(P)/.ready: requirements-peers.lock requirements-bootstrap.lock
	$(call install_lock,requirements-peers.lock,$@)

$(J)/node_modules/.ready: $(J)/package-lock.json
	@command -v npm >/dev/null || { echo "npm is missing (Debian, Ubuntu: apt-get install nodejs npm)"; exit 1; }
	@cd $(J) && npm ci --no-audit --no-fund --ignore-scripts --loglevel=error
	@touch $@

test: $(V)/.dev
	@test -e $(P)/.ready || echo "Skipped: tests with LangGraph's own server and with an S3 server (make peers installs them, 650 MB)."
	@test -e $(J)/node_modules/.ready || echo "Skipped: tests with the JavaScript clients (make peers installs them, 100 MB)."
	env -u PYTHONDONTWRITEBYTECODE $(V)/bin/python -m pytest --workers 6

# Long tests with generated hostile input: a million inputs for the parsers (COUNT, SEED), and 150 requests for each
# operation of the API. Also 60 seconds without PostgreSQL, and 2,000 examples of each property (the suite tries 25).
# Takes about an hour on two cores.
test-long: $(V)/.dev
	$(V)/bin/python -m tests.lab.fuzz --count $(or $(COUNT),1000000) $(if $(SEED),--seed $(SEED))
	PARLEY_TEST_LONG=1 $(V)/bin/python -m pytest -q --workers 2 tests/gateway/test_openapi.py tests/gateway/test_runs_machine.py \
		tests/journeys/test_nodes_outage.py tests/journeys/test_request_fuzz.py
	PARLEY_FUZZ_EXAMPLES=2000 $(V)/bin/python -m pytest -q --workers 2 tests/agent/test_fuzz.py tests/gateway/test_backup.py
	PARLEY_TEST_LONG=1 $(V)/bin/python -m pytest -q --workers 2 --timeout 3600 tests/bots/test_written_documents.py \
		$$(grep -rl --include="test_*.py" "^@given" tests)

# Runs the whole suite and lists its 20 slowest tests.
test-slowest: $(V)/.dev
	env -u PYTHONDONTWRITEBYTECODE $(V)/bin/python -m pytest -q --workers 4 --durations=20

# Lists lines and functions that no test reaches, including those of services: while the .pth file exists, each Python
# process of .venv measures itself. Takes twice as long as `make test`. COVERAGE_TESTS selects a part of the suite.
COVERAGE_START = $(shell $(V)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/a0_parley_coverage.pth
coverage: export COVERAGE_FILE := $(CURDIR)/.coverage
coverage: $(V)/.dev
	@$(V)/bin/coverage erase
	@echo 'import os; os.environ.update(COVERAGE_PROCESS_START="$(CURDIR)/pyproject.toml", COVERAGE_FILE="$(COVERAGE_FILE)")' \
		> $(COVERAGE_START)
	-$(V)/bin/python -m pytest -q --workers 4 --timeout 500 $(COVERAGE_TESTS)
	@rm -f $(COVERAGE_START)
	@$(V)/bin/coverage combine -q
	$(V)/bin/coverage report --show-missing
	@$(V)/bin/coverage json -q -o - | $(V)/bin/python -P -m tests.unreached

lint: $(V)/.dev
	$(V)/bin/ruff check .
	$(V)/bin/ruff format --check .
	$(V)/bin/mypy

format: $(V)/.dev
	$(V)/bin/ruff check --fix .
	$(V)/bin/ruff format .

# Lists calls that may block the event loop, by reading the source. All findings: .parley/blocking-io-findings.json
detect-blocking-io: $(V)/.dev
	$(V)/bin/python -P -m tests.lab.blocking_io

# Runs the proof: three minutes under faults. NODES=2 uses PostgreSQL. For a longer run: `parley prove --hours 1`.
prove: $(V)/.dev
	$(V)/bin/parley prove $(if $(SEED),--seed $(SEED)) --minutes $(or $(MINUTES),3) --nodes $(or $(NODES),1)

# Checks that the service's resource usage does not grow. HOURS sets the duration, RATE the messages per second.
soak: $(V)/.dev
	$(V)/bin/python -P -m tests.lab.soak --hours $(or $(HOURS),2) --rate $(or $(RATE),20)

# Runs all benchmarks, or one: make bench BENCH=scale.
bench: $(V)/.dev
	$(V)/bin/python -m tests.lab.benchmarks $(BENCH) $(if $(RECORD),--record)

# Runs one round of the most important benchmarks, in two to three minutes.
bench-quick: $(V)/.dev
	PARLEY_BENCH_QUICK=1 $(V)/bin/python -m tests.lab.benchmarks start turns langgraph

# Rewrites the lock files from pyproject.toml. They contain hashes and no host names.
UV_LOCK = $(V)/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate
lock: $(V)/.dev
	echo uv | $(UV_LOCK) - -o requirements-bootstrap.lock
	$(UV_LOCK) pyproject.toml -o requirements.lock
	$(UV_LOCK) --group dev --extra anthropic --extra langfuse -c requirements.lock pyproject.toml \
		-o requirements-dev.lock
	echo mkdocs-material | $(UV_LOCK) -c requirements-dev.lock - -o requirements-docs.lock
	@# LangGraph's own server needs an older protobuf than all other packages.
	sed '/^protobuf==/,/[^\\]$$/d' requirements.lock > $(V)/peers-constraints.txt
	$(UV_LOCK) --group peers -c $(V)/peers-constraints.txt pyproject.toml -o requirements-peers.lock
	cd $(J) && npm install --package-lock-only --omit-lockfile-registry-resolved --no-audit --no-fund

# Writes a bill of materials (CycloneDX, for scanners) of the packages that `make install` installs.
sbom: $(V)/.run
	@mkdir -p dist
	$(V)/bin/python -P .ci/sbom.py requirements.lock > dist/parley.cdx.json

clean:
	rm -rf $(V) $(P) $(D) $(J)/node_modules .mypy_cache .pytest_cache .ruff_cache .hypothesis
