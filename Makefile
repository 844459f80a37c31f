# `make` prints the targets. An environment that exists already: make test VENV=path/to/venv
VENV   ?= .venv
PYTHON ?= python3
EXTRAS ?= hf,gguf,cli,flax,train,onnx,dev
BIN    := $(VENV)/bin
PY     := $(BIN)/python

# Only our own .venv is made and kept up to date; a VENV of yours is used as it is.
ifeq ($(VENV),.venv)
READY := $(VENV)/.ready
endif

# The checks ask for nothing but this machine's CPU and network-free loading.
test conformance: export JAX_PLATFORMS := cpu
test conformance: export HF_HUB_OFFLINE := 1
conformance: export JAX_DISABLE_MOST_OPTIMIZATIONS := 0
conformance: export XLA_FLAGS :=

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint type format docs conformance compat bench clean

help:  ## print the targets
	@sed -nE 's/^([a-z]+):.*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: $(READY)  ## make .venv with the tested versions

.venv/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	.venv/bin/pip install -e ".[$(EXTRAS)]" -c constraints.txt
	.venv/bin/pip install --no-deps tf2jax==0.3.8  # its metadata asks for the CUDA TensorFlow
	touch $@

demo: $(READY)  ## run a tiny language model: JAX beside torch, then text
	$(BIN)/tojax run examples/tiny-llama --prompt "def main("

test: lint type  ## the checks: lint, types, all tests but the conformance suites
	$(PY) -m pytest -m "not conformance"

lint: $(READY)  ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: $(READY)  ## mypy
	$(BIN)/mypy

format: $(READY)  ## let ruff fix and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)  ## write docs/ops*.md, the tables of covered ops
	@mkdir -p docs
	$(PY) -m tojax ops --markdown > docs/ops.md
	$(PY) -m tojax ops --tensorflow --markdown > docs/ops-tensorflow.md

conformance: $(READY)  ## the suites that others wrote, in full, and all that make test samples
	$(PY) -m pytest tests/conformance -m "conformance or not conformance"
	$(PY) -m pytest tests -m conformance --ignore=tests/conformance

# An environment of its own for each pair of versions; the tested set is pinned but for what their
# own requirements decide.
TORCH        ?= $(shell sed -n 's/^torch==//p' constraints.txt)
TRANSFORMERS ?= $(shell sed -n 's/^transformers==//p' constraints.txt)
OTHER := .compat/torch-$(TORCH)-transformers-$(TRANSFORMERS)
FREE  := torch|transformers|huggingface_hub|tokenizers|peft|accelerate|diffusers|setuptools|hf-xet|fsspec|regex|typer|click

compat: $(OTHER)/.ready  ## the tests with other versions: make compat TORCH=2.15.0
	$(MAKE) --no-print-directory tested VENV=$(OTHER)

.PHONY: tested
tested: export JAX_PLATFORMS := cpu
tested: export HF_HUB_OFFLINE := 1
tested:
	$(PY) -m pytest -m "not conformance"

.compat/%/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(@D)
	grep -vE '^($(FREE))==' constraints.txt > $(@D)/constraints.txt
	printf 'torch==%s\ntransformers==%s\n' $(TORCH) $(TRANSFORMERS) >> $(@D)/constraints.txt
	$(@D)/bin/pip install -e ".[$(EXTRAS)]" -c $(@D)/constraints.txt
	$(@D)/bin/pip install --no-deps tf2jax==0.3.8
	touch $@

bench: $(READY)  ## timings on this machine
	$(PY) benchmarks/run.py

clean:  ## remove caches, builds, results (.venv stays)
	rm -rf build dist results .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
