# `make` lists the targets. Each installs what it needs into .venv first, once.

PYTHON ?= $(shell for python in python3.11 python3.12 python3; do \
    $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
WORKERS ?= 2
BIN := .venv/bin
FAST := not slow and not gpu

.PHONY: help demo test test-slow lint bench alarms evidence docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s%s\n", $$1, $$2 }' Makefile

demo: .venv/demo.installed ## fine-tune a small language model on a leash and show it (minutes)
	$(BIN)/kleash demo

test: .venv/dev.installed ## the fast tests
	$(BIN)/python -m pytest -n $(WORKERS) -m "$(FAST)"

test-slow: .venv/dev.installed ## all other tests; those for a GPU are skipped without one
	$(BIN)/python -m pytest -m "not ($(FAST))"

lint: .venv/dev.installed ## style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src
	$(BIN)/lint-imports

bench: .venv/bench.installed ## compare speed and memory with other libraries
	@for script in benchmarks/rl_step.py benchmarks/linear_kl.py benchmarks/gauge.py; do echo "$$script" && $(BIN)/python $$script || exit 1; done

alarms: .venv/dev.installed ## measure the monitor's false alarms and delays, and write docs/alarms.md (10 minutes)
	$(BIN)/python -m benchmarks.alarms

evidence: .venv/dev.installed ## run the recipes of evidence: hours (RECIPES=zero_kl for one)
	$(BIN)/python -m recipes.evidence $(RECIPES)

docs: .venv/dev.installed ## write the generated pages of docs/
	$(BIN)/python docs/generate.py

clean: ## remove .venv and caches; runs are kept
	rm -rf .venv build dist .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache
	find src tests -name __pycache__ -prune -exec rm -rf {} +

.venv/demo.installed: EXTRAS = demo
.venv/dev.installed: EXTRAS = demo,data,label,judge,watch,logs,dev
.venv/bench.installed: EXTRAS = demo,data,bench

.venv/%.installed: pyproject.toml constraints.txt | .venv/bin/python
	@sh tools/install.sh $(EXTRAS)
	@touch $@

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Kleash needs Python 3.11 or newer and found none. Install it, or name one: make PYTHON=/path/to/python"; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }
