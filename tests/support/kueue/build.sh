#!/bin/sh
# Build the decoder of Kueue's API types, and fetch its CRDs, from the Go module that go.mod pins; quick when it is there
# already. It prints the folder that the tests look into. It wants Go 1.26 or newer, and neither root nor a C compiler.
set -eu
cd "$(dirname "$0")"
. ../go.sh
version=$(awk '$1 == "sigs.k8s.io/kueue" {print $2; exit}' go.mod)
cached "kueue/$version" decode topologies.yaml resourceflavors.yaml
begin "build Kueue's types"
echo "building the decoder of Kueue $version: a minute, the first time" >&2
twice go build -trimpath -ldflags "-s -w" -o "$work/decode" .
bases=$(go list -m -f '{{.Dir}}' sigs.k8s.io/kueue)/config/components/crd/bases
for kind in topologies resourceflavors; do
    cp "$bases/kueue.x-k8s.io_$kind.yaml" "$work/$kind.yaml"
done
keep decode topologies.yaml resourceflavors.yaml
echo "$cache"
