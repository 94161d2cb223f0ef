#!/bin/sh
# Writes all lock files anew, with hashes and without the address of any registry.
set -eu
cd "$(dirname "$0")/../.."
uv=".venv/bin/uv"
pin="$uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url $*"

$pin pyproject.toml -o requirements.lock
$pin pyproject.toml --group dev -o requirements-dev.lock
for peer in sdk2 sdk1 sdk1_12 sdk1_9 sdk1_8 sdk1_2 fastmcp bridges; do
    (cd tests/peers && "../../$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-header --no-emit-index-url "$peer.in" -o "$peer.lock" "$@")
done
for folder in peers peers/long peers/inspector conformance; do
    (cd "tests/$folder" && npm install --package-lock-only --no-audit --no-fund --silent)
done
if grep -nE '"resolved"|https?://[^ "]*(registry|pypi|simple)' ./*.lock tests/peers/*.lock tests/*/package-lock.json tests/peers/*/package-lock.json; then
    echo "A lock names a registry: see above." >&2
    exit 1
fi
