# `make` alone lists the targets.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
PYTEST := $(BIN)/pytest
# two processes; the tests of a file stay together, they share what is expensive to set up
BOTH   := -n 2 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help setup setup-bench demo up check test test-all lint types fmt bench clean

help:  ## list the targets
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/.core  ## environment for the demo and the UI (pinned by constraints.txt)

$(VENV)/.core: constraints.txt pyproject.toml
	@PYTHON=$(PYTHON) sh deploy/setup.sh core

$(VENV)/.dev: $(VENV)/.core
	@PYTHON=$(PYTHON) sh deploy/setup.sh dev

$(VENV)/.bench: $(VENV)/.dev
	@PYTHON=$(PYTHON) sh deploy/setup.sh bench

$(VENV)/.browser: $(VENV)/.dev
	@sh deploy/setup.sh browser

demo: $(VENV)/.core  ## the whole graph on the bundled sample, to a trained checkpoint
	@$(BIN)/gristmill demo

up: $(VENV)/.core  ## Dagster UI and MLflow UI on loopback
	@$(BIN)/gristmill up

check: $(VENV)/.dev lint types  ## lint, types and the quick tests: before every commit
	@$(PYTEST) $(BOTH) --ignore tests/e2e -m "not slow and not long and not faults and not e2e and not bench"

test: $(VENV)/.dev  ## all tests but the long ones, faults, peers and the browser
	@$(PYTEST) $(BOTH) -m "not long and not faults and not e2e and not bench"

test-all: $(VENV)/.dev $(VENV)/.browser  ## the rest: long tests, faults, services, the browser
	@$(PYTEST) -m "long or faults or e2e"

lint: $(VENV)/.dev  ## ruff
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/.dev  ## mypy --strict
	@$(BIN)/mypy

fmt: $(VENV)/.dev  ## format and sort imports
	@$(BIN)/ruff check --fix-only -q .
	@$(BIN)/ruff format -q .

bench: $(VENV)/.bench  ## measure against the peers
	@for stage in extract language filter signatures banding dedup score scrub tokenize load train curate; do \
		$(BIN)/gristmill bench $$stage || exit 1; done

clean:  ## remove the environment, caches and the demo's store
	@rm -rf $(VENV) .kernels .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-store *.egg-info
