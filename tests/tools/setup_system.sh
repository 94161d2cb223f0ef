#!/bin/sh
# What tests need from the system: Chromium, PostgreSQL, strace, bubblewrap and podman; with --all also Firefox, which only long
# tests use. Installs Debian's packages when run by root on a machine with apt; otherwise the tests use what is there, and what
# is missing is said at the end of `make test`. A second run at the same time waits for the first.
set -u
notes="$(dirname "$0")/../.notes"
mkdir -p "$notes"

have_headless_shell() {
    [ -n "${CHROMIUM:-}" ] || command -v chromium-headless-shell >/dev/null
}
have_chromium() {
    have_headless_shell || command -v chromium >/dev/null || command -v chromium-browser >/dev/null ||
        command -v google-chrome >/dev/null || command -v google-chrome-stable >/dev/null
}
have_firefox() {
    [ -n "${FIREFOX:-}" ] || command -v firefox-esr >/dev/null || command -v firefox >/dev/null
}
have_postgres() {
    command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1
}

may_install=""
[ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null && may_install=yes
if [ -n "$may_install" ] && command -v flock >/dev/null; then
    exec 9>"$notes/.setup-system.lock"
    flock 9
fi
: >"$notes/setup-system.txt"
packages=""
have_headless_shell || packages="chromium-headless-shell"
[ "${1:-}" != --all ] || have_firefox || packages="$packages firefox-esr"
have_postgres || packages="$packages postgresql"
command -v strace >/dev/null || packages="$packages strace"
command -v bwrap >/dev/null || packages="$packages bubblewrap"
# runc: podman's usual crun does not start on machines with both versions of cgroups. uidmap: for an ordinary user.
containers=""
command -v podman >/dev/null || containers="podman"
command -v runc >/dev/null || containers="$containers runc"
command -v newuidmap >/dev/null || containers="$containers uidmap"
[ -z "$packages$containers" ] && exit 0

if [ -z "$may_install" ]; then
    missing=""
    have_chromium || missing="chromium"
    [ "${1:-}" != --all ] || have_firefox || missing="$missing firefox-esr"
    have_postgres || missing="$missing postgresql"
    [ -z "$missing" ] || echo "set-up: not installed, and this is not root with apt:$missing" >>"$notes/setup-system.txt"
    exit 0
fi
log="$(mktemp)"
export DEBIAN_FRONTEND=noninteractive
# PostgreSQL's package would start a server of its own; the tests start one where they need it.
mkdir -p /etc/postgresql-common
[ -e /etc/postgresql-common/createcluster.conf ] ||
    echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
install() {
    echo "system: apt-get install $*"
    apt-get install -y -qq --no-install-recommends "$@" >"$log" 2>&1
}
apt-get update -qq >"$log" 2>&1 || { sleep 5 && apt-get update -qq >"$log" 2>&1; } # a mirror may be away for a moment
# All at once takes a third of the time. What cannot be installed then does not keep the others away.
# shellcheck disable=SC2086 # lists
if ! install $packages $containers; then
    for package in $packages; do
        install "$package" && continue
        # Older releases have no headless shell. The whole browser does the same, but takes three times as much CPU time.
        [ "$package" = chromium-headless-shell ] && { have_chromium || install chromium; } && continue
        tail -n 5 "$log" >&2
        echo "set-up: apt-get could not install: $package" >>"$notes/setup-system.txt"
    done
    if [ -n "$containers" ] && ! install $containers; then
        tail -n 5 "$log" >&2
        echo "set-up: apt-get could not install: $containers" >>"$notes/setup-system.txt"
    fi
fi
rm -f "$log"
exit 0
