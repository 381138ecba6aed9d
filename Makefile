# `make demo` and `make test` are all a stranger needs; editors, hooks and CI call the same targets.

VENV ?= .venv
BIN := $(VENV)/bin
PYTHON ?= python3
PREPARE := $(PYTHON) tests/support/prepare.py
PYTEST := $(BIN)/python -m pytest
PARALLEL := -n auto --dist loadgroup --no-loadscope-reorder
MARKED := kernel or browser or slow or localmodel or notebooks

# Without bytecode every kernel starts about twice as slow.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test test-fast check docs bench matrix build clean chromium shells kernels \
  model

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

setup:  ## environment with the project and its tools, lab extension included where Node is there
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else \
	  "Python 3.11 or newer is needed; name one with: make PYTHON=...")'
	@$(PREPARE) labextension
	@$(PREPARE) venv $(VENV)

demo: setup chromium  ## open JupyterLab with the quickstart (HEADLESS=1: drive it in a headless browser; CSV=path)
	@$(BIN)/op-jupyter demo $(if $(HEADLESS),--headless) $(if $(CSV),--csv "$(CSV)")

test: setup  ## everything: lessons, kernels, browser, embedded model
	@$(MAKE) --no-print-directory -j3 shells kernels model
	@$(PYTEST) $(PARALLEL)

chromium kernels shells:
	@$(PREPARE) $@

shells: chromium  # one apt-get at a time

model:
	@$(BIN)/op-jupyter local install

test-fast: setup  ## the inner loop: no kernels, no browser, nothing slow
	@$(PYTEST) $(PARALLEL) -m "not ($(MARKED))"

check: setup  ## lint, format, layers, types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports
	@$(BIN)/mypy
	@if [ -d labextension/node_modules/typescript ]; then cd labextension && npm run --silent check; fi

docs: setup  ## the site, into docs/_build/html; a warning is an error
	@$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html

bench: setup chromium kernels  ## measure, beside peers too, and compare with the goals (FULL=1: up to 100,000 nodes)
	@met=0; \
	$(BIN)/python benchmarks/peers/compare.py --out docs $(if $(FULL),--full) || met=1; \
	$(PYTEST) benchmarks --benchmark-enable --benchmark-only || met=1; \
	exit $$met

matrix: setup chromium kernels  ## every front end with every kernel, into docs/front-ends.md (ONLY="lab 7.3.0", MISSING=1: some rows)
	@$(BIN)/python -m tests.support.matrix $(if $(MISSING),--missing) $(ONLY)

build: setup  ## sdist and wheel into dist/, checked as an index of packages would
	@rm -rf dist
	@$(BIN)/python -m build
	@$(BIN)/twine check --strict dist/*

clean:  ## remove everything that the other targets made
	rm -rf $(VENV) .venv-ci .envs dist docs/_build op_jupyter/labextension labextension/node_modules
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
