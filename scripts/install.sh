#!/usr/bin/env bash
# Installs what constraints files name, then Penstock from this folder: install.sh VENV EXTRAS FILE...
set -euo pipefail

venv="$1"
extras="$2"
shift 2

install() {
    "$venv/bin/python" -m pip install --disable-pip-version-check --quiet "$@"
}

files=()
for file in "$@"; do
    files+=(--requirement "$file")
done

# PySpark comes as source: in an isolated build pip would take whatever setuptools is the newest that day.
install --require-hashes --requirement constraints/build.txt
install --require-hashes --no-build-isolation "${files[@]}"

# Nothing may be left to install, so pip gets no index: what pyproject.toml asks for must be in the files.
if ! install --no-index --no-build-isolation --editable ".[$extras]"; then
    echo "If pip found no matching distribution: pyproject.toml has changed, run 'make constraints'." >&2
    exit 1
fi
