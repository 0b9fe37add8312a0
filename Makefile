# Two commands: `make demo` and `make test`. Each sets up its own virtual environment first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test fast slow lint docs setup clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml src/mcclt/__init__.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mcclt needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	@touch $@

demo: setup  ## plain PPO and MC-CLT PPO on a double pendulum, side by side, in about three minutes
	$(BIN)/python examples/demo.py

test: setup  ## lint, types and the fast tests, side by side
	$(MAKE) --jobs 2 lint fast

fast: setup
	$(BIN)/python -m pytest -n 2

slow: setup  ## all other tests, which take an hour: the rest of every table, real kills, browsers, more random inputs
	$(BIN)/python -m pytest -m 'slow or browser'
	MCCLT_FUZZ=20 $(BIN)/python -m pytest tests/faults/test_strangers.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: setup  ## this documentation as a site, in site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

clean:
	rm -rf $(VENV) build dist site src/*.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
