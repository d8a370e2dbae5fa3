# `make reproduce`, `make test` and `make docs` build the environment first.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

WEB := web/node_modules/.ready

.PHONY: ready reproduce test check explorer docs wheel-check release-check format benchmark documents clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[torch,dev,cluster,text,notebook,watch,docs]'
	touch $(READY)

## The environment; modules are compiled when they are imported, as most never are.
ready: $(READY)

## Make every synthetic figure, check every claim and put it all on one page; then the long statistical checks.
reproduce: $(READY)
	$(BIN)/scansnap reproduce
	$(BIN)/python -m pytest -q -m slow tests

## Run the tests.
test: $(READY)
	$(BIN)/python -m pytest -q -n 2 --dist worksteal tests

## Style and types.
check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(WEB): web/package-lock.json
	cd web && npm ci --loglevel=error --no-audit --no-fund --ignore-scripts
	touch $(WEB)

## The explorer's page: types, unit tests, and whether it is what its sources build.  Needs Node; users of it do not.
explorer: $(WEB)
	cd web && npm run --silent check && npm run --silent test && npm run --silent up-to-date

## The documentation site, build/site/index.html; its notebooks are run, and a warning is an error.
docs: $(READY)
	$(BIN)/python -m sphinx -E -W --keep-going --quiet docs build/site

## What would be published, built, looked into, and used as by one who installs it, with the Pythons on this machine.
wheel-check: $(READY)
	$(BIN)/python release/check.py --short

## The same with more commands and all tests collected; dist/ is then what to publish.
release-check: $(READY)
	$(BIN)/python release/check.py

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

## Ratios against the plain way to do the same work; half an hour on two cores.
benchmark: $(READY)
	$(BIN)/python benchmarks/figure6_speed.py
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/large_vocabulary.py
	$(BIN)/python benchmarks/sweep.py

## Check every claim and make every figure again, and write what was found into docs/theory, docs/figures.md and docs/data.
documents: $(READY)
	$(BIN)/python docs/make_documents.py

clean:
	rm -rf $(VENV) web/node_modules web/build build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
