# Every target works on a machine that has only python3.11 and make: the first one that needs it
# builds .venv from the hashed lock. Java is found at run time (see src/slicemill/runtime/spark_session.py).

PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Unit tests without Spark in two halves, for two cores.
QUICK_1 := tests/storage tests/esl tests/plan tests/explain tests/columns \
           --ignore=tests/esl/test_fuzz_syntax.py --ignore=tests/storage/test_home_scale.py
QUICK_2 := tests/ingest tests/model tests/scheduling tests/metrics tests/shedding tests/test_house.py \
           tests/test_spec_ids.py tests/test_corpus_reader.py

.DEFAULT_GOAL := help
.PHONY: help venv demo serve console screenshots openapi quick test test-slow test-lab cpu-seconds ruff lint bench lab wheel lock clean

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

$(READY): requirements.lock pyproject.toml oracle/pyproject.toml lab/pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "slicemill needs $(PYTHON); set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . -e ./oracle -e ./lab
	@touch $@

venv: $(READY) ## create .venv from requirements.lock

# The console is made from web/ once, and again when that changes; where npm's registry cannot be reached, what
# needs it goes on without, and says so.
CONSOLE := src/slicemill/server/console/index.html
WEB     := $(shell find web -path web/node_modules -prune -o -type f -not -name schema.d.ts -print)

$(CONSOLE): $(READY) $(WEB)
	@$(BIN)/python web/tools/make_console.py --optional

console: $(READY) ## build the web console into the server's package
	$(BIN)/python web/tools/make_console.py

screenshots: $(READY) $(CONSOLE) ## pictures of the console's pages into docs/pictures/console (needs Chromium)
	$(BIN)/python web/tools/screenshots.py

openapi: $(READY) ## write down the API that the console is typed by, after it has changed
	$(BIN)/python web/tools/openapi.py web/openapi.json

demo: $(READY) $(CONSOLE) ## start a server with examples/auction.esl and show what it does, for half a minute
	$(BIN)/python examples/demo.py

serve: $(READY) $(CONSOLE) ## the same server, until ctrl-c; its home is out/auction
	@mkdir -p out
	$(BIN)/slicemill serve examples/auction.esl --home out/auction --postgres-port 5433

ruff: $(READY)
	$(BIN)/ruff check src oracle lab client tests web
	$(BIN)/ruff format --check src oracle lab client tests web

lint: ruff ## ruff and mypy --strict
	$(BIN)/mypy

# Two processes for two cores. The first has the Spark session; the second checks types, and its output comes when
# both have ended. tests/conftest.py divides the modules between them by the seconds in tests/cpu_seconds.json.
MEASURE :=
test: ruff $(CONSOLE) ## lint, then the test suite of the product and a little of the lab's
	@mkdir -p out
	@{ $(BIN)/mypy; types=$$?; \
	  $(BIN)/python -m pytest -p no:cacheprovider -m "not first_process and not lab" $(MEASURE); plain=$$?; \
	  exit $$((types || plain)); } > out/plain-tests.log 2>&1 & plain=$$!; \
	$(BIN)/python -m pytest -m first_process $(MEASURE); spark=$$?; \
	wait $$plain; plain=$$?; cat out/plain-tests.log; exit $$((spark || plain))

# The experiments, their simulator and the benchmarks.
test-lab: $(READY) ## tests of experiments, their simulator and benchmarks; `make test` has only a few of these
	$(BIN)/python -m pytest -p no:cacheprovider tests/lab tests/simulator tests/bench

# Both processes append to one file, line by line.
cpu-seconds: ## measure each test of `make test`, and divide them between its processes anew
	@rm -f out/cpu-seconds.jsonl
	$(MAKE) test MEASURE="--cpu-seconds out/cpu-seconds.jsonl"
	$(BIN)/python tests/support/cpu_seconds.py out/cpu-seconds.jsonl

# Fewer examples of property tests than elsewhere, and nothing that starts Spark.
QUICKLY := $(BIN)/python -m pytest -p no:cacheprovider -x --hypothesis-profile=quick -m "not spark"
quick: lint ## lint, types and unit tests without Spark, under a minute
	@mkdir -p out
	@$(QUICKLY) $(QUICK_1) > out/quick-tests.log 2>&1 & first=$$!; \
	$(QUICKLY) $(QUICK_2); second=$$?; \
	wait $$first; first=$$?; cat out/quick-tests.log; exit $$((first || second))

test-slow: $(READY) $(CONSOLE) test-lab ## test-lab, kills at every step of a commit, clusters, the whole corpus with every seed (an hour)
	$(BIN)/python -m pytest -v tests/recovery/sweep.py tests/recovery/cluster.py \
	  tests/engine/workers/slow_cluster.py tests/bench/slow_rivals.py tests/bench/slow_nexmark.py tests/bench/slow_every_benchmark.py \
	  tests/slow_corpus.py tests/slow_random_results.py tests/slow_packaging.py tests/slow_come_and_go.py tests/console/slow_bars.py \
	  tests/engine/adapting/slow_replacing.py tests/engine/changing/slow_positions.py tests/aggregate/slow_hostile_arguments.py \
	  tests/joins/slow_joins_against_sql.py tests/lab/slow_on_cluster.py tests/lab/slow_experiments.py \
	  tests/scheduling/slow_policy_matrix.py tests/metrics/slow_from_outside.py tests/bench/slow_scale.py \
	  tests/recovery/local_cluster.py tests/recovery/slow_statement_kills.py tests/storage/slow_flips.py tests/server/slow_ends.py \
	  tests/connectors/slow_source_frame_values.py tests/engine/slow_program.py tests/engine/changing/slow_backfill.py

lab: $(READY) ## run every published experiment and draw its plot into out/lab
	$(BIN)/slicemill lab run --all --plot out/lab

bench: $(READY) ## run every benchmark
	$(BIN)/slicemill bench --all

wheel: $(READY) $(CONSOLE) ## a wheel with the machine code of its kernels, for any processor of this kind
	rm -rf out/code
	SLICEMILL_COMPILE=always SLICEMILL_CACHE=out/code NUMBA_CPU_NAME=generic \
	  $(BIN)/python -m pytest -p no:cacheprovider tests/test_corpus_on_engine.py
	$(BIN)/python -m slicemill.kernels.ship out/code/code
	$(BIN)/python -m hatchling build -t wheel -d out/dist

lock: ## renew requirements.lock (needs uv)
	uv pip compile pyproject.toml oracle/pyproject.toml lab/pyproject.toml --extra dev --generate-hashes --no-emit-package slicemill --no-emit-package slicemill-oracle \
	  --no-emit-index-url --no-header --python-version 3.11 --upgrade -o requirements.lock

clean: ## remove the virtual environment and everything generated
	rm -rf $(VENV) out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis web/node_modules
	rm -rf src/slicemill/server/console web/src/api/schema.d.ts
	find src oracle lab tests -name __pycache__ -type d -prune -exec rm -rf {} +
