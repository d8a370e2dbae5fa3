# `make reproduce`, `make test` and `make docs` first build the environment .venv.  With VENV=other they use the environment
# that you made there, and install nothing.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(if $(filter .venv,$(VENV)),.venv/.ready)

WEB := web/node_modules/.ready

PYTEST := $(BIN)/python -m pytest -q -n 2 --dist worksteal
NUMERICAL := $(addprefix tests/,theory data systems results dynamics claims figures papers text)

.PHONY: ready reproduce test rounding generic nightly faults check explorer docs wheel-check release-check format benchmark documents clean

.venv/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[torch,dev,cluster,text,notebook,watch,docs]'
	touch .venv/.ready

## The environment, with the versions of constraints.txt.
ready: $(READY)

## Make every synthetic figure, check every claim and put it all on one page; then the long statistical checks.
reproduce: $(READY)
	$(BIN)/scansnap reproduce
	$(BIN)/python -m pytest -q -m slow tests

## Run the tests.
test: $(READY)
	$(PYTEST) tests

## The tests that bound rounding, with the linear algebra of other processors: AVX2 in OpenBLAS, and no AVX in NumPy
## (which warns about names that it does not know, as on ARM).
rounding: export OPENBLAS_CORETYPE = Haswell
rounding: export NPY_DISABLE_CPU_FEATURES = X86_V3 X86_V4 AVX512_ICL AVX512_SPR
rounding: $(READY)
	$(PYTEST) -W "ignore:During parsing environment variable:ImportWarning" -m "rounding and not slow and not gpu" tests

## All numerical tests, with kernels that numba compiles for any processor.
generic: export NUMBA_CPU_NAME = generic
generic: $(READY)
	$(PYTEST) $(NUMERICAL)

## The tests that take too long for every change: statistics, stiff flows, stability, a small round of faults; and generic.
nightly: $(READY) generic
	$(BIN)/python -m pytest -q -m slow tests
	$(BIN)/python docs/make_stability.py
	$(BIN)/python -m tests.faults --scale 0.1

## Try kills, damage, power cuts, several writers and nonsense at full size; hours on two cores (docs/faults.md).
faults: $(READY)
	$(BIN)/python -m tests.faults

## Style and types.
check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(WEB): web/package-lock.json
	cd web && npm ci --loglevel=error --no-audit --no-fund --ignore-scripts
	touch $(WEB)

## The explorer's page: types, unit tests, and whether it is up to date with its sources.  Needs Node.
explorer: $(WEB)
	cd web && npm run --silent check && npm run --silent test && npm run --silent up-to-date

## The documentation site, build/site/index.html; its notebooks are run, and a warning is an error.
docs: $(READY)
	$(BIN)/python -m sphinx -E -W --keep-going --quiet docs build/site

## Build the sdist and the wheel, check their content, and try the wheel.
wheel-check: $(READY)
	$(BIN)/python release/check.py --short

## The same with PyTorch, every Python on this machine and the README's commands; dist/ then has the files to publish.
release-check: $(READY)
	$(BIN)/python release/check.py

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

## Speed relative to the plain way to do the same work; half an hour on two cores.
benchmark: $(READY)
	$(BIN)/python benchmarks/figure6_speed.py
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/large_vocabulary.py
	$(BIN)/python benchmarks/sweep.py

## Check every claim, make every figure, and write the results into docs/theory, docs/figures.md and docs/data.
documents: $(READY)
	$(BIN)/python docs/make_documents.py

clean:
	rm -rf .venv web/node_modules web/build build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
