#!/bin/sh
# Build oras from the Go module that go.mod pins; quick when it is there already. It prints the folder that the tests
# look into. To use an oras of your own instead, name its file in ORAS. It wants the Go that go.mod names.
set -eu
cd "$(dirname "$0")"
. ../go.sh
version=$(awk '$1 == "require" && $2 == "oras.land/oras" {print $3; exit}' go.mod)
cached "oras/$version" oras
begin "build oras"
echo "building oras $version: a minute, the first time" >&2
twice go build -trimpath -ldflags "-s -w" -o "$work/oras" oras.land/oras/cmd/oras
keep oras
echo "$cache"
