# Penstock's development tasks. `make` alone lists them.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
DEV_STAMP := $(VENV)/.stamp-dev
BENCH_STAMP := $(VENV)/.stamp-bench

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# pip must not write to one environment twice at a time.
.NOTPARALLEL:

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' "$(lastword $(MAKEFILE_LIST))" | sed -E 's/^([a-z-]+):.*## (.*)$$/  make \1\t\2/' | expand -t 20

.PHONY: setup
setup: $(DEV_STAMP) ## create .venv with all that development needs, and check for Java
	@scripts/ensure_java.sh

$(DEV_STAMP): pyproject.toml scripts/ensure_venv.sh
	@scripts/ensure_venv.sh "$(PYTHON)" "$(VENV)"
	"$(BIN)/python" -m pip install --disable-pip-version-check --quiet --editable ".[dev]"
	@touch "$@"

$(BENCH_STAMP): $(DEV_STAMP)
	"$(BIN)/python" -m pip install --disable-pip-version-check --quiet --editable ".[dev,bench]"
	@touch "$@"

.PHONY: demo
demo: setup ## run the word count and the file types example on the embedded log
	@"$(BIN)/python" scripts/demo.py

.PHONY: lint
lint: setup ## ruff, mypy in strict mode, import contracts
	"$(BIN)/ruff" check .
	"$(BIN)/ruff" format --check .
	"$(BIN)/mypy"
	"$(BIN)/lint-imports"

.PHONY: prepare
prepare: setup ## make the archive of classes from which Spark starts sooner, unless there is one
	@"$(BIN)/penstock" prepare

.PHONY: test
test: setup prepare ## lint, then every test but the long ones, in twelve minutes on two idle processors
	@MAKE="$(MAKE)" "$(BIN)/python" scripts/run_tests.py

.PHONY: test-full
test-full: setup prepare ## lint, then every test in its long form
	@MAKE="$(MAKE)" "$(BIN)/python" scripts/run_tests.py --full

.PHONY: bench
bench: setup $(BENCH_STAMP) ## measure against hand-written Spark and Bytewax; writes benchmarks/results.md
	"$(BIN)/python" -m benchmarks $(BENCH_ARGS)

.PHONY: clean
clean: ## remove .venv and everything that was generated
	rm -rf "$(VENV)" .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .penstock
	rm -rf spark-warehouse metastore_db derby.log artifacts build dist
	find src tests examples benchmarks scripts -type d -name __pycache__ -prune -exec rm -rf {} +
