# `make` prints the targets. An environment that exists already: make test VENV=path/to/venv
VENV   ?= .venv
PYTHON ?= python3
# The tested versions for this Python.
PINNED := $(shell $(PYTHON) -m proof.versions constraints)
EXTRAS ?= hf,gguf,cli,flax,train,onnx,docs,dev
BIN    := $(VENV)/bin
PY     := $(BIN)/python

# Only our own .venv is made and kept up to date; a VENV of yours is used as it is.
ifeq ($(VENV),.venv)
RUNS  := $(VENV)/.runs
READY := $(VENV)/.ready
endif

# The checks ask for nothing but this machine's CPU and network-free loading.
# The compilers of TPUs and GPUs, which need no chip: beside .venv, for where libtpu is JAX looks for one.
COMPILERS := .compat/compilers

test conformance: export JAX_PLATFORMS := cpu
test conformance: export HF_HUB_OFFLINE := 1
conformance: export JAX_DISABLE_MOST_OPTIMIZATIONS := 0
conformance: export XLA_FLAGS :=

# conftest.py turns off what takes XLA long. One file of each folder runs with it as well, as the
# programs of users do; all others do so in `make conformance`.
OPTIMIZED := $(addprefix tests/, calls/test_program.py compare/test_recorders.py \
  diffusers/test_from_diffusers.py explorer/test_explore.py export/test_plain.py \
  flax/wrap/test_forward.py graphs/test_evaluation.py hf/test_recorded.py numerics/test_bessel.py \
  parallel/plans/test_declared.py onnx/control_flow/test_loops.py parity/test_verify.py \
  proof/test_checks.py properties/test_nothing_changes.py \
  saved/test_calls.py stablehlo/test_source.py \
  tensorflow/state/test_parts.py torch/test_modules.py torchax/test_modes.py train/step/test_train_state.py \
  transforms/rolling/test_loop.py)

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint type format docs ops conformance compat lowest newest versions proof packages proof-run bench release-check clean

help:  ## print the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: $(READY)  ## make .venv with the tested versions

# What a Hugging Face model needs; the checks, the site and the other frontends need far more.
.venv/.runs: pyproject.toml $(PINNED)
	$(PYTHON) -m venv .venv
	.venv/bin/pip install -e ".[hf,cli]" -c $(PINNED)
	touch $@

.venv/.ready: .venv/.runs
	.venv/bin/pip install -e ".[$(EXTRAS)]" -c $(PINNED)
	.venv/bin/pip install --no-deps tf2jax==0.3.8  # its metadata asks for the CUDA TensorFlow
	touch $@

demo: $(RUNS)  ## run a tiny language model: JAX beside torch, then text
	$(BIN)/anyjax run examples/tiny-llama --prompt "def main("

# Seconds of each file, and which part of its cases: another number runs others, none (OFFSET=) what the commit
# decides. ALL=1: everything.
BUDGET ?= 4
OFFSET ?= 262023
CHECKS := -m "not conformance" $(if $(ALL),,--budget $(BUDGET) $(if $(OFFSET),--offset $(OFFSET)))

test: lint type $(COMPILERS)/.ready  ## the checks: lint, types, a part of each test file; all with ALL=1
	$(PY) -m pytest $(CHECKS)
	JAX_DISABLE_MOST_OPTIMIZATIONS=0 XLA_FLAGS= $(PY) -m pytest $(OPTIMIZED) $(CHECKS)

lint: $(READY)  ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: $(READY)  ## mypy
	$(BIN)/mypy

format: $(READY)  ## let ruff fix and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)  ## the site in build/docs: notebooks are run where they changed, warnings are errors
	$(PY) -m sphinx -W --keep-going -q -b html docs build/docs
	@echo "build/docs/index.html"

ops: $(READY)  ## write docs/ops*.md, the tables of covered operators
	$(PY) -m anyjax ops --markdown > docs/ops.md
	$(PY) -m anyjax ops --tensorflow --markdown > docs/ops-tensorflow.md
	$(PY) -m anyjax ops --onnx --markdown > docs/ops-onnx.md

# Older projects beside the pages of docs/coming-from; TORCH2JAX and TRANSFORMERS_FLAX are the others.
TORCHAX ?= $(firstword $(wildcard ../shared/bench/peers/torchax-*.tar.gz))
conformance: export TORCHAX := $(TORCHAX)
conformance: $(READY)  ## the suites that others wrote, in full, and all that make test samples
	$(PY) -m pytest tests/conformance -m "conformance or not conformance"
	$(PY) -m pytest tests -m conformance --ignore=tests/conformance

# An environment of its own for each set of versions; the rest of the tested set is pinned but for
# what their own requirements decide. What came out is recorded in proof/results/versions.csv.
TORCH        ?= $(shell sed -n 's/^torch==//p' $(PINNED))
TRANSFORMERS ?= $(shell sed -n 's/^transformers==//p' $(PINNED))
JAX          ?= $(shell sed -n 's/^jax==//p' $(PINNED))
OTHER := .compat/torch-$(TORCH)-transformers-$(TRANSFORMERS)-jax-$(JAX)
FREE  := torch|transformers|jax|jaxlib|huggingface_hub|tokenizers|peft|accelerate|diffusers|setuptools|hf-xet|fsspec|regex|typer|click

compat: $(OTHER)/.ready  ## the tests with other versions: make compat TORCH=2.15.0 JAX=0.10.0
	$(MAKE) --no-print-directory recorded VENV=$(OTHER)

lowest:  ## the tests with the lowest versions that pyproject.toml allows
	$(MAKE) --no-print-directory compat $$($(PYTHON) -m proof.versions lowest)

# The test that there is a record of the tested versions.
ASKS := tests/torch/core/test_private.py::test_the_tested_versions_are_those_that_were_recorded

.PHONY: recorded
recorded: export JAX_PLATFORMS := cpu
recorded: export HF_HUB_OFFLINE := 1
recorded:
	$(PY) -m pytest $(TESTS) -m "not conformance" --every $(or $(EVERY),1) --junitxml=$(VENV)/report.xml \
	  --deselect $(ASKS); \
	  status=$$?; $(PY) -m proof.versions record $(VENV)/report.xml $(or $(EVERY),1) $(TESTS) && exit $$status

.compat/%/.ready: pyproject.toml $(PINNED)
	$(PYTHON) -m venv $(@D)
	grep -vE '^($(FREE))==' $(PINNED) > $(@D)/constraints.txt
	printf 'torch==%s\ntransformers==%s\njax==%s\n' $(TORCH) $(TRANSFORMERS) $(JAX) >> $(@D)/constraints.txt
	$(@D)/bin/pip install -e ".[$(EXTRAS)]" -c $(@D)/constraints.txt
	$(@D)/bin/pip install --no-deps tf2jax==0.3.8
	touch $@

# What somebody gets who starts today: no constraints, the newest Python that is here.
NEWEST_PYTHON = $(shell $(PYTHON) -m proof.versions python)

newest:  ## every twentieth test with the newest release of everything, on the newest Python here
	@if [ -z "$(NEWEST_PYTHON)" ]; then echo "newest: no Python newer than 3.11 is here"; else \
	  $(MAKE) --no-print-directory .compat/newest/.latest PYTHON=$(NEWEST_PYTHON) && \
	  $(MAKE) --no-print-directory recorded VENV=.compat/newest EVERY=$(or $(EVERY),20); fi

.compat/compilers/.ready: pyproject.toml $(PINNED) | $(READY)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install "jax[tpu]==$(JAX)" jax-cuda12-plugin==$(JAX) jax-cuda12-pjrt==$(JAX) \
	  nvidia-cuda-nvcc-cu12 nvidia-cudnn-cu12 nvidia-cublas-cu12 -c $(PINNED)
	$(PY) -c 'import site; print(site.getsitepackages()[0])' > \
	  $$($(@D)/bin/python -c 'import site; print(site.getsitepackages()[0])')/$(notdir $(VENV)).pth
	touch $@

.compat/newest/.latest: pyproject.toml
	rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install -e ".[$(EXTRAS)]"
	$(@D)/bin/pip install --no-deps tf2jax==0.3.8
	touch $@

versions:  ## write docs/proof/versions.md from proof/results/versions.csv
	$(PYTHON) -m proof.versions table

proof:  ## write docs/proof, the tables of what was tested, from proof/results
	$(PY) -m proof.tables

# Other people's packages in an environment of their own, with the torch of that list.
OTHERS := .compat/packages

.compat/packages/.ready: pyproject.toml proof/packages.txt
	$(PYTHON) -m venv $(@D)
	grep -E '^torch(vision)?==' proof/packages.txt > $(@D)/constraints.txt
	$(@D)/bin/pip install -e . jax==$(JAX)
	grep -v '^#' proof/packages.txt | xargs -n 1 $(@D)/bin/pip install -c $(@D)/constraints.txt
	touch $@

packages: $(OTHERS)/.ready  ## other people's torch packages beside torch; one again: ONLY=zuko/MAF
	JAX_PLATFORMS=cpu $(OTHERS)/bin/python -m proof.packages $(if $(ONLY),--only "$(ONLY)" --again)

proof-run: $(READY) $(COMPILERS)/.ready  ## run all that docs/proof shows again: many hours
	$(PY) -m proof.transformers_types --again
	$(COMPILERS)/bin/python -m proof.chips --again
	-$(PY) -m proof.suites
	$(PY) -m proof.tables

# TORCHAX: an interpreter with torchax, or an archive of its source; CASES and ROUNDS narrow a run.
bench: $(READY)  ## timings on this machine, beside the other ways to run a model
	$(PY) benchmarks/run.py --json results/bench.json --plot results/bench.svg \
	  $(if $(TORCHAX),--torchax $(TORCHAX)) $(if $(CASES),--cases $(CASES)) $(if $(ROUNDS),--rounds $(ROUNDS))

# CASES and PYTHONS narrow it: make release-check CASES=hf PYTHONS=3.12
release-check: $(READY)  ## build wheel and sdist; install each extra alone, and all on each Python
	$(PY) release/check.py $(if $(CASES),--extras $(CASES)) $(if $(PYTHONS),--pythons $(PYTHONS))

clean:  ## remove caches, builds, results (.venv stays)
	rm -rf build dist results .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
