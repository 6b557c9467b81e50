#!/bin/sh
# Build the decoder of Kueue's API types, and fetch its CRDs, from the Go module that go.mod pins; quick when it is there
# already. It prints the folder that the tests look into. It wants Go 1.25 or newer, and neither root nor a C compiler.
set -eu
cd "$(dirname "$0")"
version=$(awk '$1 == "sigs.k8s.io/kueue" {print $2; exit}' go.mod)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/bwagent/kueue/$version
if [ -x "$cache/decode" ] && [ "$cache/decode" -nt decode.go ]; then
    echo "$cache"
    exit
fi
command -v go >/dev/null || { echo "there is no Go to build Kueue's types with" >&2; exit 1; }

mkdir -p "$cache"
work=$(mktemp -d "$cache/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
echo "building the decoder of Kueue $version: a minute, the first time" >&2
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$work/decode" .
bases=$(go list -m -f '{{.Dir}}' sigs.k8s.io/kueue)/config/components/crd/bases
for kind in topologies resourceflavors; do
    cp "$bases/kueue.x-k8s.io_$kind.yaml" "$work/"
    mv -f "$work/kueue.x-k8s.io_$kind.yaml" "$cache/$kind.yaml"
done
mv "$work/decode" "$cache/decode"
echo "$cache"
