#!/bin/sh
# Make .venv with bwagent and nox in it, on a machine that has Python 3.11 or newer.
# Debian and Ubuntu keep venv in a package of its own; it is installed where it is missing.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$python is older than Python 3.11" >&2; exit 1; }
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    root=$([ "$(id -u)" = 0 ] || echo sudo)
    $root apt-get update -q
    $root apt-get install -q -y --no-install-recommends python3-venv
fi
[ -x .venv/bin/pip ] || "$python" -m venv .venv
.venv/bin/pip install -q --disable-pip-version-check -e '.[page,pcap,plan,zstd]' 'nox>=2025.2'
