# Two commands matter: `make up` serves, `make test` proves. The rest is parts of them.

PYTHON := .venv/bin/python
ENVIRONMENT := @sh packaging/environment.sh
PORT ?=
MODEL ?=
STATE ?= $(CURDIR)/state

DEB_SOURCES := $(shell find core units engines firewall daemon gateway cli packaging debian docs -type f \
	! -path '*/__pycache__/*' 2>/dev/null) README.md NEWS.md

.PHONY: help up test test-unit lint deb bench bench-count lock clean
.DEFAULT_GOAL := help

help:
	@echo "make up [PORT=8100] [MODEL=PATH|SOURCE] [STATE=DIR]   serve a model in the foreground; Ctrl-C stops it"
	@echo "make test        everything: unit, contract, integration, booted hosts, real engines (root: all of it)"
	@echo "make test-unit   the quick part, without processes or hosts"
	@echo "make lint        ruff and mypy"
	@echo "make deb         the Debian package, in dist/"
	@echo "make bench       benchmarks beside nginx, as tables"
	@echo "make bench-count what a request costs in instructions and calls, on however busy a machine"
	@echo "make lock        pin the newest allowed versions of all Python packages, with hashes"
	@echo "make clean       remove what was built; state/ stays"

up:
	$(ENVIRONMENT) up
	@exec .venv/bin/llmgw --state "$(STATE)" up $(if $(PORT),--port "$(PORT)") $(if $(MODEL),--model "$(MODEL)")

test:
	$(ENVIRONMENT) test
	@$(MAKE) --no-print-directory deb
	@$(PYTHON) -m pytest --quiet

test-unit:
	$(ENVIRONMENT) test
	@$(PYTHON) -m pytest --quiet tests/unit

lint:
	$(ENVIRONMENT) test
	@$(PYTHON) -m ruff format --check .
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m mypy .

deb:
	$(ENVIRONMENT) deb
	@$(MAKE) --no-print-directory --silent dist/.deb

# The package's name holds the version and the architecture; this stands for whatever it is called.
dist/.deb: $(DEB_SOURCES)
	@sh packaging/build-deb.sh
	@touch $@

bench:
	$(ENVIRONMENT) bench
	@$(PYTHON) -m tests.bench.datapath
	@if [ "$$(id -u)" = 0 ]; then $(PYTHON) -m tests.bench.units; else echo "units: needs root, skipped"; fi

bench-count:
	$(ENVIRONMENT) bench
	@$(PYTHON) -m tests.bench.counts

lock:
	$(ENVIRONMENT) test
	@$(PYTHON) -m venv build/lock && build/lock/bin/pip install --quiet uv
	@build/lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
		--custom-compile-command "make lock" pyproject.toml packaging/requirements.in -o packaging/requirements.txt
	@build/lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
		--custom-compile-command "make lock" --all-extras --constraint packaging/requirements.txt \
		pyproject.toml packaging/requirements.in -o tests/requirements.txt

clean:
	@rm -rf build dist .venv .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -not -path './state/*' -prune -exec rm -rf {} +
