# Two commands do all set-up themselves: `make demo` shows the main job, `make test` runs the tests.
# ARGS go to the command: make demo ARGS="--web-port 9000", make test ARGS="tests/mqtt -x", make bench ARGS="ingest --quick".

SHELL := /bin/sh
ARGS ?=
BOARD ?= amd64
HOST :=
# A plain user's PATH may lack the folder of mosquitto.
export PATH := $(PATH):/usr/sbin
with_java = JAVA_HOME=$$(scripts/java-home) && export JAVA_HOME

.PHONY: help demo test test-unit test-all test-brokers lint format bench cost flink storm image bundle image-test image-fleet hw-test docs docs-site lock clean
.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name text; do printf '  make %-11s %s\n' "$$name" "$$text"; done

demo: ## sensors of this machine -> gateway -> Spark table, with a page on loopback; Ctrl-C ends it
	@scripts/setup demo
	@$(with_java); exec .venv/bin/edgert demo $(ARGS)

test: ## the tests, in parallel; with ARGS these ones, one after the other; what is missing here is said
	@scripts/setup test
	@$(with_java); if [ -n "$(ARGS)" ]; then exec .venv/bin/pytest $(ARGS); else exec scripts/test; fi

SIMULATIONS := tests/agent/simulation tests/agent/membership tests/agent/fleet tests/benchmarks tests/protocol tests/sim
test-unit: ## those that start no process and simulate no fleet
	@scripts/setup test
	@exec .venv/bin/pytest -m "not integration and not spark and not long" -n 2 $(SIMULATIONS:%=--ignore=%) $(ARGS)

test-all: ## every test, the long ones too
	@scripts/setup test
	@$(with_java); exec scripts/test all

test-brokers: ## QoS 1 against Mosquitto, amqtt, mochi-mqtt (needs Go) and rumqttd (needs Rust), amid kills of the gateway
	@scripts/setup test
	@.venv/bin/python -m tests.other_brokers.build
	@exec .venv/bin/pytest tests/other_brokers -s $(ARGS)

lint: ## style, types and layers
	@scripts/setup lint
	@exec scripts/lint

format: ## rewrites the code in the house style
	@scripts/setup lint
	@.venv/bin/ruff check --fix --quiet . ; exec .venv/bin/ruff format .

bench: ## benchmarks: make bench ARGS="NAME [--quick] [--out DIR]"
	@scripts/setup test
	@$(with_java); exec .venv/bin/python -m benchmarks $(ARGS)

cost: ## what a message costs, in instructions, beside the ledger (2 min; needs valgrind); ARGS="--write WHY" for a new figure
	@scripts/setup lint
	@exec .venv/bin/python -m benchmarks.cost $(ARGS)

flink: ## Apache Flink into .flink (330 MB), for ARGS="tests/integration/osched/test_flink.py" of make test
	@exec scripts/flink

storm: ## Apache Storm into .storm (30 MB), for ARGS="tests/integration/osched/test_storm.py" of make test
	@exec scripts/storm

image: ## the image of a board: make image BOARD=amd64 (needs root)
	@scripts/setup image
	@.venv/bin/python -m images.build $(BOARD) $(ARGS)

bundle: ## a signed update of an image: make bundle BOARD=amd64 ARGS="--cert updates.pem --key updates.key"
	@scripts/setup image
	@.venv/bin/python -m images.bundle $(BOARD) $(ARGS)

image-test: ## builds an image, boots it in QEMU: messages, updates, power cuts: make image-test BOARD=amd64 (1 h or more)
	@scripts/setup image-test
	@.venv/bin/python -m images.build $(BOARD)
	@.venv/bin/python -m images.qemu $(BOARD) $(ARGS)

image-fleet: ## builds an image, runs three boards of it in containers: one flow, one board is lost (5 min; needs root)
	@scripts/setup image-test
	@.venv/bin/python -m images.build $(BOARD)
	@.venv/bin/python -m images.containers $(BOARD) $(ARGS)

hw-test: ## checks a real board by SSH: make hw-test BOARD=pi4 HOST=ADDRESS; by its console: ARGS="--serial /dev/ttyUSB0"
	@scripts/setup lint
	@PYTHONPATH=.:hw-tests .venv/bin/python -m hardware $(BOARD) $(if $(HOST),--host $(HOST)) $(ARGS)

docs: ## writes anew what the docs take from the code
	@scripts/setup lint
	@exec scripts/docs

docs-site: ## the docs as a site that needs no network, into build/docs-site; fails at a broken link
	@scripts/setup lint
	@.venv/bin/python -m sphinx -W --keep-going -q docs build/docs-site
	@echo "edgert: build/docs-site/index.html"

lock: ## writes requirements/ anew from pyproject.toml (needs uv)
	@exec scripts/lock

clean: ## removes what these commands made, except demo-data
	@rm -rf .venv .flink .storm build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
