# Every target creates .venv and installs what it needs first. Python 3.11 or later and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Keep bytecode even if the environment disables it: compiling torch and transformers takes every process 7 s.
unexport PYTHONDONTWRITEBYTECODE

# Reproducible builds: files carry the time of the last commit, or the earliest that a wheel can hold.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 315532800)

.PHONY: demo test test-all lint format docs notebooks dist test-dist soak clean

demo: $(READY)
	$(BIN)/auber demo

PARALLEL := --numprocesses auto --maxprocesses 4

# The tests of a file share costly fixtures and stay in one process. tests/conftest.py puts the longest files first.
test: $(READY)
	$(BIN)/python -m pytest $(PARALLEL) --dist loadfile --no-loadscope-reorder

test-all: $(READY)
	$(BIN)/python -m pytest -m ""

lint: $(READY)
	$(BIN)/ruff format --check src tests notebooks benchmarks
	$(BIN)/ruff check src tests notebooks benchmarks
	$(BIN)/mypy
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive src

format: $(READY)
	$(BIN)/ruff format src tests notebooks benchmarks
	$(BIN)/ruff check --fix src tests notebooks benchmarks

# Build the site into site/ in strict mode, then run every code block of README and docs.
docs: $(READY)
	$(BIN)/python -m pytest -m "" $(PARALLEL) --dist loadgroup --no-loadscope-reorder tests/docs

notebooks: $(READY)
	$(BIN)/python -m pytest -m "" tests/test_notebooks.py

dist: $(READY)
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist

# Build both twice, install the wheel into an empty environment and run it there. Installing torch takes most of the time.
test-dist: $(READY)
	$(BIN)/python -m pytest -m "" tests/test_packaging.py

# Faults and load at full length, about half an hour of two cores; root, for it mounts small disks. Then the page with its figures.
soak: $(READY)
	$(BIN)/python -m benchmarks.soak --out results/soak.json
	$(BIN)/python -m benchmarks.pages reliability

# torch comes first so that pip takes the pinned build before another package can require a newer one.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("auber needs Python 3.11 or later, found " + sys.version.split()[0] + "; set PYTHON=...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev,docs]'
	touch $(READY)

clean:
	rm -rf $(VENV) build dist site .cache .mypy_cache .pytest_cache .ruff_cache
