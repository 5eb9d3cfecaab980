# Two commands: `make demo` and `make test`. Both set up everything they need in .venv, once.
SHELL := /bin/bash
.DEFAULT_GOAL := help
export OMP_NUM_THREADS ?= 1
# Python keeps what it compiled: else each of the tests' processes compiles all modules and tests anew, 10 CPU seconds.
unexport PYTHONDONTWRITEBYTECODE
# uv trusts its own list of authorities unless told to use the system's, as pip and curl do: behind a company's proxy
# only the system knows the company's authority. https://docs.astral.sh/uv/concepts/authentication/certificates/
export UV_SYSTEM_CERTS ?= true

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := $(VENV)/.packages
READY := $(VENV)/.ready
UV := $(BIN)/python -m uv

.PHONY: help demo demo-style demo-audit demo-rollout test test-fast test-slow test-cluster test-gpu rehearse mutants fuzz chaos cluster cluster-binaries cluster-status cluster-down \
  kfp kfp-check kfp-run kfp-canary kfp-page kfp-status kfp-down \
  check bench beir lock image-locks images try-image golden messages docs clean

help: ## what can be made here
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z%-]+):.*## /  make \1\t/' | expand -t 24

$(PACKAGES): requirements.lock requirements.uv.lock
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' \
	  || { echo "Qinglan needs Python 3.11; $(PYTHON) is another. Install it, or call: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@[ ! -L $(VENV) ] || { echo "$(VENV) is a link: making it anew would empty what it leads to. Remove the link first." >&2; exit 1; }
	@echo "[1/3] a virtual environment in $(VENV)"
	@"$(PYTHON)" -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.uv.lock
	@echo "[2/3] the locked packages (about half a minute)"
	@set -o pipefail; $(UV) pip install --python $(BIN)/python --require-hashes --no-build-isolation \
	  -r requirements.lock 2>&1 | grep -v '^ [-+~]'
	@touch $@

# pyproject.toml says which folders are packages: another one means another installation of our own, a moment's work.
$(READY): $(PACKAGES) pyproject.toml
	@echo "[3/3] the command: $(BIN)/qinglan"
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

demo: $(READY) ## the whole thread on this machine: sample tenants, stand-in teacher, RAG, one run
	@$(BIN)/qinglan demo

demo-style: $(READY) ## the style model: sample answers, training, verdict, a small model for a CPU
	@$(BIN)/qinglan style demo

demo-audit: $(READY) ## one byte of what the demo's model came from is changed, in a copy: who notices, and what is refused
	@$(BIN)/qinglan demo-audit

# A file's tests stay together, since they share what was trained for them; the long files come first. Four workers, on
# two processors too: tests wait for servers for a third of their time.
WORKERS := 4
PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder \
  --durations 15 --durations-min 30

demo-rollout: $(READY) ## the demo's model is rolled out once more, on loopback: a minute
	@$(BIN)/qinglan demo-rollout

test: $(READY) ## the tests: eight minutes on two quiet cores
	@$(PYTEST) -m "not nightly"

test-slow: $(READY) ## the nightly tests: 20 s and more each, which repeat another test's promise
	@$(PYTEST) -m nightly

test-fast: $(READY) ## the tests that take a minute together
	@$(PYTEST) -m "not slow and not nightly"

test-cluster: cluster-binaries ## the tests against a real control plane and a real S3
	@$(PYTEST) $(if $(QINGLAN_TEST_CLUSTER),--numprocesses 0,--maxprocesses 2) -m "not nightly" tests/cluster

PROFILES ?=
rehearse: $(READY) ## each step of the files for GPUs, here, both lines: narrow models, each step in its own image's environment; PROFILES="a100x4"
	@$(BIN)/python -m tests.rehearsal $(PROFILES)

test-gpu: $(READY) ## the checks that want a GPU: two minutes on an H100; elsewhere each says that it was skipped
	@$(BIN)/python -m tests.gpu

SECONDS ?= 600
fuzz: $(READY) ## search each parser of what others wrote for an input that breaks it: ten minutes each; SECONDS=60 PARSERS="profile bundle"
	@$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(PARSERS)

ROUNDS ?= 50
chaos: $(READY) ## runs whose processes are killed, paused and starved and whose clock is set at random must end as one that was left alone; ROUNDS=5
	@$(BIN)/python -m tests.chaos --rounds $(ROUNDS)

mutants: $(READY) ## put faults into a copy of the code, one at a time: a test must notice each; ONLY="journal-* gate-*"
	@$(BIN)/python -m tests.mutants.run "$(ONLY)"

cluster-binaries: $(READY) ## build their programs from Go modules and jars, once (needs Go, a JDK and Maven; a quarter of an hour the first time)
	@$(BIN)/python -m tests.cluster.build.binaries

cluster: cluster-binaries ## a real control plane with simulated A100 nodes, on loopback, in runs/cluster; prints a KUBECONFIG
	@$(BIN)/python -m tests.cluster.plane up

cluster-status: $(READY) ## which parts of it run, and their memory
	@$(BIN)/python -m tests.cluster.plane status

cluster-down: $(READY) ## end what `make cluster` started, and nothing else
	@$(BIN)/python -m tests.cluster.plane down

SOURCE ?= ../kubeflow-pipelines
KFP := $(BIN)/python -m tests.kfp.backend
kfp: $(READY) ## a real Kubeflow Pipelines 2.17 beside `make cluster`, in runs/kfp; SOURCE=a clone of kubeflow/pipelines (docs/kfp.md)
	@$(KFP) up $(SOURCE)

kfp-check: $(READY) ## two steps run there
	@$(KFP) check

kfp-run: $(READY) ## the rewriter's whole line there: from a sheet in a bucket to a model that KServe serves
	@$(KFP) run

kfp-canary: $(READY) ## after it: a better release as its canary, to Promoted, and a bad one, to RolledBack
	@$(KFP) canary

kfp-page: $(READY) ## KFP's own page, built with npm once, on http://127.0.0.1:3000
	@$(KFP) page

kfp-status: $(READY) ## which parts of it run, and their memory
	@$(KFP) status

kfp-down: $(READY) ## end what `make kfp` started; the cluster stays
	@$(KFP) down

check: $(READY) ## ruff, mypy strict, import rules, plain names, budgets of lines, what `make docs` writes
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python -m tests.lint.plain_words
	@$(BIN)/python -m tests.lint.budgets
	@$(BIN)/python -m pytest -q tests/tools/test_imports_picture.py tests/tools/test_docs.py

BENCHES := cli demo samples journal prepay lineage rag rag-rewriter rag-engines reranker data-line reward faulty-reward sft ppo style style-policy guard numbers serving \
  cluster store jobs rollout rollout-controller
bench: $(addprefix bench-,$(BENCHES)) ## every benchmark but `bench-science` (up to two hours), `bench-headroom` (fourteen whole runs beside those of bench-science, ten CPU minutes each), `bench-labels` (two whole runs), `bench-augment` (four SFTs), `bench-tests` (all tests) and `bench-pairwise` (reads the run of `make demo`)

beir: $(READY) ## rewriters on a public benchmark in BEIR's layout; DIR=its folder ARGS="--run RUN" (docs/beir.md)
	@$(BIN)/python -m benchmarks.beir $(DIR) $(ARGS)

bench-%: $(READY) ## one benchmark; its last line is JSON
	@$(BIN)/python -m benchmarks.$(subst -,_,$*)

bench-tests: $(READY) ## how long the tests take, and which take longest; RINGS="fast" of fast test cluster ci
	@$(BIN)/python -m benchmarks.tests $(RINGS)

SIZES ?= 10000 100000 1000000
bench-rag-engines: $(READY) ## both search engines beside FTS5 and rank_bm25; SIZES="10000 100000" passages
	@$(BIN)/python -m benchmarks.rag_engines $(SIZES)

lock: $(READY) ## resolve requirements.in again
	@$(UV) pip compile requirements.in --generate-hashes --no-header --no-emit-index-url --no-annotate --python-version 3.11 -o requirements.lock

golden: $(READY) ## write the compiled pipelines again
	@$(BIN)/qinglan compile

image-locks: $(READY) ## resolve the images' requirements again
	@$(BIN)/python -m images.locking

images: $(READY) ## build every container image (needs podman); PUSH=registry/prefix pushes them, and pins what it answers
	@$(BIN)/python -m images.building $(if $(PUSH),--push $(PUSH))

image-%: $(READY) ## one of them: cpu, sft, ppo, serve, style, standins, ppo-standins
	@$(BIN)/python -m images.building $* $(if $(PUSH),--push $(PUSH))

try-image: $(READY) ## run a compiled step inside the built CPU image, as strictly as a cluster would
	@$(BIN)/python -m images.trying

messages: $(READY) ## print the texts that have no Chinese yet, in the form of qinglan/messages/zh/*.po
	@$(BIN)/python -m tests.lint.messages

docs: $(READY) ## write settings tables of READMEs, docs/imports.svg and what deploying requires of each stage again
	@$(BIN)/python -m tools.docs

clean: ## end what `make kfp` and `make cluster` started, remove the environment and every run
	@if [ -d runs/kfp ]; then $(KFP) down || { echo "KFP may run in runs/kfp: make kfp-down first." >&2; exit 1; }; fi
	@if [ -d runs/cluster ]; then $(BIN)/python -m tests.cluster.plane down \
	  || { echo "A cluster may run in runs/cluster: make cluster-down first." >&2; exit 1; }; fi
	rm -rf $(VENV) runs .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
