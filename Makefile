# Parley's targets. Everything runs in .venv, installed from the hash-pinned lock files.
PY ?= python3
V := .venv
P := .venv-peers
J := tests/gateway/js
# uv does not read pip's configuration: hand it the index that pip would use, if one is set.
PIP_INDEX := $(shell $(PY) -m pip config get global.index-url 2>/dev/null)
ifneq ($(PIP_INDEX),)
export UV_DEFAULT_INDEX ?= $(PIP_INDEX)
endif
export PYTHONSAFEPATH := 1

.PHONY: run install documents peers peers-python peers-js test test-long test-slowest coverage lint format bench bench-quick prove soak docs pictures wheel lock sbom clean

# Installs one lock file into the folder of the target: through uv (seconds), or through pip where uv has no wheel.
define install_lock
	@# A folder without pip was left by an interrupted first run.
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

# What only the installation needs: 50 MB. The folder of a developer keeps uv, for `make lock`.
define remove_installer
	@test -e $(V)/.dev || $(V)/bin/uv pip uninstall -q --python $(V)/bin/python uv setuptools 2>/dev/null \
		|| $(V)/bin/python -m pip uninstall -q -y --disable-pip-version-check uv setuptools 2>/dev/null
endef

$(V)/.run: requirements.lock requirements-bootstrap.lock
	@echo "Installing Parley into $(V) ..."
	@# Parley itself is compiled while the packages are installed.
	@$(PY) -m compileall -q agent bots bus gateway store >/dev/null 2>&1 &
	$(call install_lock,requirements.lock,$@)
	$(remove_installer)
	@# Compiles what the service imports, so that its first start is as fast as the later ones; in two processes.
	@unset PYTHONDONTWRITEBYTECODE; $(V)/bin/python -P -c "import langchain_openai, bots.slack.adapter, \
		bots.telegram.adapter, bots.feishu.adapter" & \
		$(V)/bin/python -P -c "import gateway.commands.serve, gateway.serving.service, gateway.terminal.interactive" && \
		wait $$!

$(V)/.dev: requirements-dev.lock $(V)/.run
	$(call install_lock,requirements-dev.lock,$@)

# Converts PDF and Office documents to text for the agent.
$(V)/.documents: requirements-documents.lock $(V)/.run
	@echo "Installing document conversion (240 MB) into $(V) ..."
	$(call install_lock,requirements-documents.lock,$@)
	$(remove_installer)

documents: $(V)/.documents

# The documentation as a site, which the gateway serves under /docs.
docs: $(V)/.dev
	@rm -rf gateway/docs_site
	NO_MKDOCS_2_WARNING=1 $(V)/bin/python -m mkdocs build --strict --quiet
	@find gateway/docs_site -name "*.map" -delete

# The pictures of the documentation, drawn from the program's own tables: docs/pictures.
pictures: $(V)/.dev
	$(V)/bin/python -P -m tests.lab.pictures

# A package of the program: dist/parley-VERSION-py3-none-any.whl.
wheel: docs
	@rm -rf dist
	$(V)/bin/python -m hatchling build -t wheel

# What was installed once is kept up to date.
install: $(V)/.run $(wildcard $(V)/.documents)

run: install
	@$(V)/bin/parley serve

# What tests talk to that is not ours: LangGraph's own server, and the clients for JavaScript.
# Tests that need what could not be installed are skipped and say so.
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
	@test -e $(P)/.ready || echo "Left out: tests with LangGraph's own server and with an S3 server (make peers installs them, 650 MB)."
	@test -e $(J)/node_modules/.ready || echo "Left out: tests with the JavaScript clients (make peers installs them, 100 MB)."
	env -u PYTHONDONTWRITEBYTECODE $(V)/bin/python -m pytest --workers 6

# Generated hostile input in volume: a million inputs for the parsers (COUNT, SEED), and 150 requests for each operation
# of the API; and 60 seconds without PostgreSQL. About half an hour on two cores.
test-long: $(V)/.dev
	$(V)/bin/python -m tests.lab.fuzz --count $(or $(COUNT),1000000) $(if $(SEED),--seed $(SEED))
	PARLEY_TEST_LONG=1 $(V)/bin/python -m pytest -q --workers 2 tests/gateway/test_openapi.py tests/gateway/test_runs_machine.py \
		tests/journeys/test_nodes_outage.py tests/journeys/test_request_fuzz.py
	PARLEY_FUZZ_EXAMPLES=2000 $(V)/bin/python -m pytest -q --workers 2 tests/agent/test_fuzz.py tests/gateway/test_backup.py

# The whole suite, with its 20 slowest tests at the end.
test-slowest: $(V)/.dev
	env -u PYTHONDONTWRITEBYTECODE $(V)/bin/python -m pytest -q --workers 4 --durations=20

# The lines and functions that no test reaches, those of services included: each Python of .venv measures itself as long
# as the file is there. Takes twice as long as `make test`; COVERAGE_TESTS names a part of the suite.
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

# Three minutes under faults; NODES=2: with PostgreSQL. `parley prove --hours 1` is the long form.
prove: $(V)/.dev
	$(V)/bin/parley prove $(if $(SEED),--seed $(SEED)) --minutes $(or $(MINUTES),3) --nodes $(or $(NODES),1)

# What the service uses must not grow; hours, messages a second.
soak: $(V)/.dev
	$(V)/bin/python -P -m tests.lab.soak --hours $(or $(HOURS),2) --rate $(or $(RATE),20)

# make bench BENCH=scale: one of them.
bench: $(V)/.dev
	$(V)/bin/python -m tests.lab.benchmarks $(BENCH) $(if $(RECORD),--record)

# One round of what changes most, in two to three minutes.
bench-quick: $(V)/.dev
	PARLEY_BENCH_QUICK=1 $(V)/bin/python -m tests.lab.benchmarks start turns langgraph

# Writes the lock files anew from pyproject.toml; they hold hashes and no host names.
UV_LOCK = $(V)/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate
lock: $(V)/.dev
	echo uv | $(UV_LOCK) - -o requirements-bootstrap.lock
	$(UV_LOCK) pyproject.toml -o requirements.lock
	$(UV_LOCK) --extra documents -c requirements.lock pyproject.toml -o requirements-documents.lock
	$(UV_LOCK) --group dev --extra anthropic --extra langfuse --extra documents -c requirements-documents.lock \
		pyproject.toml -o requirements-dev.lock
	@# LangGraph's own server needs an older protobuf than everything else here.
	sed '/^protobuf==/,/[^\\]$$/d' requirements.lock > $(V)/peers-constraints.txt
	$(UV_LOCK) --group peers -c $(V)/peers-constraints.txt pyproject.toml -o requirements-peers.lock
	cd $(J) && npm install --package-lock-only --omit-lockfile-registry-resolved --no-audit --no-fund

# A bill of materials of the packages that `make install` installs: CycloneDX, for scanners.
sbom: $(V)/.run
	@mkdir -p dist
	$(V)/bin/python -P .ci/sbom.py requirements.lock > dist/parley.cdx.json

clean:
	rm -rf $(V) $(P) $(J)/node_modules .mypy_cache .pytest_cache .ruff_cache .hypothesis
