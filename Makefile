# Every target stands alone: it makes .venv and installs what it needs first. Python 3.11 or later and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-all lint format clean

demo: $(READY)
	$(BIN)/auber demo

test: $(READY)
	$(BIN)/python -m pytest

test-all: $(READY)
	$(BIN)/python -m pytest -m ""

lint: $(READY)
	$(BIN)/ruff format --check src tests
	$(BIN)/ruff check src tests
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format src tests
	$(BIN)/ruff check --fix src tests

# Torch is named on its own so that the pinned build is taken before anything else can ask for a newer one.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("auber needs Python 3.11 or later, found " + sys.version.split()[0] + "; set PYTHON=...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache
