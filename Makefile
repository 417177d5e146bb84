# make serve   install what is needed and serve the bundled models      make test    the test suite
# make demo    fetch a real pair of models (1.2 GB, once) and serve it   make check   format, lint, types, fast tests, coverage
# make models  fetch all real models that tests and bench use            make unit    the tests that need no llama.cpp (two minutes)
# make vocabs  fetch real vocabularies and chat templates for the tests  make lint    format, lint and types only
# make clean   remove environments and caches
# make table   README's table of speeds, measured here: fetches models, builds llama-server (ARGS=--plan says how long, ARGS=--quick is short)
# make test-no-kernels  the tests that decode with a model once more, in llama.cpp's own kernels
# make test-kernels  the kernels on other processors, which are emulated, and with sanitizers (seven minutes): after edits in kernels/
# make vllm    an environment with vLLM on the CPU (3.5 GB), and the test of uad's drafters inside it
# make mutants puts 54 errors into a copy of the code, one after the other, and says which the tests see (ARGS="--at REVISION NAME …")
# make clients real clients of OpenAI's API against a real pair (fetches it, and the clients)
#
# PORT=8080, TARGET=…, DRAFT=…, ARGS=… choose what is served and how; PYTHON=… the interpreter; CMAKE_ARGS=… go to llama.cpp's build
# (for example make serve CMAKE_ARGS=-DGGML_CUDA=on, after make clean if there is an environment already). MODELS="NAME …" chooses models,
# TESTS="PATH …" the tests of make unit.

PORT ?= 8080
SAMPLES := samples/target-chatml.gguf samples/draft-zephyr.gguf
TARGET ?= $(word 1,$(SAMPLES))
DRAFT ?= $(word 2,$(SAMPLES))
DEMO_TARGET ?= qwen2.5-coder-1.5b-q8_0
DEMO_DRAFT ?= smollm2-135m

VENV := .venv
BIN := $(VENV)/bin
# lint, types and unit tests run in the whole environment where there is one, else in a small one that is made in seconds
UNIT := $(if $(wildcard $(VENV)/.installed-dev),$(VENV),.venv-unit)
UNIT_MADE := $(if $(wildcard $(VENV)/.installed-dev),$(VENV)/.installed-dev,.venv-unit/.installed)
XDIST := -n auto --maxprocesses 8
# files in their order, not those of most tests first: what takes long (tests/model, tests/process) comes before what is short (tests/unit)
PYTEST := $(BIN)/python -m pytest $(XDIST) --dist loadfile --no-loadscope-reorder
# tests that decode with a model: they are run with llama.cpp's own kernels, too
DECODING = $(filter-out tests/model/test_kernels%,$(shell grep -lE 'Runtime\.open|import Context' tests/model/test_*.py))
COVERAGE := --cov --cov-report=term:skip-covered --cov-fail-under=75
SETUP := pyproject.toml scripts/setup.sh scripts/pip_install.py scripts/amx.h
KERNELS := $(wildcard kernels/pyproject.toml kernels/CMakeLists.txt kernels/src/* kernels/uad_kernels/*.py)
# "kernels" where nothing else is newer than the environment
ONLY_KERNELS = $(if $(filter-out kernels/%,$?),,kernels)

ifeq ($(TARGET) $(DRAFT),$(SAMPLES))
SHOWN := --spec-policy fixed
endif

# compiled Python is kept, since tests start a hundred processes, but not beside the sources where that is not wanted
ifdef PYTHONDONTWRITEBYTECODE
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/.cache/pycache
endif

.PHONY: serve demo test test-no-kernels test-kernels check unit lint table models vocabs clients vllm mutants clean
.DEFAULT_GOAL := serve

serve: $(VENV)/.installed
	@$(if $(SHOWN),echo "uad: the bundled target is so fast that the automatic policy leaves drafts alone; $(SHOWN) lets them be seen")
	@$(BIN)/uad serve --target $(TARGET) --draft $(DRAFT) --host 127.0.0.1 --port $(PORT) $(SHOWN) $(ARGS)

demo: $(VENV)/.installed
	@$(BIN)/python scripts/fetch_models.py $(DEMO_TARGET) $(DEMO_DRAFT)
	@folder="$$($(BIN)/python scripts/fetch_models.py --folder)" && exec $(BIN)/uad serve \
		--target "$$folder/$(DEMO_TARGET).gguf" --draft "$$folder/$(DEMO_DRAFT).gguf" -c 8192 --host 127.0.0.1 --port $(PORT) $(ARGS)

test: $(VENV)/.installed-dev
	@$(PYTEST) -m "not emulated"

test-kernels: $(VENV)/.installed-dev
	@$(BIN)/python -m pytest $(XDIST) --dist load -m emulated tests/unit/kernels

test-no-kernels: $(VENV)/.installed-dev
	@UAD_KERNELS=off $(PYTEST) -m "not slow" $(DECODING)

check: $(VENV)/.installed-dev
	@$(MAKE) --no-print-directory lint
	@$(PYTEST) -m "not model and not slow and not real and not emulated" $(COVERAGE)

lint: $(UNIT_MADE)
	@$(UNIT)/bin/ruff format --check .
	@$(UNIT)/bin/ruff check .
	@$(UNIT)/bin/mypy

unit: $(UNIT_MADE)
	@$(UNIT)/bin/python -m pytest $(XDIST) --dist worksteal -m unit $(TESTS)

table: $(VENV)/.installed
	@$(BIN)/python lab/speed_table.py $(ARGS)

models: $(VENV)/.installed
	@$(BIN)/python scripts/fetch_models.py $(MODELS)

vocabs: $(VENV)/.installed-dev
	@$(BIN)/python scripts/vocabs.py

clients: $(VENV)/.installed
	@$(BIN)/python scripts/fetch_models.py $(DEMO_TARGET) $(DEMO_DRAFT)
	@$(BIN)/python scripts/clients.py $(ARGS)

mutants: $(VENV)/.installed-dev
	@$(BIN)/python scripts/mutants.py $(ARGS)

vllm: $(VENV)/.installed-dev .venv-vllm/.installed
	@$(BIN)/python scripts/fetch_models.py qwen2.5-coder-0.5b $(DEMO_DRAFT)
	@$(BIN)/python -m pytest -rs tests/real/test_real_vllm.py

clean:
	rm -rf $(VENV) .venv-unit .venv-vllm .cache build kernels/build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage

$(VENV)/.installed: $(SETUP) $(KERNELS)
	@scripts/setup.sh $(VENV) . $(ONLY_KERNELS)
	@touch $@

$(VENV)/.installed-%: $(SETUP) $(KERNELS)
	@scripts/setup.sh $(VENV) '.[$*]' $(ONLY_KERNELS)
	@touch $@ $(VENV)/.installed

.venv-unit/.installed: pyproject.toml scripts/setup.sh scripts/unit_env.py
	@scripts/setup.sh .venv-unit unit
	@touch $@

.venv-vllm/.installed: pyproject.toml scripts/vllm_env.py | $(VENV)/.installed-dev
	@$(BIN)/python scripts/vllm_env.py .venv-vllm
	@touch $@
