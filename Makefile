# One environment (.venv) with pinned versions; every target installs what it needs and does nothing twice.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# pyright would ask the network for newer versions of itself and warn about them.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.DEFAULT_GOAL := help
.PHONY: help install app test lint bench demo-train demo-runs demo-report headline

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

install: $(VENV)/.installed-dev ## create .venv with everything, tests and tools included

app: $(VENV)/.installed ## start the page in the browser
	@$(BIN)/streamlit run app

test: lint ## all checks and tests, with coverage
	@$(BIN)/python -m pytest tests --ignore=tests/benchmarks --ignore=tests/e2e -n logical --dist loadfile --cov --cov-report=
	@$(BIN)/python -m pytest tests/e2e --cov --cov-append --cov-report=term

lint: $(VENV)/.installed-dev ## format, lint, types and import rules
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/pyright
	@$(BIN)/lint-imports

bench: $(VENV)/.installed-dev ## time and memory of a captured run against the bare model
	@$(BIN)/python -m pytest tests/benchmarks -q -s -o addopts=""

demo-train: $(VENV)/.installed ## train the demo model from scratch into training/demo (hours; resumes)
	@$(BIN)/python -m model.train --out training/demo

demo-runs: $(VENV)/.installed ## build the runs and cards that come with the demo's checkpoints
	@$(BIN)/python -m model.bundle

demo-report: $(VENV)/.installed ## measure the demo's checkpoints on text they never saw
	@$(BIN)/python -m model.report

headline: $(VENV)/.installed ## measure the exit rules live at equal loops; renews docs/headline.* and the README
	@$(BIN)/python -m analysis.headline

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; name one, such as: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv $(VENV)

# The interpreter is needed, but its date says nothing: hence order-only (after the bar).
$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@$(PIP) --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	@$(PIP) --editable '.[dev]'
	@touch $(VENV)/.installed $@
