VENV ?= .venv
GPU_PYTHON ?= python3
GPU_VENV ?= .venv-gpu
GPU_OUT ?= results/gpu
LOWEST_VENV ?= .venv-lowest
LOWEST_TESTS ?= tests
COMPILED_TESTS ?= tests/policies tests/sim tests/app/commands tests/app/test_plugins.py tests/test_compile_core.py
BIN = $(VENV)/bin
# One more than there are cores: tests wait for servers and browsers a third of their time.
TEST_PROCESSES ?= $(shell expr $$(nproc) + 1)

# Exit code 3, "cannot tell", is an answer and no failure of make.
demo: $(VENV)/.ready
	$(BIN)/servetwin demo || test $$? = 3
	@$(BIN)/python compile_core.py || true

# The dashboard, for a first answer about a file of one's own.
dashboard: $(VENV)/.ready
	$(BIN)/servetwin dashboard

# Each worker computes on one core, and what its tests start need not compile the program anew.
test test-full quick: export OMP_NUM_THREADS = 1
test test-full quick: export PYTHONDONTWRITEBYTECODE =
PYTEST = $(BIN)/python -m pytest -q -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

# No case of more than two seconds.
test: $(VENV)/.ready
	$(PYTEST) -m "not quiet and not slow"

# All tests; those that measure milliseconds have the cores for themselves, whatever came of the others.
test-full: $(VENV)/.ready
	$(PYTEST) -m "not quiet"; others=$$?; \
	$(BIN)/python -m pytest -q -m quiet $(shell grep -rl mark.quiet tests --include='test_*.py') && exit $$others

# The inner loop: no browser, no clock, no page of the documentation, below a minute.
quick: $(VENV)/.ready
	$(PYTEST) -m "not quiet and not slow and not browser" \
		--hypothesis-profile=quick tests/policies tests/sim tests/workloads tests/loadtest tests/test_architecture.py

# The core compiled by mypyc, once for these sources, in the cache of the user; it takes a C compiler.
core: $(VENV)/.ready
	$(BIN)/python compile_core.py

# The tests that touch the core, compiled; all others run the sources (tests/conftest.py).
test-compiled: export OMP_NUM_THREADS = 1
test-compiled: export SERVETWIN_PURE =
test-compiled: core
	$(PYTEST) -m "not quiet and not browser" $(COMPILED_TESTS)

# Which single changes to policies, core, metrics, stream reading and verdict does no test notice?
# (tool.mutmut in pyproject.toml.) In a copy whose folders lie below servetwin/, where their names say.
FOLDERS = app engine loadtest policies sim workloads
mutants: $(VENV)/.ready
	$(BIN)/python -m pip install -q -c constraints.txt -e .[dev]
	rm -rf build/mutants && mkdir -p build/mutants
	cp -r servetwin tests docs pyproject.toml README.md constraints.txt build/mutants
	cp -r $(FOLDERS) build/mutants/servetwin
	cd build/mutants && ln -s $(addprefix servetwin/,$(FOLDERS)) .
	cd build/mutants && $(abspath $(BIN))/mutmut run && $(abspath $(BIN))/mutmut results

# One exact version of every package that the extras need: Linux x86-64, Python 3.11.
lock: $(VENV)/.ready
	$(BIN)/python tests/support/lock.py constraints.txt

# Do the lowest versions that the ranges allow pass the tests? Some warn of newer ones that they use.
lowest: $(VENV)/.ready
	$(BIN)/python -m pip install -q -c constraints.txt -e .[dev]
	$(BIN)/uv venv -q --clear --python $(BIN)/python $(LOWEST_VENV)
	$(BIN)/uv pip install -q --python $(LOWEST_VENV) --resolution lowest-direct -e .[app,engine,fast,ray,report,test]
	OMP_NUM_THREADS=1 $(LOWEST_VENV)/bin/python -m pytest -q -n $(TEST_PROCESSES) --dist loadfile -W default -m "not quiet" $(LOWEST_TESTS)

# Has a locked version a known vulnerability? One of which nothing is known fails too; `AUDIT="-s osv"`
# asks osv.dev instead of PyPI.
audit: $(VENV)/.ready
	$(BIN)/python -m pip install -q -c constraints.txt -e .[dev]
	$(BIN)/uv tool run pip-audit --strict --no-deps --disable-pip --progress-spinner off $(AUDIT) -r constraints.txt

licences: $(VENV)/.ready
	$(BIN)/python -m pip install -q -c constraints.txt -e .[dev,engine,fast,app,report,pictures]
	$(BIN)/python docs/_site/licences.py docs/third-party-licences.md

# The site is dist/docs/index.html.
docs: $(VENV)/.ready
	$(BIN)/python docs/_site/prose.py
	$(BIN)/python -m mkdocs build

# The rows of the compiled core want a C compiler.
bench: $(VENV)/.ready
	$(BIN)/python compile_core.py || echo "without the rows of the compiled core"
	$(BIN)/python -m pytest -q tests/benchmarks/bench_simulator.py \
		tests/benchmarks/bench_clusters.py tests/benchmarks/bench_queues.py \
		tests/benchmarks/bench_loadtest.py

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# The folders under the name by which they are imported.
types: $(VENV)/.ready
	mkdir -p build/types/servetwin
	ln -sfn $(CURDIR)/servetwin/*.py $(foreach f,app engine loadtest policies sim workloads,$(CURDIR)/$(f)) build/types/servetwin
	$(BIN)/mypy

# On a machine with a CUDA device whose GPU_PYTHON has torch; WHEELS=DIR installs without a network,
# MINUTES=9 ends after so many, and the next run goes on from there. TRIAL=1 tries it all without a
# card, on a small model.
gpu:
	$(GPU_PYTHON) -m tests.benchmarks.gpu_environment $(GPU_VENV) $(if $(WHEELS),--wheels $(WHEELS))
	$(GPU_VENV)/bin/python -m tests.benchmarks.gpu_session --out $(GPU_OUT)$(if $(TRIAL),/trial) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(TRIAL),--device cpu --shapes tiny)

$(VENV)/.ready: pyproject.toml constraints.txt requirements.txt
	test -x $(BIN)/python || python3 -m venv $(VENV)
	$(BIN)/python -m pip install -q -r requirements.txt
	touch $@

.PHONY: demo dashboard test test-full quick core test-compiled mutants lock lowest audit licences docs bench lint types gpu
