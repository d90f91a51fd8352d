# Every target sets up .venv on demand; nothing but Python 3.11 or later is needed. `make demo` and `make test` are the stable entries.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.heddle-installed
SASS_STAMP := $(VENV)/.heddle-sass-installed
PYTEST_FLAGS ?= -n auto --maxprocesses 4

.DEFAULT_GOAL := help
.PHONY: help demo test slow lint format bench docs clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## /  make \1\t/' | expand -t 16

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Heddle needs Python 3.11 or later; set PYTHON=/path/to/python" >&2; exit 2; }
	@echo "setting up $(VENV) (once; about a minute)" >&2
	@$(PYTHON) -m venv $(VENV) || { echo "python3 -m venv failed; on Debian and Ubuntu install the package python3-venv" >&2; exit 2; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

$(SASS_STAMP): $(STAMP)
	@echo "adding NVIDIA's compiler and disassembler to $(VENV) (once; 360 MB)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,sass]'
	@touch $@

demo: $(STAMP) ## attention on H100, today and with FIBER: measured, simulated, compared step by step; a timeline
	@$(BIN)/python examples/demo.py

test: $(STAMP) ## the tests (what CI runs; no GPU, no network)
	@$(BIN)/python -m pytest $(PYTEST_FLAGS)

slow: $(SASS_STAMP) ## the long-running checks (fetches CUDA's compiler and some libraries with cubins)
	@$(BIN)/python -m pytest -m slow --hypothesis-profile=default

lint: $(STAMP) ## formatting, lint, types, import order, spelling
	@$(BIN)/ruff format --check src tests examples
	@$(BIN)/ruff check src tests examples
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/codespell

format: $(STAMP) ## rewrite the sources in the project's format
	@$(BIN)/ruff format src tests examples
	@$(BIN)/ruff check --fix src tests examples

bench: $(STAMP) ## speed of the engine and the compiler, thread CPU time
	@$(BIN)/heddle bench

docs: $(STAMP) ## check the links of the documentation and run its examples
	@$(BIN)/python -m pytest tests/unit/test_docs.py

clean: ## remove the environment and every cache
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests examples -name __pycache__ -type d -prune -exec rm -rf {} +
