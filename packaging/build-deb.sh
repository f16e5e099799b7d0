#!/bin/sh
# Build the Debian package for the running release into dist/, from a copy of the tree. Called by `make deb`.
#
# The bundled libraries are fetched here and not in debian/rules: debhelper gives a build an empty home, in which pip
# would find neither the machine's configuration nor its cache. `dpkg-buildpackage` alone works too, and fetches them.
set -eu
cd "$(dirname "$0")/.."
log=build/deb.log
stage=build/deb/llmgw
vendor=build/vendor-$(sha256sum packaging/requirements.txt | cut -c1-12)

fail() { # MESSAGE
    tail -n 30 "$log" >&2
    echo "error: $1" >&2
    echo "hint: the whole log is $log" >&2
    exit 1
}

mkdir -p build dist
# Two builds at once would pull the staged tree from under each other.
exec 9>build/deb.lock
! command -v flock >/dev/null || flock 9
: >"$log"
if [ ! -d "$vendor" ]; then
    rm -rf build/vendor-*
    .venv/bin/python -m pip --python /usr/bin/python3 install --quiet --disable-pip-version-check --no-input \
        --no-compile --no-deps --require-hashes --requirement packaging/requirements.txt --target "$vendor.partial" \
        >>"$log" 2>&1 </dev/null || fail "the libraries to bundle could not be fetched"
    mv "$vendor.partial" "$vendor"
fi

rm -rf build/deb
mkdir -p "$stage"
cp -a README.md NEWS.md core units engines firewall daemon gateway cli packaging debian docs "$stage/"
cp -a "$vendor" "$stage/vendor"
find "$stage" -name __pycache__ -prune -exec rm -rf {} +
# Debian's own Python, not one that a developer put in front of it.
(cd "$stage" && env PATH=/usr/sbin:/usr/bin:/sbin:/bin dpkg-buildpackage --build=binary --no-sign) >>"$log" 2>&1 </dev/null ||
    fail "dpkg-buildpackage failed"
rm -f dist/llmgw_*.deb
cp build/deb/llmgw_*.deb dist/
ls dist/llmgw_*.deb
