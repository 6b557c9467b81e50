#!/bin/sh
# Make .venv with bwagent and nox in it, on a machine that has Python 3.11 or newer (PYTHON names another than python3).
# Debian and Ubuntu keep venv in a package of its own; it is installed where it is missing.
set -eu
cd "$(dirname "$0")/.."
fail() { echo "tests/setup.sh: $1" >&2; exit 1; }

python=${PYTHON:-python3}
command -v "$python" >/dev/null || fail "there is no $python; install Python 3.11 or newer, or name one: PYTHON=/path/to/python3 sh $0"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "$python is older than Python 3.11; name another one: PYTHON=/path/to/python3 sh $0"
[ -w . ] || fail "$(pwd) is not writable for $(id -un); clone it as this user"
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    if [ "$(id -u)" = 0 ]; then root=; else root=sudo; fi
    if ! command -v apt-get >/dev/null || { [ -n "$root" ] && ! command -v sudo >/dev/null; }; then
        fail "$python has no module venv; have your administrator install it (Debian, Ubuntu: apt-get install python3-venv)"
    fi
    $root apt-get update -q
    $root apt-get install -q -y --no-install-recommends python3-venv
fi
echo "tests/setup.sh: installing bwagent and nox into .venv; this takes minutes"
# A .venv that was moved with its folder, or whose Python is gone, is made anew.
[ -x .venv/bin/python ] && .venv/bin/python -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear .venv
.venv/bin/python -m pip install -q --disable-pip-version-check -e '.[page,pcap,plan,zstd]' 'nox>=2025.2'
