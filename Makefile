# Every task of the project, on a machine that has nothing but make and Python 3.10 or newer.
# Each target installs what it needs into .venv first; when nothing changed, it needs no network.
#
#   make test ARGS="-k conv"            hand options to pytest
#   make clean test PYTHON=python3.12   choose the interpreter

VENV := .venv
BIN := $(VENV)/bin
# Twice quiet: errors only.
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
STAMP := $(VENV)/.installed

# The tests start hundreds of Pythons: what one has compiled is there for the next.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test slow-test lint style types layers workflows format bench evidence schemas docs gallery fuzz wheel dist wheel-check clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

demo: $(STAMP) ## Show a failing build from start to end
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/demo.sh

# One process more than a small machine has processors: tests wait for what they start.
test: $(STAMP) ## Run all tests but the slow ones, in five minutes on two cores
	@$(BIN)/python -m pytest -n 3 -m "not slow" $(ARGS)

slow-test: $(STAMP) ## Run the slow tests: in a browser, in new environments, with real measurements
	@$(BIN)/python -m pytest -n 3 -m slow $(ARGS)

lint: style types layers workflows ## Check everything that can be checked without running it

style: $(STAMP)-lint ## Check formatting and style
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

types: $(STAMP)-lint ## Check types
	@$(BIN)/mypy
	@$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32 pytest_modelperf
	@$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin pytest_modelperf

layers: $(STAMP)-lint ## Check who may import whom
	@$(BIN)/lint-imports --no-logo

workflows: $(STAMP)-lint ## Check workflows and actions of GitHub
	@$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml pytest_modelperf/init/ci/github.yml
	@$(BIN)/check-jsonschema --quiet --builtin-schema vendor.gitlab-ci pytest_modelperf/init/ci/gitlab.yml
	@$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-actions action.yml comment/action.yml
	@$(BIN)/zizmor --offline --no-progress --quiet action.yml comment .github

format: $(STAMP)-lint ## Lay out the code and mend what can be mended
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(STAMP)-bench ## Compare the static profile with its peer, in figures and in time
	@$(BIN)/python benchmarks/static.py $(ARGS)

evidence: $(STAMP)-bench ## Run every benchmark, and write what it found into the docs
	@$(BIN)/python benchmarks/evidence.py $(ARGS)

schemas: $(STAMP) ## Write what is made of the code: JSON Schemas, types, and reference pages
	@$(BIN)/python docs/schemas/write_schemas.py

docs: $(STAMP)-docs ## Build the site of the docs into site/
	@$(BIN)/python docs/pictures/failing_build.py
	@$(BIN)/python docs/site/prepare_pages.py build/pages
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@cp build/pages/*.md site/ # the Markdown of each page, which llms.txt lists
	@$(BIN)/python docs/site/check_site.py site

gallery: $(STAMP) ## Measure the pages and the comment of the gallery again
	@PYTHONPATH=actions:docs/site $(BIN)/python docs/gallery/make_gallery.py

fuzz: $(STAMP)-fuzz ## Look for files that break what reads them
	@$(BIN)/python fuzz/run.py $(ARGS)

wheel: $(STAMP) ## Build the wheel into dist/
	@rm -rf dist
	@$(PIP) wheel --no-deps --wheel-dir dist .
	@ls dist/*.whl

dist: $(STAMP)-release ## Build what is published into dist/
	@rm -rf dist
	@$(BIN)/python -m build --outdir dist .

# The wheel is for each Python that the project supports, so any of these may test it.
WHEEL_PYTHON := $(BIN)/python
wheel-check: wheel ## Test the wheel where the sources are not
	@PYTHON=$(WHEEL_PYTHON) .ci/check-wheel $(ARGS) dist/*.whl

clean: ## Remove what make and the tools made
	@rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache site
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp holds the folder that the environment was made in, because its scripts hold that path
# too. An environment that was moved, or whose interpreter is gone, is made anew.
IS_SOUND = test "$$(cat $(STAMP) 2>/dev/null)" = "$(CURDIR)" && $(BIN)/python -c '' 2>/dev/null
ifeq ($(shell $(IS_SOUND) && echo yes),)
.PHONY: $(STAMP)
endif

# A candidate may be a shim that only says which versions there are, or lack the parts that
# distributions package apart: what counts is that it runs and has them.
CANDIDATES := $(or $(PYTHON),python3 python3.13 python3.12 python3.11 python3.10 python)
USABLE := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))

$(STAMP): pyproject.toml
	@{ $(IS_SOUND); } && exit; \
	for python in $(CANDIDATES); do \
	    if "$$python" -c '$(USABLE)' 2>/dev/null; then \
	        echo "making $(VENV) with $$("$$python" --version)"; \
	        exec "$$python" -m venv --clear $(VENV); \
	    fi; \
	done; \
	echo "error: no Python 3.10 or newer with venv and ensurepip among: $(CANDIDATES)" >&2; \
	echo "install one, or name it: make PYTHON=/path/to/python3" >&2; \
	exit 1
	@rm -f $(STAMP)*
	@echo "installing the package and what its tests need"
	@$(PIP) install --upgrade 'pip>=25.1' # the first that knows dependency groups
	@$(PIP) install --editable . --group test
	@echo "$(CURDIR)" > $@

$(STAMP)-%: $(STAMP)
	@echo "installing what make $* needs"
	@$(PIP) install --group $*
	@touch $@
