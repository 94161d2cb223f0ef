#!/bin/sh
# Creates .venv and installs the locked dependencies: `bootstrap.sh run` or `bootstrap.sh dev`.
# Nothing is done when the lock is the one that was installed last, so it costs milliseconds.
set -eu
cd "$(dirname "$0")/.."

case "${1:-run}" in
run) lock=requirements.lock ;;
dev) lock=requirements-dev.lock ;;
*) echo "usage: bootstrap.sh run|dev" >&2; exit 1 ;;
esac

fail() {
    echo "mcpadmin cannot be set up: $1" >&2
    exit 1
}

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

# Another version looks for packages in another folder.
has_packages() {
    .venv/bin/python -c 'import os, sys, sysconfig; sys.exit(not os.path.isdir(sysconfig.get_path("purelib")))'
}

find_python() {
    for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null 2>&1 && new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    command -v python3 >/dev/null 2>&1 || fail "Python is not installed (Debian: apt install python3 python3-venv)."
    fail "it needs Python 3.11 or newer, this is $(python3 -V 2>&1) (another one: make PYTHON=/path/to/python3.12 run)."
}

create() {
    python="$(find_python)"
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "this Python has no venv module (Debian: apt install python3-venv)."
    echo "Creating .venv with $("$python" -V 2>&1)"
    "$python" -m venv --clear .venv || fail "python -m venv failed (Debian: apt install python3-venv)."
}

with_pip() {
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r "$1"
}

# The development lock holds uv, which needs a fifth of pip's time. It ignores pip's configuration (mirrors, proxies), so
# pip does what uv could not.
with_uv() {
    grep -q '^uv==' "$lock" || return 1
    if [ ! -x .venv/bin/uv ]; then
        sed -n '/^uv==/,/[^\\]$/p' "$lock" >.venv/uv.lock
        with_pip .venv/uv.lock || return 1
    fi
    .venv/bin/uv pip install --quiet --python .venv/bin/python --require-hashes --compile-bytecode -r "$lock" 2>/dev/null
}

install() {
    echo "Installing $lock (the first time takes about a minute)"
    with_uv || with_pip "$lock" || fail "the packages of $lock could not be installed; see the lines above."
    cp "$lock" ".venv/$lock"
    # The development lock holds all that running needs.
    [ "$lock" = requirements-dev.lock ] && cp requirements.lock .venv/requirements.lock
    return 0
}

# An interrupted first run leaves a .venv without a working pip: it is made again.
[ -e ".venv/$lock" ] || .venv/bin/python -c 'import pip' 2>/dev/null || create
# A system upgrade may take away the Python that .venv points to, or put another version in its place.
{ new_enough .venv/bin/python && has_packages; } || create
cmp -s "$lock" ".venv/$lock" || install
