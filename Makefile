# Noonmark's one entry point. `make` alone lists the targets.

PYTHON ?= python3
PYTEST_ARGS ?=
CORES := $(shell getconf _NPROCESSORS_ONLN)
# Most tests that take long wait for something, so there are three at a time for each processor.
WORKERS ?= $(shell expr $(CORES) \* 3)
# Tests start hundreds of programs; each would compile Noonmark again, if nothing were kept.
export PYTHONDONTWRITEBYTECODE :=

VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime-installed
STAMP := $(VENV)/.setup-done
# Most modules of the tools are never imported; Python compiles the others when they are.
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --quiet --no-compile --no-deps
# pip spends most of its time reading indexes, on one processor. So two of them install a half each of what the second lock adds.
HALF := $(VENV)/half-
HALVE := awk -v half=$(HALF) '/^[^ \#]/ { if (NR == FNR) have[$$1]; skip = $$1 in have; if (!skip) n = 1 - n } NR > FNR && !skip { print > (half n) }'
DEMO := -m examples.demo
BENCH := -m bench

.DEFAULT_GOAL := help
.PHONY: help setup test browser pytest check soak simulate lint pagetypes format demo bench docs pictures lock clean

help: ## List the targets
	@echo "Noonmark: make <target>"
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "PYTHON=<interpreter> picks the Python for 'make setup'; PYTEST_ARGS=<options> reaches pytest."

setup: $(STAMP) ## Create .venv with every pinned package: Noonmark's own, the test tools, the bench's peers
	@echo "==> setup: $(VENV) is up to date"

# A stamp is written last, so an interrupted setup is simply done again. The locks name everything, so nothing is resolved:
# pip would take a newer release than the pinned one for a package with an extra, and refuse it.
$(RUNTIME): requirements-runtime.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "Noonmark needs Python 3.11 or newer; '$(PYTHON)' was not found. Try: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Noonmark needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Try: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "==> setup: creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@echo "==> setup: installing what Noonmark needs to run"
	@$(INSTALL) --require-hashes -r requirements-runtime.lock
	@echo "==> setup: installing Noonmark itself (editable)"
	@$(INSTALL) --no-build-isolation -e .
	@touch $@

$(STAMP): $(RUNTIME) requirements.lock
	@echo "==> setup: installing the tools for tests, lint and bench"
	@$(HALVE) requirements-runtime.lock requirements.lock
	@$(INSTALL) --require-hashes -r $(HALF)0 & first=$$!; $(INSTALL) --require-hashes -r $(HALF)1; second=$$?; wait $$first && exit $$second
	@touch $@

# A browser is installed beside the tools, and one processor is free for lint while tests are collected.
test: ## Set up, then lint and run every test with branch coverage of the core
	@$(MAKE) --no-print-directory --jobs 2 setup browser
	@$(MAKE) --no-print-directory --jobs 2 lint pytest

# As root by apt; playwright downloads its own where that is not possible. Without any, the browser tests are skipped.
browser:
	@$(PYTHON) -m tests.web.chromium --by apt || true

pytest: setup
	@$(BIN)/python -m tests.web.chromium --by playwright
	@echo "==> test: pytest, with 100 % branch coverage of noonmark.core"
	@$(BIN)/python -m pytest -n $(WORKERS) --cov=noonmark.core --cov-branch --cov-report=term-missing:skip-covered --cov-fail-under=100 $(PYTEST_ARGS)

check: lint ## Lint, then run the quick tests: in memory, without other processes
	@echo "==> check: pytest -m quick"
	@$(BIN)/python -m pytest -n $(WORKERS) -m quick $(PYTEST_ARGS)

soak: setup browser ## Kill, freeze, damage and fill real processes for longer: SOAK=8 times as long as in make test
	@echo "==> soak: the long versions of the tests, $(or $(SOAK),8) times as long where they kill and freeze processes"
	@NOONMARK_SOAK=$(or $(SOAK),8) $(BIN)/python -m pytest -n $(CORES) --force-reruns 0 -rP -m "" tests/processes tests/simulation tests/conformance/test_memory_model.py tests/conformance/test_sqlite_model.py tests/core tests/server/test_openapi.py tests/frameworks/test_gunicorn.py tests/service/test_readiness.py tests/service/test_cluster.py tests/service/test_limits.py tests/service/test_mcp_clients.py tests/stores/test_damaged_cells.py tests/stores/test_redis_damage.py $(PYTEST_ARGS)
	@echo "==> soak: what takes minutes elsewhere, the whole bench in its quick form among it"
	@$(BIN)/python -m pytest --force-reruns 0 -m soak --ignore tests/processes --ignore tests/simulation $(PYTEST_ARGS)

simulate: setup ## Play random histories against the driver: SEEDS=1..500, or SECONDS=600 of new ones; STORE=postgres beside it
	@echo "==> simulate: one thread, virtual time, faults of every kind"
	@$(BIN)/python -m tests.simulation $(if $(SEEDS),--seeds $(SEEDS),--seconds $(or $(SECONDS),60)) --store $(or $(STORE),memory)

lint: setup ## Check rules, format, types and the import contract
	@echo "==> lint: ruff check"
	@$(BIN)/ruff check
	@echo "==> lint: ruff format --check"
	@$(BIN)/ruff format --check
	@echo "==> lint: mypy"
	@$(BIN)/mypy
	@echo "==> lint: lint-imports"
	@$(BIN)/lint-imports --no-logo

# For development only: nothing of it is needed to run, test or build Noonmark.
NODE_BIN := .node/node_modules/.bin
$(NODE_BIN)/tsc $(NODE_BIN)/prettier &:
	@command -v npm >/dev/null || { echo "npm was not found: the page is checked by TypeScript and Prettier, which need Node.js" >&2; exit 1; }
	@npm install --silent --no-fund --no-audit --no-save --prefix .node typescript@7.0.2 prettier@3.10.1

pagetypes: $(NODE_BIN)/tsc $(NODE_BIN)/prettier ## Check the types and the format of the web page's JavaScript; needs npm
	@echo "==> pagetypes: tsc --checkJs, with the options of tsconfig.json"
	@$(NODE_BIN)/tsc --project tsconfig.json
	@echo "==> pagetypes: prettier --check"
	@$(NODE_BIN)/prettier --log-level warn --check "src/noonmark/server/web/page/**/*.js"

format: setup ## Repair what ruff can repair, then format
	@echo "==> format: ruff check --fix, ruff format"
	@$(BIN)/ruff check --fix-only
	@$(BIN)/ruff format

demo: $(RUNTIME) ## Run a handful of interesting schedules, shown live, also in a browser; DEMO_SECONDS=30 ends it by itself
	@echo "==> demo: schedules in .demo/jobs.db; remove .demo to begin anew"
	@$(BIN)/python $(DEMO)

bench: setup ## Measure fires per second beside other schedulers
	@echo "==> bench: fires per second, with ratios"
	@$(BIN)/python $(BENCH)

docs: setup ## Write the generated reference pages again
	@echo "==> docs: writing the generated pages"
	@$(BIN)/python -m docs.generate

pictures: setup browser ## Take the pictures of the web page for docs/images; ALL=folder takes every view, in both themes, wide and narrow
	@echo "==> pictures: a seeded server in a real browser"
	@$(BIN)/python -m tests.web.pictures $(ALL)

# Resolved for the oldest Python we support, whichever one .venv has.
# Existing pins stay; `make lock LOCK_ARGS=--upgrade` takes the newest versions. Both locks pin the same versions.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --group build --group demo
lock: setup ## Pin every dependency again, with hashes, in both locks
	@echo "==> lock: resolving pyproject.toml into requirements.lock and requirements-runtime.lock"
	@$(COMPILE) --all-extras $(LOCK_ARGS) pyproject.toml --output-file requirements.lock
	@$(COMPILE) --constraint requirements.lock --no-annotate --extra server --extra postgres --extra redis --extra otel pyproject.toml --output-file requirements-runtime.lock

clean: ## Remove .venv, caches and build output
	@echo "==> clean: removing .venv, caches and build output"
	@rm -rf $(VENV) .node build dist .coverage .coverage.* htmlcov .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find src tests bench examples docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
