# Every target sets up its own environment in .venv; Python 3.11 or newer and make are all it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNS := $(VENV)/.runs
READY := $(VENV)/.ready
PEERS := $(VENV)/peers

# Compiled modules are kept: tests and workers start Python dozens of times.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: quickstart check peers comparison test test-peers test-slow lint fuzz bench reference docs clean

quickstart: $(RUNS)  ## run experiments/quickstart.yaml offline on generated data
	$(BIN)/ratecli run experiments/quickstart.yaml --offline

check: quickstart  ## pinned numbers: the quickstart's, and Adult's where a mirror has the data
	$(BIN)/ratecli check experiments/quickstart.yaml
ifdef RATECLI_DATA_MIRROR
	$(BIN)/ratecli run experiments/adult-check.yaml --offline --quiet
	$(BIN)/ratecli check experiments/adult-check.yaml
endif

test: $(READY)  ## all tests but the slow reproductions
	$(BIN)/python -m pytest -n auto --dist worksteal

test-slow: $(READY)  ## reproductions that take minutes
	$(BIN)/python -m pytest -m slow --hypothesis-profile=search

peers: $(READY)  ## plugins/ratecli-peers with its packages, in a folder of its own
	$(INSTALL) --target $(PEERS) --upgrade --no-deps --require-hashes -r plugins/ratecli-peers/constraints.txt
	$(INSTALL) --target $(PEERS) --upgrade --no-deps --no-build-isolation ./plugins/ratecli-peers

test-peers: peers  ## the tests of plugins/ratecli-peers
	PYTHONPATH=$(PEERS):tests $(BIN)/python -m pytest -n auto plugins/ratecli-peers/tests

comparison: peers  ## pinned numbers of methods, a trial of each, and the page that compares them
	PYTHONPATH=$(PEERS) $(BIN)/ratecli run experiments/comparison-check.yaml --offline --quiet
	PYTHONPATH=$(PEERS) $(BIN)/ratecli check experiments/comparison-check.yaml
	PYTHONPATH=$(PEERS) $(BIN)/ratecli run experiments/comparison/loans.yaml --smoke --offline --quiet
	PYTHONPATH=$(PEERS) $(BIN)/ratecli report experiments/comparison

lint: $(READY)  ## style, types and the layers of packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy ratecli
	$(BIN)/lint-imports

fuzz: $(READY)  ## 100,000 mutated files and rules
	RATECLI_FUZZ=50000 $(BIN)/python -m pytest -q tests/fuzz -k side_effects

bench: $(READY)  ## speed as ratios against peers, in the same run
	$(BIN)/python benchmarks/rates.py
	$(BIN)/python benchmarks/majorize.py
	$(BIN)/python benchmarks/players.py  # TFCO_PYTHON=... names an interpreter that has TFCO
	$(BIN)/python benchmarks/filtering.py
	$(BIN)/python benchmarks/runner.py
	$(BIN)/python benchmarks/check.py
	$(BIN)/python benchmarks/streaming.py
	$(BIN)/python benchmarks/seldonian.py  # SELDONIAN_PYTHON=... likewise, that has the toolkit
	$(BIN)/python benchmarks/gridworld.py  # likewise
	$(BIN)/python benchmarks/boosted.py  # BOOSTED_PYTHON=..., FAIRGBM_PYTHON=... likewise

reference: $(READY)  ## the pages of docs/reference that are made of the code
	$(BIN)/python docs/generate.py

docs: reference  ## the documents as a site, in site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Everything is pinned by hash, so that pip installs these very files or nothing. `quickstart` needs
# only what a run needs; all other targets add the tools for tests, style and documents.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

$(RUNS): constraints-run.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --require-hashes -r constraints-run.txt
	$(INSTALL) --no-deps --no-build-isolation -e .
	touch $(RUNS)

$(READY): $(RUNS) constraints.txt
	$(INSTALL) --require-hashes -r constraints.txt
	touch $(READY)

clean:
	rm -rf $(VENV) results/quickstart
