# The verbs of the project. `make demo` and `make test` work on a bare clone with Python 3.11+ and pip.
PYTHON ?= python3
BIN := .venv/bin
RUN := .venv/.installed
DEV := .venv/.installed-dev
# Two processes with one thread each (tests/conftest.py); TESTS='.venv/bin/python -m pytest' is one process.
TESTS ?= $(BIN)/python -m pytest -n 2 --dist worksteal
RIVALS := OffCEM OffCEMFeatures OffCEMGiven MDR MetaOPE OPERA OCV BoostedDM

# Tests that need torch, git or the tools of the developers do without in `oldest` and `pythons`.
PLAIN := -q -p no:cacheprovider -n 2 --dist worksteal -o filterwarnings=default --ignore tests/test_mutants.py
OLDEST ?= python3.11
PYTHONS ?= python3.11 python3.12 python3.13

.PHONY: demo test long check slow fuzz oldest pythons packages hashes mutants bench readings trust quick docs clean

demo: $(RUN)
	$(BIN)/cael demo

test: $(DEV)
	$(TESTS)

long: $(DEV)
	$(TESTS) -m 'long and not slow'

check: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(TESTS)

slow: $(DEV)
	$(BIN)/python -m pytest -m slow

fuzz: $(DEV)
	CAEL_FUZZ=1 $(TESTS) -m 'not slow'
	$(BIN)/python -m tests.hostile.fuzzer --seconds 600 --keep fuzz-findings

# Exactly the least versions that pyproject.toml declares.
oldest:
	rm -rf .venv-oldest && $(OLDEST) -m venv .venv-oldest
	$(OLDEST) .ci/minima.py > .venv-oldest/minima.txt
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check -r .venv-oldest/minima.txt
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	.venv-oldest/bin/cael demo
	.venv-oldest/bin/python -m pytest $(PLAIN)

# Each Python that is declared and found, with the versions of constraints.txt. OPTIONS='tests/io' runs some of the tests.
pythons:
	for python in $(PYTHONS); do \
	    rm -rf .venv-$$python && $$python -m venv .venv-$$python && \
	    .venv-$$python/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	        -e '.[report,dask,test]' && \
	    .venv-$$python/bin/cael demo && .venv-$$python/bin/python -m pytest $(PLAIN) $(OPTIONS) || exit 1; \
	done

packages: $(DEV)
	.ci/packages

hashes: $(DEV)
	$(BIN)/python .ci/hashes.py

mutants: $(DEV)
	$(BIN)/python -m tests.mutants --jobs 2

bench: $(DEV)
	$(BIN)/python benchmarks/against_obp.py
	$(BIN)/python benchmarks/embedding.py
	$(BIN)/python benchmarks/million_rows.py
	$(BIN)/python benchmarks/million_rows.py --form table
	$(BIN)/python benchmarks/streaming.py
	$(BIN)/python benchmarks/many_actions.py

readings: $(DEV)
	$(BIN)/cael reproduce readings

quick: $(DEV)
	$(BIN)/cael reproduce --quick --out results/quick

# Hours: 40 logs of each world with learning, worlds drawn at random, broken logs.
trust: $(DEV)
	$(BIN)/python -m cael.experiments.trust run --out docs/results/trust.json --jobs 2 --estimators $(RIVALS)
	$(BIN)/python -m cael.experiments.trust page --out docs/results

docs: $(DEV)
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

clean:
	rm -rf .venv docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/bin/python:
	$(PYTHON) -m venv .venv

$(RUN): pyproject.toml requirements-runtime.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-runtime.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

$(DEV): pyproject.toml constraints.txt requirements-dev.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $(RUN) $@
