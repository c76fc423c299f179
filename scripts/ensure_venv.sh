#!/usr/bin/env bash
# Creates the virtual environment if it is not there: ensure_venv.sh PYTHON FOLDER
set -euo pipefail

python="$1"
venv="$2"

if [[ -x "$venv/bin/python" ]] && "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    exit 0
fi

if ! command -v "$python" >/dev/null 2>&1; then
    echo "Penstock needs Python 3.11 or later, and there is no '$python' here: install it, or name another with 'make PYTHON=...'." >&2
    exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    found="$("$python" -c 'import platform; print(platform.python_version())')"
    echo "Penstock needs Python 3.11 or later, and '$python' is $found: name a newer one with 'make PYTHON=...'." >&2
    exit 1
fi

# Debian and its relatives ship Python without ensurepip, in a package of its own.
if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    package="$("$python" -c 'import sys; print(f"python{sys.version_info[0]}.{sys.version_info[1]}-venv")')"
    if [[ "$(id -u)" == 0 ]] && command -v apt-get >/dev/null 2>&1; then
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq >&2
        apt-get install -y -qq --no-install-recommends "$package" >&2 \
            || apt-get install -y -qq --no-install-recommends python3-venv >&2
    fi
    if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        echo "'$python' cannot create virtual environments: install the package $package (or python3-venv)." >&2
        exit 1
    fi
fi

"$python" -m venv "$venv"
