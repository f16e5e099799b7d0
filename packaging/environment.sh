#!/bin/sh
# Make the environment for one purpose: `environment.sh up|test|deb|bench`. Called by the Makefile, quick when done.
#
# Debian packages are installed when we are root and named when we are not; Python packages go into .venv, pinned with
# hashes. pip keeps to the machine's own configuration (index, proxy, certificates). What fails, fails in one message;
# the whole story is in build/environment.log.
set -eu
cd "$(dirname "$0")/.."
purpose=$1
venv=.venv
log=build/environment.log

# What only the purpose's own tools need; Python and its venv module are asked for by trying them.
packages_deb="build-essential debhelper dh-python fakeroot go-md2man lintian python3-pip"
packages_test="$packages_deb mmdebstrap iproute2 util-linux procps curl ca-certificates systemd dbus nftables libgomp1
    python3-gi python3-pydbus python3-nftables libudev1 chromium-headless-shell"
packages_bench="gcc libc6-dev nginx strace valgrind"

say() { echo "$*" >&2; }

die() { # MESSAGE HINT
    say "error: $1"
    say "hint: $2"
    exit 1
}

is_root() { [ "$(id -u)" = 0 ]; }

missing_packages() { # PACKAGE...: those that are not installed
    for package in "$@"; do
        dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || echo "$package"
    done
}

install_packages() { # PACKAGE...
    say "installing with apt: $*"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@"; } \
        >>"$log" 2>&1 </dev/null || {
        grep -q 'No space left' "$log" && die "the disk is full: apt could not install $*" "make room below /var"
        die "apt could not install $*: $(grep '^E:' "$log" | tail -n 1)" "read $log; without a network nothing can be installed"
    }
}

need_packages() { # PACKAGE...: install them, or say that tests that need them are left out
    command -v dpkg-query >/dev/null || return 0
    missing=$(missing_packages "$@" | tr '\n' ' ')
    [ -n "$missing" ] || return 0
    # shellcheck disable=SC2086 # a list of names
    if is_root; then install_packages $missing; else
        say "note: not root, so these packages of Debian's are left out: $missing"
    fi
}

find_python() { # The Debian release's own Python first: it sees python3-gi and its like, and the package runs on it.
    for candidate in /usr/bin/python3 python3 python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
}

need_python() {
    python=$(find_python)
    if [ -z "$python" ] && is_root && command -v apt-get >/dev/null; then
        install_packages python3 python3-venv ca-certificates
        python=$(find_python)
    fi
    [ -n "$python" ] || die "Python 3.11 or newer is needed" "apt-get install python3 python3-venv, as root"
}

make_venv() {
    if [ -x $venv/bin/python ] && $venv/bin/python -c 'import sys' 2>/dev/null; then return; fi
    say "making $venv with $python"
    rm -rf $venv
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null && is_root && command -v apt-get >/dev/null; then
        install_packages python3-venv ca-certificates
    fi
    # System packages are visible: python3-gi and its like cannot be had from the package index.
    if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        "$python" -m venv --system-site-packages $venv >>"$log" 2>&1 || pip_failed "python -m venv"
    elif "$python" -c 'import pip, venv' 2>/dev/null; then
        "$python" -m venv --system-site-packages --without-pip $venv >>"$log" 2>&1 || pip_failed "python -m venv"
    else
        die "$python can make no virtual environment" "apt-get install python3-venv, as root"
    fi
}

pip_failed() { # WHAT
    # On a full disk the log may be empty too.
    if grep -q 'No space left' "$log" || [ "$(df -Pk . | awk 'NR == 2 { print $4 }')" -lt 1024 ]; then
        die "the disk is full: $1 did not finish" "make room below $(pwd)"
    fi
    if grep -q -e 'THESE PACKAGES DO NOT MATCH THE HASHES' "$log"; then
        die "the package index gave a file whose hash is not the pinned one" "read $log; look at pip config list"
    fi
    if grep -q -e 'Retrying' -e 'Connection' -e 'Temporary failure' -e 'No matching distribution' "$log"; then
        die "the package index cannot be reached" "check the network and pip config list; the log is $log"
    fi
    die "$1 failed: $(grep -v '^WARNING' "$log" | tail -n 1)" "read $log"
}

is_installed() { # FILE: whether exactly these requirements were installed to the end
    [ "$(cat "$venv/.installed-$(echo "$1" | tr / -)" 2>/dev/null)" = "$(sha256sum "$1" | cut -d' ' -f1)" ]
}

install_requirements() { # FILE
    if is_installed "$1"; then return; fi
    say "installing Python packages: $1"
    # A venv made without ensurepip gets its pip from the requirements; until then another Python's pip serves it.
    pip="$venv/bin/python -m pip"
    $pip --version >/dev/null 2>&1 || pip="$python -m pip --python $venv/bin/python"
    # shellcheck disable=SC2086 # a command and its words
    $pip install --quiet --disable-pip-version-check --retries 2 --timeout 20 --no-input \
        --no-deps --require-hashes --requirement "$1" >>"$log" 2>&1 </dev/null || pip_failed "pip"
    sha256sum "$1" | cut -d' ' -f1 >"$venv/.installed-$(echo "$1" | tr / -)"
}

make_command() { # .venv/bin/llmgw, which works from any folder
    tree=$(pwd)
    cat >"$venv/bin/.llmgw" <<END
#!$tree/$venv/bin/python
"""The llmgw command of this checkout."""

import sys

sys.path.insert(0, "$tree")

from cli.app import main

sys.exit(main(sys.argv[1:]))
END
    chmod 755 "$venv/bin/.llmgw"
    mv "$venv/bin/.llmgw" "$venv/bin/llmgw"
}

mkdir -p build
# Two calls at once would install over each other.
exec 9>build/environment.lock
! command -v flock >/dev/null || flock 9
: >"$log"

case $purpose in
up)
    # The starter engine is linked with OpenMP; it is the one library that a small Debian has not.
    ldconfig -p 2>/dev/null | grep -q libgomp.so.1 || need_packages libgomp1
    ;;
test) need_packages $packages_test ;;
deb) need_packages $packages_deb ;;
bench) need_packages $packages_bench ;;
*) die "what for? '$purpose' is none of: up, test, deb, bench" "make up" ;;
esac
need_python
make_venv
make_command
case $purpose in
# The tests' requirements hold the programs' own, in the same versions.
up | deb) is_installed tests/requirements.txt || install_requirements packaging/requirements.txt ;;
*) install_requirements tests/requirements.txt ;;
esac
