# Two commands do everything on a machine with only Python and make:
#   make audit   install what is pinned in constraints.txt into .venv, then run the quickstart audit
#   make test    the same for the development tools, then every check and test
# `make coverage` repeats the tests and fails below 95% of lines. It is not part of `.ci/run`, because measuring takes
# half as much processor time again, or more: run it before a release.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Processes for the tests, each held to one thread: one more than two cores, as one of them runs tests that mostly wait.
WORKERS ?= 3
# Further arguments for pip, e.g. another index for a CPU-only torch.
PIP_ARGS ?=
CONFIG ?= configs/quickstart.yaml
OUTPUT ?= runs/quickstart

INSTALL := $(BIN)/python -m pip install -q -c constraints.txt $(PIP_ARGS)

.DEFAULT_GOAL := help
.PHONY: help audit test coverage lint docs examples wheel status format clean

help:
	@echo "make audit | test | coverage | lint | docs | examples | wheel | status | format | clean"

audit: $(VENV)/.installed
	$(BIN)/lightleak audit $(CONFIG) --output $(OUTPUT)

# Tests last from milliseconds to a minute: an idle process takes over what the other has not started.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n $(WORKERS) --dist worksteal --ignore=tests/examples --ignore=tests/packaging

test: lint
	$(PYTEST)

coverage: $(VENV)/.installed-dev
	$(PYTEST) --cov --cov-report=term

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# Stops at the first broken link, anchor or docstring.
docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The notebooks from the first cell to the last.
examples: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $(WORKERS) tests/examples

# What is built and handed out.
wheel: $(VENV)/.installed-dev
	$(BIN)/pytest -n 0 tests/packaging
	$(BIN)/python -m build -q --outdir dist .

# The tables of the papers in RESULTS.md and the documentation, from benchmarks/status.json.
status: $(VENV)/.installed
	$(BIN)/python benchmarks/status.py

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Keeps .venv and the downloaded tables.
clean:
	rm -rf build dist site htmlcov .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests benchmarks -type d -name __pycache__ -prune -exec rm -rf {} +

# The pip that comes with Python 3.11 takes three times as long to choose versions; it is kept if the upgrade fails.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	-$(INSTALL) --upgrade "pip>=25,<27"

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e .
	touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[all,dev,docs]'
	touch $@ $(VENV)/.installed
