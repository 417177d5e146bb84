# make serve   install what is needed and serve the bundled models      make test    the whole test suite
# make check   format, lint, types, fast tests                          make bench   plain against drafted, on a scaled target
# make vocabs  fetch real vocabularies and chat templates for the tests   make clean  remove the environment and caches
#
# PORT=8080, TARGET=…, DRAFT=…, ARGS=… choose what is served and how; PYTHON=… the interpreter; CMAKE_ARGS=… go to llama.cpp's build
# (for example make serve CMAKE_ARGS=-DGGML_CUDA=on, after make clean if there is an environment already).

PORT ?= 8080
TARGET ?= samples/target-chatml.gguf
DRAFT ?= samples/draft-zephyr.gguf
BENCH_TARGET := .cache/target-1b-bf16.gguf

VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist loadfile
SETUP := pyproject.toml hatch_build.py scripts/setup.sh scripts/pip_install.py scripts/amx.h $(wildcard uad/policy/*.py uad/drafters/*.py)

.PHONY: serve test check bench vocabs clean
.DEFAULT_GOAL := serve

serve: $(VENV)/.installed
	@$(BIN)/uad serve --target $(TARGET) --draft $(DRAFT) --host 127.0.0.1 --port $(PORT) $(ARGS)

test: $(VENV)/.installed-dev
	@$(PYTEST)

check: $(VENV)/.installed-dev
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(PYTEST) -m "not model and not slow"

bench: $(VENV)/.installed-bench $(BENCH_TARGET)
	@$(BIN)/uad bench --target $(BENCH_TARGET) --draft $(DRAFT)

vocabs: $(VENV)/.installed-dev
	@$(BIN)/python scripts/vocabs.py

clean:
	rm -rf uad/*/*.so uad/*/*.sha256 $(VENV) .cache build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/.installed: $(SETUP)
	@scripts/setup.sh $(VENV) .
	@touch $@

$(VENV)/.installed-%: $(SETUP)
	@scripts/setup.sh $(VENV) '.[$*]'
	@touch $@ $(VENV)/.installed

$(BENCH_TARGET): samples/target-chatml.gguf | $(VENV)/.installed-bench
	@mkdir -p $(dir $@)
	@$(BIN)/uad bench scale $< $@ --params 1b --type bf16
