#!/usr/bin/env bash
# Makes sure that a Java 17 or later is there, which Spark needs.
# Spark takes $JAVA_HOME/bin/java where JAVA_HOME is set, and the java on PATH otherwise; so does this.
set -euo pipefail

needed=17

# Prints the major version of a java: 17 for 17.0.15, 8 for 1.8.0_392; nothing when it cannot run.
major_version() {
    "$1" -version 2>&1 | sed -nE 's/.*version "(1\.)?([0-9]+).*/\2/p' | head -n 1
}

find_java() {
    if [[ -n "${JAVA_HOME:-}" ]]; then
        [[ -x "$JAVA_HOME/bin/java" ]] && echo "$JAVA_HOME/bin/java"
    else
        command -v java
    fi
}

usable() {
    local java version
    java="$(find_java)" || return 1
    version="$(major_version "$java")" || return 1
    [[ "$version" =~ ^[0-9]+$ ]] && ((version >= needed))
}

fail() {
    echo "$1" >&2
    exit 1
}

if usable; then
    exit 0
fi

# A JAVA_HOME that leads nowhere stays wrong whatever is installed beside it.
if [[ -n "${JAVA_HOME:-}" ]]; then
    fail "Spark needs Java $needed or later, and JAVA_HOME ($JAVA_HOME) has none: point it to one, or unset it."
fi

if [[ "$(id -u)" == 0 ]] && command -v apt-get >/dev/null 2>&1; then
    export DEBIAN_FRONTEND=noninteractive
    echo "Java $needed or later is missing; installing it with apt-get." >&2
    {
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends "openjdk-$needed-jre-headless" \
            || apt-get install -y -qq --no-install-recommends default-jre-headless
    } >&2 || true
    if usable; then
        exit 0
    fi
fi

fail "Spark needs Java $needed or later, and none was found on PATH: install a JRE (on Debian: openjdk-$needed-jre-headless) or set JAVA_HOME."
