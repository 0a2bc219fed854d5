# Every target stands alone: it makes .venv and installs what it needs first. Python 3.11 or later and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Bytecode is kept, also where the environment says otherwise: pip makes none below, and a process that finds none compiles torch
# and transformers anew, seven seconds of a core each time.
unexport PYTHONDONTWRITEBYTECODE

# The same sources give the same files: times inside them are the last commit's, outside of git the first a wheel can hold.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 315532800)

.PHONY: demo test test-all lint format docs notebooks dist test-dist soak clean

demo: $(READY)
	$(BIN)/auber demo

# Several processes; each loads torch, so they are few.
TOGETHER := --numprocesses auto --maxprocesses 4

# A file's tests stay in one process, since they share what is costly to make. The longest files are first in tests/conftest.py's
# order; left to itself the scheduler would begin with those that have the most tests, and end with one process in a long one.
test: $(READY)
	$(BIN)/python -m pytest $(TOGETHER) --dist loadfile --no-loadscope-reorder

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

# The site, strictly, into site/; then every code block of README and docs.
docs: $(READY)
	$(BIN)/python -m pytest -m "" $(TOGETHER) --dist loadgroup --no-loadscope-reorder tests/docs

notebooks: $(READY)
	$(BIN)/python -m pytest -m "" tests/test_notebooks.py

dist: $(READY)
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist

# Builds both twice, installs the wheel into an empty environment and runs it there: some minutes, most of them to install torch.
test-dist: $(READY)
	$(BIN)/python -m pytest -m "" tests/test_packaging.py

# Faults and load at full length, some twenty minutes of two cores; root, for it mounts small disks. Then the page with its figures.
soak: $(READY)
	$(BIN)/python -m benchmarks.soak --out results/soak.json
	$(BIN)/python -m benchmarks.pages reliability

# Torch is named on its own so that the pinned build is taken before anything else can ask for a newer one.
# Bytecode is made when a module is first imported: most modules never are.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("auber needs Python 3.11 or later, found " + sys.version.split()[0] + "; set PYTHON=...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev,docs]'
	touch $(READY)

clean:
	rm -rf $(VENV) build dist site .cache .mypy_cache .pytest_cache .ruff_cache
