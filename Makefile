# Everything runs in a virtual environment of its own; nothing but python3, venv and make is needed.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-vm cover check docs bench clean

help: ## list what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.developing: pyproject.toml $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(VENV)/.installed ## set up, start two ranks and show where each thread landed
	PATH="$(CURDIR)/$(BIN):$$PATH" ompbind run -n 2 -- ompbind probe

test: $(VENV)/.developing ## set up and run the tests, some at once; the last lines say what was skipped and why
	$(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

test-long: $(VENV)/.developing ## the same with large numbers: examples, faults, recordings, every runtime
	OMPBIND_TEST_LONG=1 $(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)
	OMPBIND_EXAMPLES=100000 $(BIN)/python -m pytest -n auto --dist worksteal \
	    tests/planning/test_promises.py tests/planning/strategies/test_table.py

test-vm: $(VENV)/.developing ## boot virtual machines with other topologies and bind there
	OMPBIND_VM_TESTS=1 $(BIN)/python -m pytest -n auto --dist loadgroup tests/vm $(ARGS)

cover: $(VENV)/.developing ## run the tests that need no other process, and show what they leave out
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q --ignore=tests/live $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

check: $(VENV)/.developing ## lint, types, the import rule, docs up to date
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_rooms.py tests/test_docs.py

docs: $(VENV)/.developing ## write docs/reference.md anew from the program
	$(BIN)/python docs/generate.py

bench: $(VENV)/.developing ## measure start-up, planning, reading machines, launches, quiet runs, output, effect
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/planning.py
	$(BIN)/python benchmarks/reading.py
	$(BIN)/python benchmarks/quiet.py
	$(BIN)/python benchmarks/launch.py
	$(BIN)/python benchmarks/output.py
	$(BIN)/python benchmarks/effect.py

clean: ## remove the virtual environment and what tools left
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
