#!/bin/sh
# What tests need from the system: Chromium, PostgreSQL and strace. Installs Debian's packages when run by root on a machine
# with apt; otherwise the tests use what is there, and what is missing is said at the end of `make test`.
set -u
notes="$(dirname "$0")/../.notes"
mkdir -p "$notes"
: >"$notes/setup-system.txt"

have_chromium() {
    [ -n "${CHROMIUM:-}" ] || command -v chromium >/dev/null || command -v chromium-browser >/dev/null ||
        command -v google-chrome >/dev/null || command -v google-chrome-stable >/dev/null
}
have_postgres() {
    command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1
}

packages=""
have_chromium || packages="chromium"
have_postgres || packages="$packages postgresql"
command -v strace >/dev/null || packages="$packages strace"
[ -z "$packages" ] && exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "set-up: not installed, and this is not root with apt:$packages" >>"$notes/setup-system.txt"
    exit 0
fi
echo "system: apt-get install $packages"
log="$(mktemp)"
export DEBIAN_FRONTEND=noninteractive
# PostgreSQL's package would start a server of its own; the tests start one where they need it.
mkdir -p /etc/postgresql-common
[ -e /etc/postgresql-common/createcluster.conf ] ||
    echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
# shellcheck disable=SC2086 # the list of packages is meant to be split
if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends $packages; } >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    echo "set-up: apt-get could not install: $packages" >>"$notes/setup-system.txt"
fi
rm -f "$log"
exit 0
