# `make run` starts mcpadmin, `make test` and `make check` judge a change, `make test-all` a release. Each does all its own set-up.
# Options are passed on by ARGS: make run ARGS="--port 9000", make test ARGS="-k audit".
.DEFAULT_GOAL := help
SHELL := /bin/sh
ARGS ?=
PY := .venv/bin/python
export PYTHON

.PHONY: help run test test-all check docs screenshots bench conformance faults soak lock clean deps dev-deps

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{printf "%-20s %s\n", $$1, $$2}'

run: deps ## start mcpadmin and print its address
	@exec $(PY) manage.py up $(ARGS)

test: dev-deps ## unit, integration and browser tests, with all their set-up
	@exec $(PY) tests/tools/run_tests.py $(ARGS)

test-all: dev-deps ## the same with the tests marked `long`; when green, noted in tests/last_full_run.json
	@exec $(PY) tests/tools/run_tests.py --all $(ARGS)

check: dev-deps ## lint, types, import contracts, migrations, deployment settings, templates
	@exec $(PY) tests/tools/run_checks.py $(ARGS)

docs: dev-deps ## write the generated parts of the documents anew
	@exec $(PY) tests/tools/generate_docs.py

screenshots: dev-deps ## every page at two widths in two themes; fails on what a reader would stumble over
	@sh tests/tools/setup_system.sh
	@$(PY) tests/tools/setup_peers.py
	@exec $(PY) -m pytest -q tests/screenshots/run_screenshots.py $(ARGS)

bench: dev-deps ## benchmarks; each prints its numbers beside a floor measured in the same run
	@$(PY) tests/tools/setup_peers.py --all
	@exec $(PY) tests/tools/run_benchmarks.py $(ARGS)

conformance: dev-deps ## the official MCP conformance suite, both revisions: our client, then the endpoint for agents
	@$(PY) tests/tools/setup_peers.py
	@$(PY) -m tests.conformance.run $(ARGS)
	@exec $(PY) -m tests.conformance.door

faults: dev-deps ## long fault tests: processes killed, Redis and database away, servers that misbehave
	@$(PY) tests/tools/setup_peers.py --all
	@exec $(PY) tests/tools/run_faults.py $(ARGS)

soak: dev-deps ## 20 minutes of calls with a fault every 2; fails when memory or descriptors grow
	@exec $(PY) -m pytest -q -s tests/faults/run_soak.py $(ARGS)

lock: dev-deps ## write the lock files anew from pyproject.toml and tests/peers
	@exec sh tests/tools/lock.sh $(ARGS)

clean: ## remove all that can be made again; never the data directory
	rm -rf .venv tests/peers/.venv-* tests/peers/node_modules tests/peers/*/node_modules tests/conformance/node_modules tests/peers/.setup-of-* tests/.notes tests/.prepared
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis tests/screenshots/out tests/e2e/out
	find mcpadmin servers sessions tests -name __pycache__ -type d -prune -exec rm -rf {} +

deps:
	@sh mcpadmin/bootstrap.sh run

dev-deps:
	@sh mcpadmin/bootstrap.sh dev
