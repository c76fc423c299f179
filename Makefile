# Penstock's development tasks. `make` alone lists them.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
DEV_STAMP := $(VENV)/.stamp-dev
BENCH_STAMP := $(VENV)/.stamp-bench
SPARK43_VENV := .venv-spark43
SPARK43_BIN := $(SPARK43_VENV)/bin
SPARK43_STAMP := $(SPARK43_VENV)/.stamp-dev

# Versions with hashes, which `make constraints` writes.
BUILD_FILES := pyproject.toml constraints/build.txt scripts/ensure_venv.sh scripts/install.sh
DEV_CONSTRAINTS := constraints/dev.txt constraints/spark42.txt
BENCH_CONSTRAINTS := $(DEV_CONSTRAINTS) constraints/bench.txt
SPARK43_CONSTRAINTS := constraints/dev.txt constraints/spark43.txt

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# pip must not write to one environment twice at a time.
.NOTPARALLEL:

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' "$(lastword $(MAKEFILE_LIST))" | sed -E 's/^([a-z0-9-]+):.*## (.*)$$/  make \1\t\2/' | expand -t 20

.PHONY: setup
setup: $(DEV_STAMP) ## create .venv with all that development needs, and check for Java
	@scripts/ensure_java.sh

$(DEV_STAMP): $(BUILD_FILES) $(DEV_CONSTRAINTS)
	@scripts/ensure_venv.sh "$(PYTHON)" "$(VENV)"
	scripts/install.sh "$(VENV)" dev $(DEV_CONSTRAINTS)
	@touch "$@"

$(BENCH_STAMP): $(DEV_STAMP) $(BENCH_CONSTRAINTS)
	scripts/install.sh "$(VENV)" dev,bench $(BENCH_CONSTRAINTS)
	@touch "$@"

$(SPARK43_STAMP): $(BUILD_FILES) $(SPARK43_CONSTRAINTS)
	@scripts/ensure_venv.sh "$(PYTHON)" "$(SPARK43_VENV)"
	scripts/install.sh "$(SPARK43_VENV)" dev $(SPARK43_CONSTRAINTS)
	@touch "$@"

.PHONY: reference
reference: setup ## write the generated parts of docs/reference anew
	"$(BIN)/python" scripts/write_reference.py

.PHONY: constraints
constraints: ## write the constraints files anew; CONSTRAINTS_ARGS=--upgrade takes the newest versions
	"$(PYTHON)" scripts/write_constraints.py $(CONSTRAINTS_ARGS)

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
test: setup prepare ## lint and every test but the long ones
	@MAKE="$(MAKE)" "$(BIN)/python" scripts/run_tests.py

.PHONY: test-full
test-full: setup prepare ## lint and every test in its long form
	@MAKE="$(MAKE)" "$(BIN)/python" scripts/run_tests.py --full

.PHONY: test-spark43
test-spark43: $(SPARK43_STAMP) ## the integration tests on PySpark 4.3, in an environment of their own
	@scripts/ensure_java.sh
	@"$(SPARK43_BIN)/penstock" prepare
	"$(SPARK43_BIN)/python" -m pytest tests/integration -m "also_on_spark or not full" $(TEST_ARGS)

.PHONY: docs
docs: setup ## build the documentation as a site, in build/site
	@NO_MKDOCS_2_WARNING=1 "$(BIN)/mkdocs" build --strict

.PHONY: bench
bench: setup $(BENCH_STAMP) ## measure against hand-written Spark and Bytewax; writes benchmarks/results.md
	"$(BIN)/python" -m benchmarks $(BENCH_ARGS)

.PHONY: clean
clean: ## remove the environments and everything that was generated
	rm -rf "$(VENV)" "$(SPARK43_VENV)" .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .penstock
	rm -rf spark-warehouse metastore_db derby.log artifacts build dist
	find src tests examples benchmarks scripts -type d -name __pycache__ -prune -exec rm -rf {} +
