# All targets use their own virtual environment. They need only python3, venv and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# Settings of the caller's Python change what tests do: without assertions, slower, with other modules, in parts of lines.
unexport PYTHONDONTWRITEBYTECODE PYTHONHOME PYTHONOPTIMIZE PYTHONPATH PYTHONUNBUFFERED PYTHONWARNINGS

.DEFAULT_GOAL := help
.PHONY: help demo test test-all cover check docs site sessions bench bench-start dist zipapp release-check clean

help: ## list all targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

# An environment that was moved, is half made, or has lost its Python, is made anew.
ifneq ($(shell $(BIN)/python -Ic "import ompbind, os; print(os.path.samefile(ompbind.__path__[0], 'ompbind'))" 2>/dev/null),True)
.PHONY: $(VENV)/.installed
endif

$(VENV)/.installed: pyproject.toml
	$(PYTHON) packaging/make_venv.py $(VENV)
	@touch $@

$(VENV)/.developing: pyproject.toml $(VENV)/.installed
	$(PYTHON) packaging/make_venv.py $(VENV) dev
	@touch $@

$(VENV)/.releasing: pyproject.toml $(VENV)/.developing
	$(PYTHON) packaging/make_venv.py $(VENV) release
	@touch $@

$(VENV)/.site: pyproject.toml $(VENV)/.installed
	$(PYTHON) packaging/make_venv.py $(VENV) site
	@touch $@

# The numbers of two ranks, or of one if two do not fit.
demo: RANKS = $(shell $(BIN)/ompbind plan -n 2 >/dev/null 2>&1 && echo 0 1 || echo 0)
demo: $(VENV)/.installed ## set up, plan two ranks (one on a single CPU), run them, show where each thread ran, and what binding gains
	$(BIN)/ompbind plan -n $(words $(RANKS))
	$(BIN)/ompbind run -n $(words $(RANKS)) --log-dir $(VENV)/demo --force -- $(BIN)/ompbind probe
	cat $(RANKS:%=$(VENV)/demo/%.out)
	$(BIN)/python benchmarks/demo.py $(VENV)/demo $(words $(RANKS))
	@echo "next: $(BIN)/ompbind run -n $(words $(RANKS)) -- YOUR-COMMAND (first steps: docs/tutorial.md)"

test: $(VENV)/.developing ## set up and run the tests in parallel; the last lines list skipped tests with reasons
	$(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

test-all: $(VENV)/.developing ## run what `make test` leaves out, for hours, or some parts with PARTS="vm slurm"; see CONTRIBUTING.md
	$(BIN)/python tests/parts.py $(ARGS) $(PARTS)

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
	$(BIN)/python tests/mutants.py --list --number 20 >/dev/null
	$(BIN)/python -m pytest -q tests/test_rooms.py tests/test_docs.py tests/packaging/test_index_metadata.py

docs: $(VENV)/.developing ## rewrite the reference and the man page from the program, and examples and sessions in pages
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/sessions.py

site: $(VENV)/.site ## build the documentation as a site, into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	@echo "wrote site/index.html. For the search: $(PYTHON) -m http.server --bind 127.0.0.1 -d site"

sessions: $(VENV)/.developing ## record the sessions of bench in docs/ again; needs an idle machine
	$(BIN)/python docs/record_sessions.py

bench-start: dist ## measure start-up and launches, in an environment with only the wheel, as users have it
	rm -rf $(VENV)/user
	$(PYTHON) -m venv --without-pip $(VENV)/user
	$(BIN)/python -m pip --python $(VENV)/user/bin/python install --quiet --disable-pip-version-check dist/*.whl
	$(VENV)/user/bin/python benchmarks/startup.py --rounds 15
	$(VENV)/user/bin/python benchmarks/launch.py --only floor,hydra,ompbind --ranks 1,16,64,256 --rounds 31 $(ARGS)

# A promise of effect.py can be missed only from eight rounds on. Few rounds: starting torch takes longer than its work.
bench: bench-start ## run all benchmarks, and check their promises; needs an idle machine
	$(BIN)/python benchmarks/planning.py --rounds 3
	$(BIN)/python benchmarks/reading.py --rounds 3
	$(BIN)/python benchmarks/quiet.py --seconds 2
	$(BIN)/python benchmarks/watch.py --seconds 6
	$(BIN)/python benchmarks/hold.py
	$(BIN)/python benchmarks/gmx.py
	$(BIN)/python benchmarks/launch.py --only hwloc,openmpi,srun,ompbind --ranks 64 --rounds 5 --timeout 3
	$(BIN)/python benchmarks/output.py --only ompbind,openmpi --rounds 3
	$(BIN)/python benchmarks/effect.py --work regions,triad --only default,ompbind,taskset --rounds 9 --seconds 0.2
	$(BIN)/python benchmarks/effect.py --work matmul,server --only ompbind,taskset --rounds 8 --seconds 0.2
	$(BIN)/python benchmarks/scheduler.py --rounds 9 --seconds 0.2
	$(BIN)/python benchmarks/waiting.py --runtimes gomp
	$(BIN)/python benchmarks/decision.py --sessions 60
	$(BIN)/python benchmarks/bench_overhead.py --rounds 15
	$(BIN)/python benchmarks/scaling.py --rounds 3 --ranks 1,4,16

dist: $(VENV)/.releasing ## build the wheel and the sdist into dist/
	rm -rf dist/*.whl dist/*.tar.gz
	$(BIN)/python -m build --quiet

release-check: $(VENV)/.releasing ## rehearse a release: build all, install and try it. With ARGS=--release: for a release
	$(BIN)/python packaging/release_check.py $(ARGS)

zipapp: $(VENV)/.installed ## write dist/ompbind.pyz, one file that needs only Python; see docs/installation.md
	$(BIN)/python packaging/zipapp.py $(ARGS)

clean: ## remove the virtual environment and files of tools
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build site
