# Every entry point. `make help` lists them; the first call sets everything up, the next ones start at once.
#
#   VENV     virtual environment (.venv)           ARGS     passed on: make run ARGS="--workers 2 --epochs 1"
#   PYTHON   interpreter that makes it (python3)   TESTS    what make test runs (tests)
#   NAME     experiment (make experiment)          WORLD    where it runs: local, testbed, auto (make run), virtual
#   SWITCH   of the testbed: embedded, process, bmv2; anywhere: tna, the protocol's program for Tofino
#   PROTOCOL what switch and workers speak (make run): switchml, atp, ps, or the path of your own program
#   SINCE    commit: of these, the tests that the change since then may reach (make test SINCE=main~1)
#   JOBS     how many processes run tests (make test): auto, one for each processor, or a number
#   MINUTES  of random search (make judges), of faults (make soak)   SEED  where a random search begins
#   TORCH    what is installed: cpu (default), or cuda, which is 3 GB; TORCH_INDEX: address of a package index with CPU builds

VENV    ?= .venv
PYTHON  ?= python3
ARGS    ?=
NAME    ?=
WORLD   ?=
SWITCH  ?=
PROTOCOL?=
TESTS   ?= tests
SINCE   ?=
JOBS    ?= auto
MINUTES ?= 10
SEED    ?= 1
TORCH   ?= cpu
TORCH_INDEX ?=
export TORCH TORCH_INDEX
RUN     := $(VENV)/bin/python
SOURCES := $(shell $(PYTHON) ina/base/manifest.py native binding)
ifneq ($(.SHELLSTATUS),0)
$(error make: the checkout is incomplete, or there is no $(PYTHON); see above)
endif

.DEFAULT_GOAL := help
.PHONY: help build run experiment experiments figures test test-all test-fast judges conformance fuzz fuzz-coverage bench bench-dpdk dpdk simulate soak check generated docs release clean data mininet tofino

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1#/' | awk -F'#' '{printf "  make %-13s %s\n", $$1, $$2}'
	@echo '  ina --help         the command line, in $(VENV)/bin once one of them ran'

build: $(VENV)/built ## build the compiled part, if it is older than its sources (the other targets do, too)

run: data $(if $(filter local,$(WORLD)),,mininet) $(VENV)/built $(if $(filter bmv2,$(SWITCH)),$(VENV)/p4runtime) ## train Fashion-MNIST through the P4 switch and over Gloo, and compare
	@$(RUN) -m ina.cli run --world $(or $(WORLD),auto) $(if $(SWITCH),--switch $(SWITCH)) $(if $(PROTOCOL),--protocol $(PROTOCOL)) $(ARGS)

experiment: $(VENV)/built $(if $(filter bmv2,$(SWITCH)),$(VENV)/p4runtime) ## run an experiment of experiments/: NAME=loss-sweep [WORLD=virtual]; without NAME, list them
	@$(RUN) -m ina.cli experiment $(if $(NAME),run $(NAME) $(if $(WORLD),--world $(WORLD)) $(if $(SWITCH),--switch $(SWITCH)) $(ARGS),list)

experiments: $(VENV)/built ## run every experiment in virtual time: figures of all of them in a few minutes
	@$(RUN) -m ina.cli experiment all $(ARGS)

figures: $(VENV)/built ## make published figures again in virtual time, beside what was published
	@$(RUN) -m ina.cli figures $(ARGS)

# $(call pytest,TIER): the tests of a tier beside each other, the longest files first; times and verdicts are kept in results/tests.
pytest = $(RUN) -m pytest -q -ra -n $(JOBS) --dist loadfile --no-loadscope-reorder --durations=25 --tier $(1) $(if $(SINCE),--since $(SINCE)) \
	--junitxml=results/tests/$@.xml $(TESTS) $(ARGS)

test: $(VENV)/built $(VENV)/tested-with ## run the tests that decide on a change: 8 minutes on two processors
	@$(call pytest,test)

test-all: $(VENV)/built $(VENV)/tested-with ## run all tests, those of processes, root and hardware, too: under an hour
	@$(call pytest,all)

test-fast: $(VENV)/built $(VENV)/tested-with ## run the tests that need no compiler, no root and no processes: half of them, in one to two minutes
	@$(call pytest,test) -m fast

judges: $(VENV)/built $(VENV)/tested-with ## judge the judges: planted defects, deep walks, then MINUTES (10) of random programs and as many of fuzzing
	@$(call pytest,judges)
	@$(RUN) -m ina.cli explore --elements 128
	@$(RUN) -m ina.cli explore --maxima --tensors 3 --elements 40
	@$(RUN) -m ina.cli explore --late --slots 2
	@$(RUN) -m ina.cli explore --topology 'star hosts=3'
	@$(RUN) -m tests.random_programs --minutes $(MINUTES) --seed $(SEED)
	@$(RUN) -m tests.fuzz --minutes $(MINUTES)

conformance: $(VENV)/built $(VENV)/tested-with ## run PyTorch's own distributed test suite with ina and with Gloo, and compare
	@$(RUN) -m tests.conformance $(ARGS)

fuzz: $(VENV)/built $(VENV)/tested-with ## random P4 programs in the compiled switch, the interpreter and an oracle of its own: ARGS="--minutes 60"
	@$(RUN) -m tests.random_programs $(ARGS)

fuzz-coverage: $(VENV)/built $(VENV)/tested-with ## coverage-guided fuzzing of parsers, protocols and services, a minute each: ARGS="--seconds 600 TARGET"
	@$(RUN) -m tests.fuzz $(ARGS)

tofino: $(VENV)/built ## look at p4/tofino/*.p4, and compile them where a compiler for Tofino is found (P4C_TOFINO, bf-p4c, p4c-barefoot)
	@status=0; for program in p4/tofino/*.p4; do $(RUN) -m ina.cli tofino check $$program $(ARGS) || status=1; echo; done; \
	$(RUN) -m ina.cli tofino compile $(ARGS) || status=1; exit $$status

bench: $(VENV)/built ## measure against peers and limits: all, or ARGS=local (collectives beside Gloo, MPI and oneCCL)
	@$(RUN) -m bench $(ARGS)

dpdk: $(VENV)/built ## build the ports over DPDK; says what to install where it is not there
	@.ci/system dpdk
	@$(RUN) -m ina.net.dpdk

simulate: build ## kill, restart and forget everything in virtual time, for EVENTS (1000000) from SEED (1), PROTOCOL (switchml)
	@$(RUN) -m ina.cli simulate --protocol $(or $(PROTOCOL),switchml) --events $(or $(EVENTS),1000000) --seed $(SEED) $(ARGS)

soak: $(VENV)/built $(if $(filter servers,$(WORLD)),,dpdk) ## jobs for MINUTES (10) with faults, every sum compared: over DPDK, then at switch processes (WORLD=dpdk, servers: one)
	@case "$(WORLD)" in ''|dpdk|servers) ;; *) echo "make soak: WORLD=$(WORLD): expected dpdk, servers, or none for both" >&2; exit 2;; esac
	@$(if $(filter servers,$(WORLD)),,$(RUN) -m bench.soak --minutes $(MINUTES) $(ARGS))
	@$(if $(filter dpdk,$(WORLD)),,$(RUN) -m bench.soak_servers --minutes $(MINUTES) $(ARGS))

bench-dpdk: dpdk ## measure workers and switch over DPDK on two cores, without a NIC, beside testpmd and Gloo
	@.ci/system testpmd
	@$(RUN) -m bench dpdk $(ARGS)

check: $(VENV)/built $(VENV)/tested-with ## check without running tests: style, types, C warnings, spelling, links: ARGS="types c"
	@.ci/check $(RUN) $(ARGS)

generated: | $(VENV)/installed ## write what the C code knows of the wire (host/protocol/kinds.h, wire.h, atp_wire.h), after a change of p4/include
	@$(RUN) host/generate.py

docs: $(VENV)/built $(VENV)/documented ## build the documentation as one searchable site: build/site/index.html
	@$(RUN) docs/site/generate.py
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet $(ARGS)
	@echo 'build/site/index.html'

release: $(VENV)-release/installed ## build the sdist and the wheel of the last commit twice, and check them in fresh environments: dist/
	@$(VENV)-release/bin/python .ci/release dist

clean: ## remove the virtual environment and everything built
	rm -rf $(VENV) $(VENV)-release build *.egg-info ina/_native*.so ina/_native.c .pytest_cache .hypothesis .ruff_cache

# What the distribution has: a C compiler, venv. Asks for nothing unless it runs as root; says what is missing otherwise. Then
# what builds the compiled part, so that it is built while the larger packages are on their way; an environment that has its packages
# has it already, and may have no network any more.
$(VENV)/pyvenv.cfg:
	@.ci/system cc venv
	@echo '==> virtual environment in $(VENV)'
	@$(PYTHON) .ci/aloud.py 'an empty environment' $(PYTHON) -m venv $(VENV)

$(VENV)/tools: | $(VENV)/pyvenv.cfg
	@[ -e $(VENV)/installed ] || $(PYTHON) .ci/aloud.py 'the newest pip, setuptools and cffi' $(RUN) -m pip install --no-compile --disable-pip-version-check \
		--upgrade pip setuptools cffi
	@touch $@

# $(call quietly,COMMAND): only a failing command shows what it said.
quietly = $(1) > $(VENV)/setup.log 2>&1 || { cat $(VENV)/setup.log; exit 1; }
# $(call wanted,EXTRAS): the requirements of pyproject.toml, with those of the named extras.
wanted = $$($(RUN) -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	print(*p["dependencies"], *(r for e in "$(1)".split() for r in p["optional-dependencies"][e]))')

# Without Fashion-MNIST, scikit-learn comes for its small digits. What every training imports is imported once here, that is compiled.
$(VENV)/installed: pyproject.toml constraints.txt | $(VENV)/tools
	@echo '==> Python packages: what is missing, and how large it is'
	@.ci/install $(RUN) setuptools cffi $(call wanted,torch plot dash $(shell .ci/system fallback))
	@$(PYTHON) .ci/aloud.py 'first imports of torch and matplotlib' $(RUN) -c \
		'import matplotlib.pyplot, torch._dynamo, torch.distributed.algorithms.join, torch.nn.parallel'
	@touch $@

# Beside each other: packages wait for the line, the compiled part for the processors.
$(VENV)/built: $(SOURCES) setup.py pyproject.toml constraints.txt | $(VENV)/tools
	@$(MAKE) --no-print-directory -j2 $(VENV)/installed $(VENV)/compiled
	@touch $@

$(VENV)/compiled: $(SOURCES) setup.py pyproject.toml | $(VENV)/tools
	@.ci/system cc
	@echo '==> compiled part (ina._native)'
	@$(PYTHON) .ci/aloud.py --saying 'compiled [0-9]+ of .*' 'the C compiler starts' \
		$(RUN) -m pip install -v --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

$(VENV)/p4runtime: pyproject.toml constraints.txt | $(VENV)/built
	@echo '==> P4Runtime'
	@.ci/install $(RUN) $(call wanted,p4runtime)
	@touch $@

$(VENV)/tested-with: pyproject.toml constraints.txt | $(VENV)/built
	@echo '==> test tools'
	@.ci/install $(RUN) $(call wanted,dev data p4runtime ray)
	@$(call quietly,$(VENV)/bin/pip install --no-deps mlc-chakra)
	@touch $@

# Tools that build and check a release, in an environment of their own: other versions would make other files.
$(VENV)-release/installed: .ci/pins/release.txt
	@.ci/system cc venv
	@echo '==> tools that build and check a release'
	@$(PYTHON) -m venv $(VENV)-release
	@$(VENV)-release/bin/pip install --disable-pip-version-check -r .ci/pins/release.txt
	@touch $@

$(VENV)/documented: pyproject.toml constraints.txt | $(VENV)/built
	@echo '==> documentation tools'
	@.ci/install $(RUN) $(call wanted,docs)
	@touch $@

data mininet:
	@.ci/system $@
