# Two targets matter: `make demo` and `make test`. `make help` lists all.
SHELL  := /bin/bash
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
BASE   := $(VENV)/.base
STAMP  := $(VENV)/.installed
LOCKED := packaging/constraints.txt# empty: the newest version of each dependency
EDITABLE = $(BIN)/pip install --quiet --disable-pip-version-check $(LOCKED:%=--constraint %) --editable
PARALLEL := --numprocesses auto --dist worksteal
RETRY  := -raR --reruns 1 --only-rerun 'not within [0-9]+ s' # a wait that ended too early has a second try, which is told of
LAB    := $(PYTHON) tests/lab/lab.py
SUITES ?= forky-1of3 forky-2of3 forky-3of3 trixie
NEWEST := forky
SUITE  ?= forky
PYTEST_ARGS ?=
COVERAGE ?= --show-missing --skip-covered# how it is told; empty: not measured, which is faster
MINUTES ?= 30
SEED ?= 1
KERNEL_TESTS := kernels placements# measured by themselves: measuring all that is uncompiled takes CI too long
WHOLE_KERNELS := backfill_slots free_gpus gang_fit gang_series gpu_set_search gpu_share_fit isolated_share job_scan nice_spacing ranking_walks service_queues slurm_gpu_pick slurmctld_nodes slurmctld_passes# no branch untested
CALLERS := placements planning/priorities resources sim testing topology# whose code calls kernels
DECIDING := $(if $(COVERAGE),allocation estimators model placements planning policies resources sim testing topology,$(CALLERS))
BENCH_ARGS ?=
UNITS := tests/unit tests/cases# what the newest versions run: laws and replays are test-fast's
BARE := tests/cases $(patsubst %,tests/unit/%,cli daemon db observe plugin slurm)# what depends on the machine
PLOTLY := 4.1.1

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast test-nojit test-promtool test-browser test-live test-bare test-newest fuzz test-packages deb soak lab-up lab-down lab-shell bench lint types docs man lock pictures plotly clean hooks

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Install into .venv and run the main job on the ideal cluster; no Slurm needed
	@begun=$$SECONDS; $(MAKE) --no-print-directory $(BASE) && $(BIN)/slurmsched demo \
		&& echo "make demo took $$((SECONDS - begun)) s"

test: lint types docs test-fast test-nojit test-promtool test-browser test-live ## Everything: lint, types, pages, tests compiled and plain, promtool, a browser, a real Slurm

test-fast: $(STAMP) ## Tests that need neither Slurm nor browser
	$(BIN)/python -m pytest $(PARALLEL) $(PYTEST_ARGS)

test-nojit: $(STAMP) ## Tests of what calls kernels once more, these as plain Python (with coverage: of all deciding code)
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest $(PARALLEL) $(if $(COVERAGE),--cov,--cov=slurmsched/kernels) --cov-report= \
		$(KERNEL_TESTS:%=tests/unit/%) $(PYTEST_ARGS)
	@$(if $(PYTEST_ARGS),,$(BIN)/coverage report --show-missing --fail-under=100 --include='$(subst $() ,$(),$(WHOLE_KERNELS:%=slurmsched/kernels/%.py,))')
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest $(PARALLEL) $(if $(COVERAGE),--cov --cov-append --cov-report=) \
		$(patsubst %,tests/unit/%,$(filter-out $(KERNEL_TESTS),$(DECIDING))) tests/property $(PYTEST_ARGS)
	@$(if $(COVERAGE),$(BIN)/coverage report $(COVERAGE))

test-promtool: $(STAMP) ## Alert rules, dashboard and metrics by Prometheus's promtool (Debian's prometheus)
	$(BIN)/python -m pytest -m promtool tests/promtool $(PYTEST_ARGS)

test-browser: $(STAMP) ## The demo's page in headless Chromium (Debian's package)
	$(BIN)/python -m pytest -m browser tests/browser $(PYTEST_ARGS)

fuzz: $(STAMP) ## 10,000 changes of each answer, record and file that is read; an hour or two (JOBS=2: on two cores)
	SLURMSCHED_FUZZ=10000 $(BIN)/python -m pytest -q -n $(or $(JOBS),1) tests/property/test_fuzz.py

test-live: ## Live tests in labs side by side (root, debootstrap); SUITES="forky trixie", forky-1of3: its first third
	@$(MAKE) --no-print-directory --keep-going --jobs=$(words $(SUITES)) $(SUITES:%=test-live-%); status=$$?; \
		$(if $(filter $(NEWEST)%,$(SUITES)),$(MAKE) --no-print-directory test-live-$(NEWEST)-alone && )exit $$status

test-live-%: suite = $(firstword $(subst -, ,$*))
test-live-%: part = $(subst of,/,$(or $(filter-out alone,$(word 2,$(subst -, ,$*))),1of1))
test-live-%: alone = $(if $(filter %-alone,$*),,not )alone
test-live-%:
	@trap '$(LAB) down --name test-$* 2>/dev/null || true' EXIT; trap 'exit 130' INT TERM; \
		$(LAB) up $(suite) --name test-$* \
		&& $(LAB) exec --name test-$* -- python -m pytest -m 'live and $(alone)$(if $(filter $(NEWEST),$(suite)),, and not newest)' \
		--part $(part) $(RETRY) tests/live $(PYTEST_ARGS)

test-bare: ## Demo, pages and tests that depend on the machine, on a Debian 13 with only what the README names (root, debootstrap)
	$(LAB) bare trixie -- make demo docs test-fast PYTEST_ARGS='$(BARE)'

test-newest: ## Types and unit tests with the newest versions, ignoring the lock; says so where these are the locked ones
	$(LAB) bare trixie -- make LOCKED= test-newest-inside

test-newest-inside: $(STAMP)
	@mkdir -p build; if $(BIN)/pip freeze --quiet --exclude-editable >build/newest.txt && $(BIN)/python packaging/newer.py build/newest.txt; \
		then echo "the newest versions are the locked ones: nothing else to test"; \
		else $(MAKE) --no-print-directory --keep-going LOCKED= types test-fast PYTEST_ARGS='$(UNITS)'; fi

test-packages: $(STAMP) ## Debian package in a clean root of each suite, rpm (root, debootstrap, rpm, Debian mirror, PyPI)
	$(BIN)/python -m pytest -m packages tests/packaging -s $(PYTEST_ARGS)

deb: $(STAMP) ## Build the Debian package in build/
	$(BIN)/python packaging/deb.py build

soak: ## Random churn on 16 nodes, invariants checked after each event: make soak MINUTES=30 SEED=1
	@trap '$(LAB) down --name soak 2>/dev/null || true' EXIT; trap 'exit 130' INT TERM; \
		$(LAB) up $(SUITE) --name soak && $(LAB) exec --name soak -- env SOAK_MINUTES=$(MINUTES) SOAK_SEED=$(SEED) \
		python -m pytest -m live tests/live/test_soak.py -s $(PYTEST_ARGS)

lab-up: ## Start a real Slurm with fake GPUs: make lab-up SUITE=trixie
	$(LAB) up $(SUITE)

lab-down: ## End it; nothing is left behind
	$(LAB) down --name $(SUITE)

lab-shell: ## A shell in it
	$(LAB) shell --name $(SUITE)

bench: $(STAMP) ## Measure against squeue in a lab of its own; writes bench/RESULTS.md
	@trap '$(LAB) down --name bench 2>/dev/null || true' EXIT; trap 'exit 130' INT TERM; \
		$(LAB) up $(SUITE) --name bench --set PriorityCalcPeriod=300 --set SchedulerParameters=bf_continue \
		&& $(BIN)/python bench/run.py --lab bench $(BENCH_ARGS)

lint: $(STAMP) ## ruff, and the import contracts of pyproject.toml
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(STAMP) ## mypy
	$(BIN)/mypy

docs: $(STAMP) ## Build the pages as a site in build/site, a folder a version; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --config-file .ci/mkdocs.yml \
		--site-dir $(CURDIR)/build/site/$$($(BIN)/python -c 'import slurmsched; print(slurmsched.__version__)')
	$(BIN)/python packaging/site_versions.py build/site

man: $(STAMP) ## Write the manual pages to build/man
	$(BIN)/python -m slurmsched.cli.man_pages build/man

lock: ## Write packaging/constraints.txt anew: the newest versions that fit Python 3.11 to 3.14 (installs uv beside .venv)
	$(PYTHON) -m venv build/uv && build/uv/bin/pip install --quiet uv
	build/uv/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --all-extras --no-emit-package pyslurm \
		--no-header --no-annotate pyproject.toml >build/lock.txt
	@{ grep '^#' packaging/constraints.txt; cat build/lock.txt; } >build/constraints.txt && mv build/constraints.txt packaging/constraints.txt

pictures: $(STAMP) ## Renew the pictures of docs: pages (Debian's chromium) and `slurmsched top`
	$(BIN)/python -m tests.browser.page_pictures docs
	$(BIN)/python -m tests.unit.observe.top_picture docs/top.svg docs/top-gpus.svg

plotly: ## Fetch plotly's small bundle anew (npm): make plotly PLOTLY=4.1.1; then write its checksum to the README beside it
	rm -rf build/plotly && mkdir -p build/plotly && cd build/plotly && npm pack --silent plotly.js-basic-dist-min@$(PLOTLY) && tar xzf *.tgz
	cp build/plotly/package/plotly-basic.min.js slurmsched/observe/static/
	cp build/plotly/package/LICENSE slurmsched/observe/static/plotly-basic.LICENSE
	@echo "sha512-$$(openssl dgst -sha512 -binary slurmsched/observe/static/plotly-basic.min.js | base64 -w0)"

hooks: ## Let git check each commit message (.ci/hooks/commit-msg)
	git config core.hooksPath .ci/hooks

clean: ## Remove .venv and what tools left
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .coverage .hypothesis

$(BASE): pyproject.toml $(LOCKED)
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "python3 has no venv module here: apt-get install python3-venv"; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Python 3.11 or newer is needed; this is $$($(PYTHON) --version). make PYTHON=python3.12 ..."; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(EDITABLE) .
	@touch $@

$(STAMP): $(BASE)
	$(EDITABLE) '.[test,lint,docs,mysql,postgres]'
	@touch $@
