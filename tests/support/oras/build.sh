#!/bin/sh
# Build oras from the Go module that go.mod pins; quick when it is there already. It prints the folder that the tests
# look into. To use an oras of your own instead, name its file in ORAS. It wants the Go that go.mod names.
set -eu
cd "$(dirname "$0")"
version=$(awk '$1 == "require" && $2 == "oras.land/oras" {print $3; exit}' go.mod)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/bwagent/oras/$version
if [ -x "$cache/oras" ]; then
    echo "$cache"
    exit
fi
command -v go >/dev/null || { echo "there is no Go to build oras with" >&2; exit 1; }

mkdir -p "$cache"
work=$(mktemp -d "$cache/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
echo "building oras $version: a minute, the first time" >&2
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$work/oras" oras.land/oras/cmd/oras
mv "$work/oras" "$cache/oras"
echo "$cache"
