# All targets use their own virtual environment. They need only python3, venv and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-vm cover check docs sessions scaling bench clean

help: ## list all targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.developing: pyproject.toml $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(VENV)/.installed ## set up, plan two ranks, run them and show where each thread ran
	$(BIN)/ompbind plan -n 2
	$(BIN)/ompbind run -n 2 --log-dir $(VENV)/demo --force -- $(BIN)/ompbind probe
	cat $(VENV)/demo/0.out $(VENV)/demo/1.out

test: $(VENV)/.developing ## set up and run the tests in parallel; the last lines list skipped tests with reasons
	$(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

test-long: $(VENV)/.developing ## run the tests with large numbers: examples, faults, recordings, all runtimes
	OMPTEST_LONG=1 $(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)
	OMPTEST_EXAMPLES=100000 $(BIN)/python -m pytest -n auto --dist worksteal \
	    tests/planning/test_promises.py tests/planning/strategies/test_table.py

test-vm: $(VENV)/.developing ## boot virtual machines with other topologies and bind there
	OMPTEST_VM_TESTS=1 $(BIN)/python -m pytest -n auto --dist loadgroup tests/vm $(ARGS)

cover: $(VENV)/.developing ## run the tests that start no other process, and show lines without coverage
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q --ignore=tests/live $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

check: $(VENV)/.developing ## check lint, types, the import rule, and that the docs are up to date
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy packaging/*.py
	$(BIN)/python -m pytest -q tests/test_rooms.py tests/test_docs.py

docs: $(VENV)/.developing ## rewrite docs/reference.md from the program, and the examples in pages
	$(BIN)/python docs/generate.py

sessions: $(VENV)/.developing ## record the sessions and pictures of docs/benchmarking.md again; needs gcc and an idle machine
	$(BIN)/python docs/record_sessions.py

scaling: $(VENV)/.developing ## measure the tables of docs/scaling.md again; needs strace and an idle machine
	$(BIN)/python docs/record_scaling.py

bench: $(VENV)/.developing ## measure start-up, planning, reading machines, launches, quiet runs, live views, and more
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/planning.py
	$(BIN)/python benchmarks/reading.py
	$(BIN)/python benchmarks/quiet.py
	$(BIN)/python benchmarks/watch.py
	$(BIN)/python benchmarks/launch.py
	$(BIN)/python benchmarks/output.py
	$(BIN)/python benchmarks/effect.py
	$(BIN)/python benchmarks/scheduler.py
	$(BIN)/python benchmarks/decision.py
	$(BIN)/python benchmarks/bench_overhead.py
	$(BIN)/python benchmarks/scaling.py

clean: ## remove the virtual environment and files of tools
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
