VENV ?= .venv
GPU_PYTHON ?= $(VENV)/bin/python
BIN = $(VENV)/bin

demo: $(VENV)/.ready
	$(BIN)/servetwin demo

test: $(VENV)/.ready
	$(BIN)/python -m pytest -q -n auto --dist loadfile -m "not quiet"
	$(BIN)/python -m pytest -q -m quiet

# The site is dist/docs/index.html.
docs: $(VENV)/.ready
	$(BIN)/python -m mkdocs build

bench: $(VENV)/.ready
	$(BIN)/python -m pytest -q tests/benchmarks/bench_simulator.py tests/benchmarks/bench_loadtest.py

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready
	$(BIN)/mypy

# On a machine with a CUDA device; GPU_PYTHON may be any python that has the packages.
gpu:
	$(GPU_PYTHON) -m app.twin.gpu_session --out results/gpu

$(VENV)/.ready: pyproject.toml constraints.txt requirements.txt
	test -x $(BIN)/python || python3 -m venv $(VENV)
	$(BIN)/python -m pip install -q -r requirements.txt
	touch $@

.PHONY: demo test docs bench lint types gpu
