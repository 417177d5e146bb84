# syntax=docker/dockerfile:1
# An image that serves. docs/deploy.md says how to build and run it.
#
#   docker build -t uad .                                      for the processor that builds it
#   docker build -t uad:cuda --build-arg VARIANT=cuda .        for NVIDIA GPUs
#
# LLAMA_CMAKE_ARGS goes to llama.cpp's build: -DGGML_NATIVE=off makes an image for other x86 processors with AVX2.

ARG VARIANT=cpu

FROM python:3.12-slim-bookworm AS tools-cpu
ENV CMAKE_ARGS=""

FROM nvidia/cuda:12.8.1-devel-ubuntu24.04 AS tools-cuda
ENV CMAKE_ARGS="-DGGML_CUDA=on -DGGML_NATIVE=off"
RUN apt-get update && apt-get install -y --no-install-recommends python3 python3-venv && rm -rf /var/lib/apt/lists/*

FROM tools-${VARIANT} AS build
ARG LLAMA_CMAKE_ARGS=""
RUN apt-get update && apt-get install -y --no-install-recommends g++ cmake make git && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/uad
COPY pyproject.toml README.md LICENSE ./
COPY scripts scripts
COPY mappings mappings
COPY kernels kernels
COPY uad uad
RUN CMAKE_ARGS="$CMAKE_ARGS $LLAMA_CMAKE_ARGS" sh scripts/setup.sh .venv .

FROM python:3.12-slim-bookworm AS base-cpu
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*

FROM nvidia/cuda:12.8.1-runtime-ubuntu24.04 AS base-cuda
RUN apt-get update && apt-get install -y --no-install-recommends python3 libgomp1 && rm -rf /var/lib/apt/lists/*

FROM base-${VARIANT}
COPY --from=build /opt/uad /opt/uad
RUN useradd --system --uid 10001 --create-home uad && mkdir -p /models /cache && chown uad:uad /cache
USER uad
ENV LLAMA_ARG_HOST=0.0.0.0 \
    LLAMA_ARG_PORT=8080 \
    HF_HOME=/cache/huggingface \
    UAD_CACHE_DIR=/cache/uad \
    PYTHONUNBUFFERED=1
VOLUME ["/models", "/cache"]
EXPOSE 8080
# 503 until the models are loaded, which a download may delay
HEALTHCHECK --interval=10s --timeout=5s --start-period=30m --retries=3 CMD ["/opt/uad/.venv/bin/python", "-m", "uad.tools.health"]
ENTRYPOINT ["/opt/uad/.venv/bin/uad"]
CMD ["serve"]
