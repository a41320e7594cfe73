# All targets use their own virtual environment. They need only python3, venv and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-vm test-image cover check docs site sessions scaling bench dist zipapp release-check clean

help: ## list all targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.developing: pyproject.toml $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

$(VENV)/.releasing: pyproject.toml $(VENV)/.developing
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[release]'
	@touch $@

$(VENV)/.site: pyproject.toml $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[site]'
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

test-image: $(VENV)/.developing ## build the container image with podman, and test containers of it; needs root, podman, runc, mmdebstrap
	OMPTEST_IMAGE_TESTS=1 $(BIN)/python -m pytest -n 0 tests/live/test_container_image.py $(ARGS)

cover: $(VENV)/.developing ## run the tests that start no other process, and show lines without coverage
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q --ignore=tests/live $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

check: $(VENV)/.developing ## check lint, types, the import rule, the words of changed text, and that the docs are up to date
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --explicit-package-bases packaging/*.py
	$(BIN)/python docs/language.py
	$(BIN)/python -m pytest -q tests/test_rooms.py tests/test_docs.py tests/test_man_page.py

docs: $(VENV)/.developing ## rewrite the reference and the man page from the program, and examples and sessions in pages
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/sessions.py

site: $(VENV)/.site ## build the documentation as a site, into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	@echo "wrote site/index.html. For the search: $(PYTHON) -m http.server --bind 127.0.0.1 -d site"

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

dist: $(VENV)/.releasing ## build the wheel and the sdist into dist/
	rm -rf dist/*.whl dist/*.tar.gz
	$(BIN)/python -m build --quiet

release-check: $(VENV)/.releasing ## rehearse a release: build all, install and try it. With ARGS=--release: for a release
	$(BIN)/python packaging/release_check.py $(ARGS)

zipapp: $(VENV)/.installed ## write dist/ompbind.pyz, one file that needs only Python; see docs/installation.md
	$(BIN)/python packaging/zipapp.py $(ARGS)

clean: ## remove the virtual environment and files of tools
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build site
