# One entry point for people and CI. `make demo` and `make test` work on a fresh clone: they make their own environment.
PYTHON ?= python3.11
BIN = .venv/bin
# Tests wait for processes that they start: one worker more than there are cores keeps these busy.
JOBS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
# Tests start hundreds of processes; where this is set, each of them would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help dev demo test test-all quick check docs unused words fmt lint types layers cover bench dist clean

help:      ## list the targets
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-10s %s\n", $$1, $$2}'

.venv/.runtime: pyproject.toml
	@echo "installing exirkit and torch into .venv: a download of some hundred megabytes, once"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --progress-bar on -e .
	touch $@

.venv/.dev: .venv/.runtime
	@echo "installing what tests and lint need into .venv, once"
	$(BIN)/python -m pip install --progress-bar on -e . --group dev
	touch $@

dev: .venv/.dev ## create .venv with everything a contributor needs

demo: .venv/.runtime ## set up, lower a real model, run it, compare with eager
	$(BIN)/exirkit demo

test: check ## set up, lint, and run a selection of the tests that covers every feature
	$(BIN)/pytest -n $(JOBS) -m 'not slow'

test-all: check ## set up, lint, and run all tests, as CI does
	$(BIN)/pytest -n $(JOBS)

quick: .venv/.dev ## the tests of `make test` that need no official runtime, without lint
	$(BIN)/pytest -n $(JOBS) -m 'not slow and not executorch'

check: .venv/.dev ## lint, types, import contracts, unused code, banned phrases, docs
	$(MAKE) -j2 --no-print-directory --output-sync=target types lint docs unused words layers

fmt: .venv/.dev ## rewrite files into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lint: .venv/.dev ## formatting and lint, no changes
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: .venv/.dev ## mypy, strict
	$(BIN)/mypy

layers: .venv/.dev ## the order of the rooms
	$(BIN)/lint-imports

unused: .venv/.dev ## code that nothing uses
	$(BIN)/vulture

words: .venv/.dev ## banned phrases
	$(BIN)/python tools/banned_phrases.py

docs: .venv/.dev ## the documentation as a site in build/site, links checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

cover: .venv/.dev ## branch coverage, as a report of what is missing
	$(BIN)/pytest -n $(JOBS) --cov --cov-report=term-missing:skip-covered

bench: .venv/.dev ## lowering, side by side with the official exporter
	$(BIN)/python -m benchmarks.lowering

dist: .venv/.dev ## sdist and wheel in dist/, checked
	$(BIN)/python -m build
	$(BIN)/check-wheel-contents dist/*.whl

clean:     ## remove everything generated
	rm -rf .venv build dist src/*.egg-info .*_cache .coverage
