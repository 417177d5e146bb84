#!/bin/sh
# Make .venv and install uad into it. Usage: scripts/setup.sh VENV REQUIREMENT [kernels], for example: scripts/setup.sh .venv '.[dev]'
# With "kernels" as the last word only the kernels (kernels/) are compiled again, where all else is installed already.
# With the requirement "unit" the environment gets all but llama.cpp and uad itself: what `make unit` and `make lint` need, no compiler.
# Says in one line what is missing, before anything is built. PYTHON=… chooses the interpreter.
set -eu
venv=$1
requirement=$2

fail() {
    echo "uad: error: $1" >&2
    exit 1
}

has_pip() { "$venv/bin/python" -m pip --version >/dev/null 2>&1; }

usable='import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'
if ! has_pip; then
    python=
    for candidate in ${PYTHON:-python3.13 python3.12 python3.11 python3}; do
        # Started, not only found: version managers leave commands that answer with an error.
        if "$candidate" -c "$usable" >/dev/null 2>&1; then
            python=$candidate
            break
        fi
    done
    [ -n "$python" ] || fail "no Python 3.11 or newer with the venv module; install one: apt install python3-venv (Debian, Ubuntu), dnf install python3 (Fedora), brew install python (macOS), or name it: make PYTHON=…"
fi

if [ "$requirement" = unit ]; then
    has_pip || "$python" -m venv --clear "$venv"
    echo "uad: installing what the unit tests need into $venv" >&2
    exec "$venv/bin/python" scripts/unit_env.py
fi

compiler=
for candidate in ${CXX:-c++ g++ clang++}; do
    if command -v "$candidate" >/dev/null 2>&1; then compiler=$candidate; fi
done
[ -n "$compiler" ] || fail "no C++ compiler to build llama.cpp with; install one: apt install g++ (Debian, Ubuntu), dnf install gcc-c++ (Fedora), xcode-select --install (macOS)"
command -v cmake >/dev/null 2>&1 || fail "no cmake to build llama.cpp with; install it: apt install cmake (Debian, Ubuntu), dnf install cmake (Fedora), brew install cmake (macOS)"

has_pip || "$python" -m venv --clear "$venv"
exec "$venv/bin/python" scripts/pip_install.py "$requirement" ${3:+"$3"}
